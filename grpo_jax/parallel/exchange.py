"""Plain values that the processes of a run tell each other, and work that they share out.

All processes call these functions in the same order. In a run of one process each is the identity.
"""

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from grpo_jax.config import ConfigError

Value = TypeVar("Value")


class FailedElsewhere(RuntimeError):  # noqa: N818
    """Another process cannot go on.

    Attributes:
        exit_status: That of the other process.
    """

    def __init__(self, process: int, message: str, exit_status: int) -> None:
        """Says which process it was, and why."""
        super().__init__(f"process {process}: {message}")
        self.exit_status = exit_status


def is_first() -> bool:
    """Whether this process writes the run's records."""
    return jax.process_index() == 0


def everyone(value: Any) -> list[Any]:
    """Tells all processes a JSON value.

    Args:
        value: What this process says.

    Returns:
        What each process says, in their order.
    """
    if jax.process_count() == 1:
        return [value]
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    lengths = multihost_utils.process_allgather(np.int32(len(text)))
    # Powers of two: few shapes, so few compilations.
    padded = np.zeros(1 << int(lengths.max()).bit_length(), np.uint8)
    padded[: len(text)] = text
    rows = multihost_utils.process_allgather(padded)
    return [json.loads(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True)]


def any_process(flag: bool) -> bool:
    """Whether the flag is set on any process."""
    return bool(np.any(multihost_utils.process_allgather(np.array(flag))))


def share(count: int) -> range:
    """Which of ``count`` things are this process's own: a run of neighbours, as many as the others have or one more."""
    index, processes = jax.process_index(), jax.process_count()
    return range(count * index // processes, count * (index + 1) // processes)


def joined(own: list[Any]) -> list[Any]:
    """Puts the JSON values of all shares behind each other."""
    return list(itertools.chain.from_iterable(everyone(own)))


def together(action: Callable[[], Value]) -> Value:
    """Does something on every process; where it fails on one, it fails on all.

    Args:
        action: What to do; no other process waits for it meanwhile.

    Returns:
        What it returned here.

    Raises:
        FailedElsewhere: with message and exit status of the first process that failed.
        Exception: what it raised here.
    """
    failure, value = None, None
    try:
        value = action()
    except Exception as error:
        failure = error
    told = None if failure is None else [str(failure), getattr(failure, "exit_status", 1)]
    failures = everyone(told)
    if failure is not None:
        raise failure
    for process, other in enumerate(failures):
        if other is not None:
            raise FailedElsewhere(process, *other)
    return value  # pyright: ignore[reportReturnType]  # there was no failure


def on_first(action: Callable[[], Any]) -> Any:
    """Does something on the first process alone and tells all of them the JSON value it returned; see ``together``."""
    return everyone(together(lambda: action() if is_first() else None))[0]


def require_same(facts: Mapping[str, Any]) -> None:
    """Refuses to go on where processes were started with different things.

    Args:
        facts: JSON values by name, to be the same on all processes.

    Raises:
        ConfigError: on every process, naming what differs, where, and both values.
    """
    first, *others = everyone(dict(facts))
    differences = [
        f"{name}: {first.get(name)!r} on process 0, {other.get(name)!r} on process {process}"
        for process, other in enumerate(others, start=1)
        for name in sorted(first.keys() | other.keys())
        if first.get(name) != other.get(name)
    ]
    if differences:
        raise ConfigError(
            "the processes of this run differ in\n  " + "\n  ".join(differences) + "\n"
            "Start all of them with the same command, files and versions."
        )
