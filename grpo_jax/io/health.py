"""Watching a run for known pathologies: what is wrong now, and what was when."""

import dataclasses
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from grpo_jax.config import HealthConfig
from grpo_jax.io.history import History, Row
from grpo_jax.io.symptoms import SYMPTOMS, Symptom

REMEMBERED_STEPS = 1000
"""Older steps are not looked at, so that a step costs the same at any length of a run."""

QUIET_STEPS = 20
"""An alarm is over when its symptom has not been there for so long: near a limit it would come and go all the time."""


@dataclasses.dataclass
class Alarm:
    """A symptom from the step that it came up to the last one at which it was there.

    Attributes:
        symptom: What it is.
        words: What is wrong, or was when it was last there.
        first_step: Step at which it came up.
        last_step: Last step at which it was there.
    """

    symptom: Symptom
    words: str
    first_step: int
    last_step: int

    def record(self) -> dict[str, Any]:
        """The alarm as JSON values."""
        return {
            "name": self.symptom.name,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "words": self.words,
            "remedy": self.symptom.remedy,
        }


class Monitor:
    """Follows a run row by row.

    Attributes:
        alarms: What is wrong at the moment, by the symptom's name.
    """

    def __init__(self, limits: HealthConfig, rows: Iterable[Row] = ()) -> None:
        """Starts with what is known of the run, without a word about it.

        Args:
            limits: When to warn.
            rows: Rows of metrics so far.
        """
        self.alarms: dict[str, Alarm] = {}
        self._limits = limits
        self._train: deque[Row] = deque(maxlen=REMEMBERED_STEPS)
        self._validation: deque[Row] = deque(maxlen=REMEMBERED_STEPS)
        for row in rows:
            self.observe(row)

    def observe(self, row: Row) -> tuple[list[Alarm], list[Alarm]]:
        """Looks at the run after one more row.

        Args:
            row: A row of metrics with its ``kind`` and ``step``.

        Returns:
            The alarms that came up and those that went with this row.
        """
        if not (self._limits.enabled and self._remember(row)):
            return [], []
        history, step = History(list(self._train), list(self._validation)), row["step"]
        words = {symptom.name: symptom.found(history, self._limits) for symptom in SYMPTOMS}
        over = [
            name for name, alarm in self.alarms.items() if not words[name] and step - alarm.last_step >= QUIET_STEPS
        ]
        gone = [self.alarms.pop(name) for name in over]
        come = []
        for symptom in SYMPTOMS:
            said = words[symptom.name]
            if said is None:
                continue
            if symptom.name not in self.alarms:
                self.alarms[symptom.name] = Alarm(symptom, said, step, step)
                come.append(self.alarms[symptom.name])
            self.alarms[symptom.name].words, self.alarms[symptom.name].last_step = said, step
        return come, gone

    def metrics(self) -> dict[str, Any]:
        """What is wrong at the moment, for the metrics: ``health/warnings`` counts, ``warnings`` names."""
        return (
            {"health/warnings": float(len(self.alarms)), "warnings": list(self.alarms)} if self._limits.enabled else {}
        )

    def _remember(self, row: Row) -> bool:
        if row["kind"] == "train":
            self._train.append(row)
        elif row["kind"] == "evaluation" and row.get("split") == "validation":
            self._validation.append(row)
        else:
            return False
        return True


def alarms_of(rows: Iterable[Mapping[str, Any]], limits: HealthConfig) -> list[Alarm]:
    """Goes through a run again and collects everything that it warned of.

    Args:
        rows: All its rows of metrics.
        limits: When to warn.

    Returns:
        The alarms in the order in which they came up; one that went and came again is there twice.
    """
    monitor, alarms = Monitor(limits), []
    for row in rows:
        alarms += monitor.observe(row)[0]
    return alarms
