"""Countdown: reach a target with every given number used once."""

from collections.abc import Sequence

import numpy as np

from grpo_jax.config import ColdStartConfig, DataConfig
from grpo_jax.data.splits import LazyProblems, Split, fixed_splits, text_hashes
from grpo_jax.records import Problem

LARGEST_NUMBER = 99
"""Numbers are drawn from 1 to this one."""

LARGEST_TARGET = 999
"""Bounds the targets, and the products on the way to them."""

_DRAW_SEED = 3_781_031
_OPERATORS = "+-*/"


class CountdownTask:
    """Problems such as ``3 7 8 -> 29``: write an expression of 3, 7 and 8 with the value 29.

    A problem is drawn as a chain of operations, such as 7*3, then +8, so each one is solvable. Its numbers are
    written in ascending order: the same numbers in another order are the same problem, and cannot be in two splits.
    ``answer`` is the target. ``extra`` has ``numbers`` as the verifier wants them, and the stored solution as
    ``solution_numbers`` and ``solution_operators``.
    """

    name = "countdown"

    def __init__(self, config: DataConfig, cold_start: ColdStartConfig):
        """Draws up to ``config.max_problems`` problems, the same ones for every seed of a run, and splits them.

        Args:
            config: Count of numbers, number of problems and prompt template.
            cold_start: Shares of worked examples and of slips.

        Raises:
            ConfigError: where too few distinct problems exist for the held-out sets.
        """
        self._template = config.prompt_template
        self._cold_start = cold_start
        self._numbers, self._operators, self._targets = _distinct_chains(config.countdown_numbers, config.max_problems)
        count = len(self._targets)
        texts = map(_text, np.sort(self._numbers, axis=1).tolist(), self._targets.tolist())
        remedy = (
            f"raise data.countdown_numbers (now {config.countdown_numbers}) "
            f"or data.max_problems (now {config.max_problems})"
        )
        rows = fixed_splits(text_hashes(texts, count), config, remedy)
        digits = _digit_count(self._numbers).sum(axis=1) + _digit_count(self._targets)
        self._problems = {
            split: LazyProblems(rows[split], self._problem, int(np.argmax(digits[rows[split]]))) for split in rows
        }

    def problems(self, split: Split) -> Sequence[Problem]:
        """Returns the problems of a split, built on access."""
        return self._problems[split]

    def demonstration(self, problem: Problem, generator: np.random.Generator) -> str:
        """Writes the stored solution, with its steps at times, and then with slips at times.

        With probability ``thinking_share`` the steps are worked out. Each operator is then another one with
        probability ``slip_probability``: the arithmetic stays right, and the answer misses the target.

        Args:
            problem: One of this task's problems.
            generator: Source of all the chance in it.

        Returns:
            Completion text without an end-of-sequence token.
        """
        numbers, operators = problem.extra["solution_numbers"], problem.extra["solution_operators"]
        if generator.random() >= self._cold_start.thinking_share:
            return f"<answer>{_chain(numbers, operators)[1]}</answer>"
        written = ""
        for operator in operators:
            if generator.random() < self._cold_start.slip_probability:
                others = [other for other in "+-*" if other != operator]
                written += others[generator.integers(len(others))]
            else:
                written += operator
        steps, expression = _chain(numbers, written)
        return f"<think>{','.join(steps)}</think><answer>{expression}</answer>"

    def _problem(self, row: int) -> Problem:
        numbers = tuple(self._numbers[row].tolist())
        target = int(self._targets[row])
        text = _text(sorted(numbers), target)
        return Problem(
            identifier=f"countdown/{text}",
            prompt=self._template.replace("{problem}", text),
            answer=str(target),
            extra={
                "numbers": tuple(sorted(numbers)),
                "solution_numbers": numbers,
                "solution_operators": "".join(_OPERATORS[code] for code in self._operators[row]),
            },
        )


def _text(numbers: Sequence[int], target: int) -> str:
    return f"{' '.join(map(str, numbers))} -> {target}"


def _digit_count(values: np.ndarray) -> np.ndarray:
    return 1 + (values >= 10) + (values >= 100)


def _chain(numbers: Sequence[int], operators: str) -> tuple[list[str], str]:
    """Applies operators from left to right; returns the steps and one expression for all of them.

    A division that an earlier slip has made inexact is turned into a subtraction.
    """
    steps, value, expression, additive = [], numbers[0], str(numbers[0]), False
    for operator, number in zip(operators, numbers[1:], strict=True):
        exact = "-" if operator == "/" and value % number else operator
        results = {"+": value + number, "-": value - number, "*": value * number, "/": value // number}
        steps.append(f"{value}{exact}{number}={results[exact]}")
        if additive and exact in "*/":
            expression = f"({expression})"
        expression, additive, value = f"{expression}{exact}{number}", exact in "+-", results[exact]
    return steps, expression


def _distinct_chains(count: int, limit: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws ``limit`` chains and keeps one for each set of numbers and target.

    Returns:
        Numbers in the order of use [rows, count], operator codes [rows, count - 1] and targets [rows].
    """
    # Raw bits, because numpy keeps those alone equal over its versions.
    bits = np.random.PCG64(_DRAW_SEED)
    numbers = (bits.random_raw(limit * count) % np.uint64(LARGEST_NUMBER)).astype(np.int64).reshape(limit, count) + 1
    operators = (bits.random_raw(limit * (count - 1)) % np.uint64(len(_OPERATORS))).astype(np.int64)
    operators = operators.reshape(limit, count - 1)
    value = numbers[:, 0]
    for step in range(count - 1):
        number, operator = numbers[:, step + 1], operators[:, step]
        # An operation that would leave the small positive integers gives way to the next simpler one.
        operator = np.where((operator == 3) & (value % number != 0), 2, operator)
        operator = np.where((operator == 2) & (value * number > LARGEST_TARGET), 1, operator)
        operator = np.where((operator == 1) & (value <= number), 0, operator)
        operators[:, step] = operator
        value = np.choose(operator, [value + number, value - number, value * number, value // number])
    key = value
    for column in np.sort(numbers, axis=1).T:
        key = key * (LARGEST_NUMBER + 1) + column
    kept = np.sort(np.unique(key, return_index=True)[1])
    kept = kept[value[kept] <= LARGEST_TARGET]
    return numbers[kept].astype(np.int16), operators[kept].astype(np.int8), value[kept].astype(np.int16)
