"""The larger of two numbers, behind a few solved examples."""

from collections.abc import Sequence

import numpy as np

from grpo_jax.config import ConfigError, DataConfig
from grpo_jax.data.files import NO_DEMONSTRATIONS
from grpo_jax.data.pairs import distinct_pairs
from grpo_jax.data.splits import LazyProblems, Split, fixed_splits, text_hashes
from grpo_jax.records import Problem

_TEXT = "{},{}"


class MaximumTask:
    """Problems such as ``12,45`` with the answer ``45``, for models that go on with a pattern.

    Each prompt is the prompt template with the problem, behind as many solved problems as ``maximum_examples`` says, a
    line each. They are the same for all prompts. They come from the training problems and are taken out of them with
    their mirror images, so no prompt shows an answer that is asked for. The larger number is the right one and the
    left one in turns, and as often in the problems: to repeat either operand is right half of the time.

    Both numbers have ``digits`` digits and differ. When there are more than ``max_problems`` pairs, a fixed
    pseudo-random sample of that many is used, whatever the seed of the run.
    """

    name = "maximum"

    def __init__(self, config: DataConfig):
        """Lists the pairs and splits them.

        Args:
            config: Digits, number of problems and of examples, and prompt template.

        Raises:
            ConfigError: where too few pairs exist for the held-out sets.
        """
        self._template = config.prompt_template
        smallest = 10 ** (config.digits - 1)
        pairs = np.stack(np.divmod(distinct_pairs(9 * smallest, config.max_problems), 9 * smallest), axis=1) + smallest
        self._pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        count = len(self._pairs)
        # 12,45 and 45,12 share a split: the mirror of a held-out problem is never trained on.
        hashes = text_hashes((_TEXT.format(*pair) for pair in np.sort(self._pairs, axis=1).tolist()), count)
        order_hashes = text_hashes((_TEXT.format(*pair) for pair in self._pairs.tolist()), count)
        remedy = f"raise data.digits (now {config.digits}) or data.max_problems (now {config.max_problems})"
        rows = fixed_splits(hashes, config, remedy, order_hashes=order_hashes)
        shown = self._shown(rows["train"][np.argsort(order_hashes[rows["train"]])], config.maximum_examples)
        rows["train"] = rows["train"][~np.isin(hashes[rows["train"]], hashes[shown])]
        self._examples = "".join(f"{self._line(row)}{self._pairs[row].max()}\n" for row in shown)
        self._problems = {split: LazyProblems(rows[split], self._problem) for split in rows}

    def problems(self, split: Split) -> Sequence[Problem]:
        """Returns the problems of a split, built on access."""
        return self._problems[split]

    def demonstration(self, problem: Problem, generator: np.random.Generator) -> str:  # noqa: ARG002 - the protocol
        """Raises ConfigError: there are no worked examples."""
        raise ConfigError(NO_DEMONSTRATIONS.format(task=self.name))

    def _shown(self, candidates: np.ndarray, count: int) -> list[int]:
        """The first rows whose larger number is the right one and the left one in turns."""
        right_larger = self._pairs[candidates, 1] > self._pairs[candidates, 0]
        sides = [iter(candidates[right_larger].tolist()), iter(candidates[~right_larger].tolist())]
        return [next(sides[number % 2]) for number in range(count)]

    def _line(self, row: int) -> str:
        return self._template.replace("{problem}", _TEXT.format(*self._pairs[row]))

    def _problem(self, row: int) -> Problem:
        return Problem(
            identifier=f"maximum/{_TEXT.format(*self._pairs[row])}",
            prompt=self._examples + self._line(row),
            answer=str(self._pairs[row].max()),
        )
