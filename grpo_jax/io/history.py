"""What a run has measured so far, as symptoms are looked for in it."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

WINDOW_STEPS = 10
"""Steps that most symptoms are averaged over: one odd batch is no pathology."""

LOOK_BACK_STEPS = 50
"""How far back those are looked for: a step whose groups all have one reward updates nothing, and measures no KL."""


@dataclasses.dataclass(frozen=True)
class History:
    """What symptoms are looked for in.

    Attributes:
        train: Rows of training steps, oldest first.
        validation: Rows of evaluations on the validation problems.
    """

    train: Sequence[Row]
    validation: Sequence[Row]

    def mean(self, metric: str, steps: int = WINDOW_STEPS, at_least: int = WINDOW_STEPS) -> float | None:
        """Averages a metric over the last steps that have it, or gives None where they are fewer than ``at_least``."""
        values = self._latest(metric)[-steps:]
        return math.fsum(values) / len(values) if len(values) >= max(at_least, 1) else None

    def median(self, metric: str) -> float | None:
        """The median of a metric over the last steps that have it, or None where they are too few."""
        values = self._latest(metric)[-WINDOW_STEPS:]
        return statistics.median(values) if len(values) >= WINDOW_STEPS else None

    def _latest(self, metric: str) -> list[float]:
        return values_of(self.train[-LOOK_BACK_STEPS:], metric)


def values_of(rows: Sequence[Row], metric: str) -> list[float]:
    """A metric's values, of the rows that have it."""
    return [float(row[metric]) for row in rows if row.get(metric) is not None]
