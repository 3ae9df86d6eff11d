"""Endless, reshuffled and resumable batches.

A batch depends on the seed and its number alone, so the number is all the state there is. Grain imports jax where it
is installed and works where it is not; nothing here uses it.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import grain
import numpy as np

from grpo_jax.data.splits import LazyProblems
from grpo_jax.data.tasks import Task
from grpo_jax.data.tokenizer import Tokenizer
from grpo_jax.records import Problem

Batch = TypeVar("Batch")


class StreamChanged(ValueError):  # noqa: N818
    """A saved position belongs to another stream of data."""

    exit_status = 6


class _Loader(Iterator[Batch], Generic[Batch]):
    """An iterator over a grain dataset whose state also says what it belongs to."""

    def __init__(self, dataset: grain.MapDataset, belongs_to: Mapping[str, int]):
        # Reading in this thread: an element takes microseconds, and nothing runs ahead of the saved state.
        options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
        self._batches = iter(dataset.to_iter_dataset(options))
        self._belongs_to = dict(belongs_to)

    def __next__(self) -> Batch:
        return next(self._batches)

    def get_state(self) -> dict[str, Any]:
        """Returns the position as plain values for JSON."""
        return {**self._belongs_to, "grain": self._batches.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from a position, bit for bit.

        Args:
            state: A result of ``get_state``.

        Raises:
            ValueError: for the state of a loader with other problems, another batch size or another seed.
        """
        require_same_stream(state, self._belongs_to)
        self._batches.set_state(state["grain"])


def content_digest(problems: Sequence[Problem]) -> int:
    """CRC-32 of all problems, so that a position is not taken up on other data.

    Args:
        problems: The problems of a stream. Generated ones, built on access, are told by the configuration instead.

    Returns:
        The digest; 0 for generated problems.
    """
    digest = 0
    if not isinstance(problems, LazyProblems):
        for problem in problems:
            digest = zlib.crc32(f"{problem}\0".encode(), digest)
    return digest


class PromptLoader(_Loader[list[Problem]]):
    """Yields lists of exactly ``batch_size`` problems without end.

    Each epoch visits every problem once, in an order of its own. Batches cross the ends of epochs: nothing is dropped.
    """

    def __init__(self, problems: Sequence[Problem], batch_size: int, seed: int):
        """Starts at the first batch.

        Args:
            problems: The training problems.
            batch_size: Problems per batch, over all processes.
            seed: Decides the order.
        """
        dataset = _shuffled(problems, seed).batch(batch_size, batch_fn=list)
        super().__init__(
            dataset,
            {
                "problems": len(problems),
                "content": content_digest(problems),
                "batch_size": batch_size,
                "seed": seed,
            },
        )


class DemonstrationLoader(_Loader[dict[str, np.ndarray]]):
    """Yields tokenised worked examples of a task's training problems without end.

    A batch has ``token_NS`` (int32, prompt + demonstration + eos, padded on the right), and ``prompt_length_N`` and
    ``length_N`` (int32, tokens of the prompt alone and of the whole row). Every visit of a problem writes a new
    demonstration; the chance in it comes from the seed and the position in the stream.
    """

    def __init__(self, task: Task, tokenizer: Tokenizer, batch_size: int, seed: int, max_tokens: int):
        """Starts at the first batch.

        Args:
            task: A task with worked examples.
            tokenizer: Tokenizer of the model.
            batch_size: Rows per batch, over all processes.
            seed: Decides the order and the demonstrations.
            max_tokens: Length of a row.
        """

        def demonstrate(index: int, problem: Problem) -> dict[str, np.ndarray]:
            text = task.demonstration(problem, np.random.default_rng((seed, index)))
            return _row(problem, text, tokenizer, max_tokens)

        problems = task.problems("train")
        dataset = _shuffled(problems, seed).map_with_index(demonstrate).batch(batch_size, batch_fn=_stack)
        super().__init__(
            dataset,
            {
                "problems": len(problems),
                "content": content_digest(problems),
                "batch_size": batch_size,
                "seed": seed,
            },
        )


def require_same_stream(state: Mapping[str, Any], belongs_to: Mapping[str, Any]) -> None:
    """Checks that a saved position was saved by a stream like this one.

    Args:
        state: The saved position.
        belongs_to: What decides this stream, by the names that the state uses.

    Raises:
        ValueError: naming the first difference.
    """
    for name, value in belongs_to.items():
        if state.get(name) != value:
            raise StreamChanged(
                f"the saved data position belongs to {name} = {state.get(name)!r}, this run has {value!r}. "
                "Restore the old data and configuration, or start a new run."
            )


def _shuffled(problems: Sequence[Problem], seed: int) -> grain.MapDataset:
    assert len(problems) > 0, "tasks refuse empty splits"
    # Grain adds the epoch to the seed. Scattered seeds keep one run's second epoch from being another one's first.
    scattered = int(np.random.SeedSequence(seed).generate_state(1)[0])
    # Without a count of epochs, grain cannot express the length of batches of one.
    return grain.MapDataset.source(problems).shuffle(seed=scattered).repeat(2**62 // len(problems))


def _row(problem: Problem, text: str, tokenizer: Tokenizer, max_tokens: int) -> dict[str, np.ndarray]:
    prompt = tokenizer.encode_prompt(problem.prompt)
    tokens = [*prompt, *tokenizer.encode(text), tokenizer.eos_ids[0]]
    if len(tokens) > max_tokens:
        raise ValueError(
            f"the demonstration of {problem.identifier} has {len(tokens)} tokens ({len(prompt)} of them the prompt), "
            f"wanted at most {max_tokens}. Raise rollout.max_new_tokens or data.max_prompt_tokens."
        )
    token_S = np.full(max_tokens, tokenizer.pad_id, np.int32)
    token_S[: len(tokens)] = tokens
    return {
        "token_NS": token_S,
        "prompt_length_N": np.array(len(prompt), np.int32),
        "length_N": np.array(len(tokens), np.int32),
    }


def _stack(rows: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
