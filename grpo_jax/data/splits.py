"""Train, validation and test sets by a hash of the problem's text."""

import typing
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np

from grpo_jax.config import ConfigError, DataConfig
from grpo_jax.records import Problem

Split = Literal["train", "validation", "test"]
"""Names of the three sets."""

SPLITS: tuple[Split, ...] = typing.get_args(Split)
"""Every split, in the order in which people read them."""

HASH_BUCKETS = 1000
HELD_OUT_BUCKETS: dict[Split, range] = {"validation": range(50), "test": range(50, 100)}
"""Buckets of the held-out splits, of ``HASH_BUCKETS`` in all: 5% each. Every other bucket trains."""

_SCRAMBLE = np.uint64(2_654_435_761)


def text_hashes(texts: Iterable[str], count: int) -> np.ndarray:
    """Hashes problem texts.

    A hash of the text is used because a formula of the operands can separate the answers, by their last digit for
    example, and because it is the same in every process and on every machine.

    Args:
        texts: Problem texts, before the prompt template.
        count: Number of texts.

    Returns:
        uint64 array of shape [count] with the CRC-32 of every text.
    """
    return np.fromiter((zlib.crc32(text.encode()) for text in texts), np.uint64, count)


def hash_order(hashes: np.ndarray) -> np.ndarray:
    """Row numbers in a pseudo-random order that depends on the hashes alone, so that the first n are a fair sample.

    Args:
        hashes: Result of ``text_hashes``.

    Returns:
        int64 array with every row number once.
    """
    # CRC-32 is linear over bits: without the multiplication, the smallest hashes would share parities of their text.
    return np.argsort(hashes * _SCRAMBLE % np.uint64(2**32), kind="stable")


def hash_split(
    hashes: np.ndarray, order_hashes: np.ndarray | None = None, held_out: Sequence[Split] = SPLITS[1:]
) -> dict[Split, np.ndarray]:
    """Splits rows by hash bucket.

    Args:
        hashes: Result of ``text_hashes``; rows with the same hash share a split.
        order_hashes: Hashes that order the held-out rows, ``hashes`` by default.
        held_out: Splits that get their buckets; the rows of the other ones are trained on.

    Returns:
        Row numbers by split. The held-out rows are in a pseudo-random order that depends on the hashes alone, so the
        first n of them are a fixed fair sample; the training rows keep their order.
    """
    bucket = hashes % HASH_BUCKETS
    order = hash_order(hashes if order_hashes is None else order_hashes)
    trained = np.ones(len(hashes), bool)
    rows: dict[Split, np.ndarray] = {}
    for split in held_out:
        buckets = HELD_OUT_BUCKETS[split]
        within = (bucket >= buckets.start) & (bucket < buckets.stop)
        trained &= ~within
        rows[split] = order[within[order]]
    return {"train": np.flatnonzero(trained), **rows}


def fixed_splits(
    hashes: np.ndarray, config: DataConfig, remedy: str, order_hashes: np.ndarray | None = None
) -> dict[Split, np.ndarray]:
    """Splits rows and keeps exactly as many held-out rows as the configuration asks for.

    Args:
        hashes: Result of ``text_hashes``; rows with the same hash share a split.
        config: Its ``validation_problems`` and ``test_problems`` are used.
        remedy: What the user can do to get more problems.
        order_hashes: Hashes that order the held-out rows, ``hashes`` by default.

    Returns:
        Row numbers by split. The rest of the held-out buckets is not used.

    Raises:
        ConfigError: for a held-out split with too few problems, or with none left to train on.
    """
    rows = hash_split(hashes, order_hashes)
    sizes: dict[Split, int] = {"validation": config.validation_problems, "test": config.test_problems}
    for split, wanted in sizes.items():
        if len(rows[split]) < wanted:
            raise ConfigError(
                f"config.data.{split}_problems: got {wanted}, wanted at most {len(rows[split])}: of {len(hashes)} "
                f"problems, that many belong to the {split} set. Lower data.{split}_problems or {remedy}."
            )
        rows[split] = rows[split][:wanted]
    if not len(rows["train"]):
        raise ConfigError(f"config.data: none of the {len(hashes)} problems is left to train on: {remedy}.")
    return rows


class LazyProblems(Sequence[Problem]):
    """Problems that are built from their row number at each access, so that a million of them need little memory.

    Attributes:
        longest: Position of a problem whose text no other one exceeds in length.
    """

    def __init__(self, rows: np.ndarray, build: Callable[[int], Problem], longest: int = 0):
        self._rows = rows
        self._build = build
        self.longest = longest

    def __len__(self) -> int:
        return len(self._rows)

    @typing.overload
    def __getitem__(self, index: int) -> Problem: ...
    @typing.overload
    def __getitem__(self, index: slice) -> list[Problem]: ...
    def __getitem__(self, index: int | slice) -> Problem | list[Problem]:
        if isinstance(index, slice):
            return [self._build(int(row)) for row in self._rows[index]]
        return self._build(int(self._rows[index]))
