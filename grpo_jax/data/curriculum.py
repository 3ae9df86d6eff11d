"""A stream of problems that leaves out those which nothing is learned from, and never for ever.

A group whose completions are all right or all wrong has no advantage: sampling it is lost work. What a problem did at
its last visits says whether its next group will be such a one. Only raw correctness counts here, because a shaped
reward varies within groups that are all wrong.
"""

import array
import base64
import dataclasses
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from grpo_jax.config import CurriculumConfig
from grpo_jax.data.loader import PromptLoader, require_same_stream
from grpo_jax.records import Problem

Status = Literal["active", "solved", "hopeless"]
"""What the history says about a problem; ``active`` until it says something else."""

LEFT_OUT_PER_PROBLEM = 32
"""Problems that a batch leaves out at most, for each of its places. After that it takes what comes."""

_FORGOTTEN_COMPLETIONS = 0.5
_COUNT_DECIMALS = 3


class Curriculum:
    """What every visited problem did at its last visits, and how likely it should be visited again.

    A problem's history is two counts, its right and its wrong completions, which decay with each visit. It is solved
    when less than half a wrong completion is left of it, and hopeless when less than half a right one is. So one visit
    with a mixed outcome makes a problem active again, and a few equal ones leave it out again.
    """

    def __init__(self, config: CurriculumConfig):
        """Starts without any history.

        Args:
            config: Rules of the decision.
        """
        self._config = config
        self._forget()

    def admission_probability(self, problem: Problem) -> float:
        """Says how likely a problem should be taken when its turn comes.

        With right and wrong completions in proportion p : 1 - p, that is 1 or, if weighted by variance, 4p(1 - p), the
        variance of an outcome relative to its maximum. It is never less than ``readmit_probability``, which is what
        solved and hopeless problems get. A problem without enough visits, or whose last visit is
        ``readmit_after_steps`` old, is taken always.

        Args:
            problem: The problem whose turn it is.

        Returns:
            Probability in [0, 1].
        """
        config = self._config
        row = self._rows.get(problem.identifier)
        if row is None or self._visits[row] < config.min_visits:
            return 1.0
        if 0 < config.readmit_after_steps <= self._step - self._last_steps[row]:
            return 1.0
        if self._status(row) != "active":
            return config.readmit_probability
        if config.weighting == "uniform":
            return 1.0
        pass_rate = self._right[row] / (self._right[row] + self._wrong[row])
        return max(config.readmit_probability, 4 * pass_rate * (1 - pass_rate))

    def record(self, problems: Sequence[Problem], correct_BG: np.ndarray, valid_BG: np.ndarray, *, step: int) -> None:
        """Adds the outcomes of one batch, whether it is trained on or not.

        Args:
            problems: The B problems of the batch, over all processes.
            correct_BG: bool array of shape [B, G]: whether the answer is right, whatever the reward.
            valid_BG: bool array of shape [B, G]: False where the judge failed. Such a completion is neither right nor
                wrong, and a group of them is no visit.
            step: Training step that sampled the batch; a step may have several.
        """
        assert step >= self._step, f"step {step} after step {self._step}"
        self._step = step
        for problem, correct_G, valid_G in zip(problems, correct_BG, valid_BG, strict=True):
            if valid_G.any():
                self._visit(problem.identifier, int((correct_G & valid_G).sum()), int(valid_G.sum()))

    def metrics(self) -> dict[str, float]:
        """Counts the visited problems (``curriculum/seen``), and among them the active, solved and hopeless ones."""
        counts = {f"curriculum/{status}": float(self._counts[status]) for status in ("active", "solved", "hopeless")}
        return {"curriculum/seen": float(len(self._rows)), **counts}

    def get_state(self) -> dict[str, Any]:
        """Returns the history as plain values for JSON.

        Its columns are one compressed text: a million problems stay small, and whoever copies the state copies two
        values.
        """
        columns = [list(self._rows), *(column.tolist() for column in self._columns)]
        packed = zlib.compress(json.dumps(columns, separators=(",", ":")).encode(), level=1)
        return {"step": self._step, "history": base64.b64encode(packed).decode("ascii")}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Replaces the history.

        Args:
            state: A result of ``get_state``.
        """
        identifiers, *columns = json.loads(zlib.decompress(base64.b64decode(state["history"])))
        self._forget()
        self._step = state["step"]
        self._rows = {identifier: row for row, identifier in enumerate(identifiers)}
        for column, values in zip(self._columns, columns, strict=True):
            column.extend(values)
        self._counts.update(map(self._status, self._rows.values()))

    def _forget(self) -> None:
        self._step = 0
        self._rows: dict[str, int] = {}
        self._right, self._wrong = array.array("d"), array.array("d")
        self._visits, self._last_steps = array.array("q"), array.array("q")
        self._columns = (self._right, self._wrong, self._visits, self._last_steps)
        self._counts: Counter[Status] = Counter()

    def _status(self, row: int) -> Status:
        if self._visits[row] < self._config.min_visits:
            return "active"
        if self._wrong[row] < _FORGOTTEN_COMPLETIONS:
            return "solved"
        return "hopeless" if self._right[row] < _FORGOTTEN_COMPLETIONS else "active"

    def _visit(self, identifier: str, right: int, completions: int) -> None:
        row = self._rows.setdefault(identifier, len(self._rows))
        if row == len(self._visits):
            for column in self._columns:
                column.append(0)
        else:
            self._counts[self._status(row)] -= 1
        # Rounded counts are short in JSON, and what decays ends at 0 or near it instead of in ever smaller numbers.
        self._right[row] = round(self._config.decay * self._right[row] + right, _COUNT_DECIMALS)
        self._wrong[row] = round(self._config.decay * self._wrong[row] + completions - right, _COUNT_DECIMALS)
        self._visits[row] += 1
        self._last_steps[row] = self._step
        self._counts[self._status(row)] += 1


class CurriculumLoader(Iterator[list[Problem]]):
    """Yields lists of exactly ``batch_size`` problems without end, in the order of ``PromptLoader`` but with gaps.

    What is left out costs a draw and no more. Where little is left of the problems, one batch can reach over several
    epochs and hold a problem more than once. Without a history the batches are those of ``PromptLoader``.

    A batch depends on the seed, the number of problems drawn and the outcomes so far: processes that record the same
    outcomes get the same batches.
    """

    def __init__(self, problems: Sequence[Problem], batch_size: int, seed: int, config: CurriculumConfig):
        """Starts at the first batch.

        Args:
            problems: The training problems, with an identifier each.
            batch_size: Problems per batch, over all processes.
            seed: Decides the order and the chance in what is left out.
            config: Rules of what is left out.
        """
        self._problems = PromptLoader(problems, 1, seed)
        self._batch_size, self._seed = batch_size, seed
        self._belongs_to = {"curriculum": dataclasses.asdict(config), "batch_size": batch_size}
        self._curriculum = Curriculum(config)
        self._draws = self._left_out = self._forced = 0

    def __next__(self) -> list[Problem]:
        batch: list[Problem] = []
        self._left_out = self._forced = 0
        while len(batch) < self._batch_size:
            (problem,) = next(self._problems)
            self._draws += 1
            if self._left_out == LEFT_OUT_PER_PROBLEM * self._batch_size:
                self._forced += 1
                batch.append(problem)
            elif self._admits(problem):
                batch.append(problem)
            else:
                self._left_out += 1
        return batch

    def record(self, problems: Sequence[Problem], correct_BG: np.ndarray, valid_BG: np.ndarray, *, step: int) -> None:
        """Adds the outcomes of one batch to the history; see ``Curriculum.record``.

        Args:
            problems: The B problems of the batch, over all processes.
            correct_BG: bool array of shape [B, G]: whether the answer is right, whatever the reward.
            valid_BG: bool array of shape [B, G]: False where the judge failed.
            step: Training step that sampled the batch.
        """
        self._curriculum.record(problems, correct_BG, valid_BG, step=step)

    def metrics(self) -> dict[str, float]:
        """Counts of the history, and for the last batch ``curriculum/left_out`` and ``curriculum/forced``.

        Forced problems are those that were taken without a look at their history, since too many were left out.
        """
        last_batch = {"curriculum/left_out": float(self._left_out), "curriculum/forced": float(self._forced)}
        return self._curriculum.metrics() | last_batch

    def get_state(self) -> dict[str, Any]:
        """Returns position and history as plain values for JSON."""
        return {
            **self._belongs_to,
            "draws": self._draws,
            "position": self._problems.get_state(),
            "history": self._curriculum.get_state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from a position with its history, bit for bit.

        Args:
            state: A result of ``get_state``.

        Raises:
            ValueError: for the state of a loader with other problems, another batch size, seed or curriculum.
        """
        require_same_stream(state, self._belongs_to)
        self._problems.set_state(state["position"])
        self._draws = state["draws"]
        self._curriculum.set_state(state["history"])

    def _admits(self, problem: Problem) -> bool:
        probability = self._curriculum.admission_probability(problem)
        return probability == 1 or np.random.default_rng((self._seed, self._draws)).random() < probability
