"""Addition of two numbers with the same count of digits."""

from collections.abc import Sequence

import numpy as np

from grpo_jax.config import ColdStartConfig, DataConfig
from grpo_jax.data.pairs import distinct_pairs
from grpo_jax.data.splits import LazyProblems, Split, fixed_splits, text_hashes
from grpo_jax.records import Problem

_TEXT = "{}+{}"


class AdditionTask:
    """Problems such as ``417+385`` with the answer ``802``.

    Both operands lie in [10^(digits-1), 10^digits - 1]. When there are more than ``max_problems`` pairs, a fixed
    pseudo-random sample of that many is used, whatever the seed of the run.
    """

    name = "addition"

    def __init__(self, config: DataConfig, cold_start: ColdStartConfig):
        """Lists the pairs and splits them.

        Args:
            config: Digits, number of problems and prompt template.
            cold_start: Shares of worked examples, of slips and of re-checks.

        Raises:
            ConfigError: where too few pairs exist for the held-out sets.
        """
        self._template = config.prompt_template
        self._cold_start = cold_start
        self._smallest = 10 ** (config.digits - 1)
        self._operands = 9 * self._smallest
        pairs = distinct_pairs(self._operands, config.max_problems)
        left, right = np.divmod(pairs, self._operands)
        left, right = left + self._smallest, right + self._smallest
        # 417+385 and 385+417 share a split: the mirror of a held-out problem is never trained on.
        sorted_texts = map(_TEXT.format, np.minimum(left, right).tolist(), np.maximum(left, right).tolist())
        texts = map(_TEXT.format, left.tolist(), right.tolist())
        remedy = f"raise data.digits (now {config.digits}) or data.max_problems (now {config.max_problems})"
        rows = fixed_splits(
            text_hashes(sorted_texts, len(pairs)), config, remedy, order_hashes=text_hashes(texts, len(pairs))
        )
        self._problems = {split: LazyProblems(pairs[rows[split]], self._problem) for split in rows}

    def problems(self, split: Split) -> Sequence[Problem]:
        """Returns the problems of a split, built on access."""
        return self._problems[split]

    def demonstration(self, problem: Problem, generator: np.random.Generator) -> str:
        """Writes a worked example, at times with slips, or a bare correct answer.

        With probability ``thinking_share`` the columns are added from the ones upward. Each column's sum is then wrong
        by one with probability ``slip_probability``, and the error is carried on into the answer. Where ``max_passes``
        allows it, each pass is followed by another one with probability ``recheck_probability``: all columns again,
        after a full stop, with slips ``recheck_slip_factor`` times as likely as in the pass before. The answer is that
        of the last pass.

        Args:
            problem: One of this task's problems.
            generator: Source of all the chance in it.

        Returns:
            Completion text without an end-of-sequence token.
        """
        settings = self._cold_start
        if generator.random() >= settings.thinking_share:
            return f"<answer>{problem.answer}</answer>"
        passes, slip_probability = [], settings.slip_probability
        while True:
            steps, total = _worked_columns(problem.extra["operands"], slip_probability, generator)
            passes.append(steps)
            # No chance is drawn for a re-check that cannot be: the examples of one pass stay those of each seed.
            if len(passes) == settings.max_passes or generator.random() >= settings.recheck_probability:
                return f"<think>{'.'.join(passes)}</think><answer>{total}</answer>"
            slip_probability *= settings.recheck_slip_factor

    def _problem(self, pair: int) -> Problem:
        left, right = divmod(pair, self._operands)
        operands = (left + self._smallest, right + self._smallest)
        text = _TEXT.format(*operands)
        return Problem(
            identifier=f"addition/{text}",
            prompt=self._template.replace("{problem}", text),
            answer=str(sum(operands)),
            extra={"operands": operands},
        )


def _worked_columns(
    operands: tuple[int, int], slip_probability: float, generator: np.random.Generator
) -> tuple[str, int]:
    """Adds column by column, with slips; returns the working and the sum that it comes to."""
    left, right = (str(operand)[::-1] for operand in operands)
    steps, carry, total = [], 0, 0
    for power, (a, b) in enumerate(zip(left, right, strict=True)):
        column = int(a) + int(b) + carry
        if generator.random() < slip_probability:
            column += 1 if column == 0 or generator.random() < 0.5 else -1
        steps.append(f"{a}+{b}+{carry}={column}")
        carry = column // 10
        # The last column's sum is the whole leading part, so its carry is not taken off.
        total += 10**power * (column if power == len(left) - 1 else column % 10)
    return ",".join(steps), total
