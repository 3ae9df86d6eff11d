"""The last of a row of sizes that fits, found with few compilations."""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from grpo_jax.config import ConfigError
from grpo_jax.forensics.compiled import DoesNotFit, compiled
from grpo_jax.forensics.hardware import GIGABYTE, Topology
from grpo_jax.forensics.programs import Program

SEARCHES = ("tokens", "rows", "devices")
"""What can be searched for."""

LEAST_TOKENS, MOST_TOKENS, MOST_ROWS, MOST_GROWTH = 256, 2**20, 256, 4
"""Where searches end; devices grow so many times at most."""


class Point(NamedTuple):
    """What is compiled.

    Attributes:
        topology: Accelerators.
        tokens: Of a prompt and its completion.
        rows: Completions of a micro-batch in each shard of a batch.
    """

    topology: Topology
    tokens: int
    rows: int


class Candidate(NamedTuple):
    """An update that may fit.

    Attributes:
        program: The update.
        resident_bytes: What is held on each device while it runs.
    """

    program: Program
    resident_bytes: int


class Found(NamedTuple):
    """Outcome of a search.

    Attributes:
        best: The last size that fits, or None where none does.
        tried: Whether each size that was tried fits, in the order of trying.
    """

    best: int | None
    tried: dict[int, bool]


def last_fitting(sizes: Sequence[int], start: int, stride: int, fits: Callable[[int], bool]) -> Found:
    """Gallops from a size up or down, then halves what is between.

    Args:
        sizes: From the one that fits most easily to the one that fits hardest.
        start: The one to begin with.
        stride: How many sizes a gallop skips.
        fits: Whether a size fits; where one does, those before it do.

    Returns:
        The last that fits.
    """
    tried: dict[int, bool] = {}

    def ask(index: int) -> bool:
        size = sizes[index]
        if size not in tried:
            tried[size] = fits(size)
        return tried[size]

    good, bad = -1, len(sizes)
    index = sizes.index(start)
    if ask(index):
        good = index
        while good + 1 < bad:
            further = min(good + stride, len(sizes) - 1)
            if not ask(further):
                bad = further
                break
            good = further
    else:
        bad = index
        while bad > 0:
            nearer = max(bad - stride, 0)
            if ask(nearer):
                good = nearer
                break
            bad = nearer
    while good + 1 < bad:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if ask(middle) else (good, middle)
    return Found(sizes[good] if good >= 0 else None, tried)


def quarters(least: int, most: int, start: int) -> list[int]:
    """Sizes with four to an octave: 4, 5, 6, 7 times powers of two, and where to start.

    Args:
        least: The least, a power of two.
        most: None is larger.
        start: Joins them.

    Returns:
        Sizes in rising order.
    """
    sizes = {start}
    while least <= most:
        sizes |= {least * step // 4 for step in (4, 5, 6, 7) if least * step // 4 <= most}
        least *= 2
    return sorted(sizes)


def smaller_and_larger(topology: Topology, most_devices: int) -> list[Topology]:
    """Topologies of the same kind that can be had.

    Args:
        topology: One of them. GPU hosts stay as they are, but one alone may be used in part.
        most_devices: None has more.

    Returns:
        Topologies with rising numbers of devices.
    """
    if topology.hardware.platform == "cuda":
        hosts = {1, 2, 3, *quarters(4, most_devices, topology.grid[0])}
        size = topology.grid[1]
        grids = [(1, part) for part in range(1, size) if size % part == 0] + [(number, size) for number in hosts]
    else:
        # Tori grow by their shortest side.
        sides = [2, 2, 1] if len(topology.grid) == 3 else [2] * len(topology.grid)
        grids = [topology.grid]
        while math.prod(sides) <= most_devices:
            if math.prod(sides) != topology.devices:
                grids.append(tuple(sides))
            sides[max(index for index, side in enumerate(sides) if side == min(sides))] *= 2
    found = (Topology(topology.hardware, grid) for grid in grids)
    return sorted((one for one in found if one.devices <= most_devices), key=lambda one: one.devices)


def searched(
    wanted: Sequence[str] | None,
    start: Point,
    divides: Callable[[Topology], bool],
    lowered: Callable[[Point], Candidate],
) -> dict[str, Any]:
    """Finds the longest context, the most rows and the fewest devices whose update fits into the devices' memory.

    Args:
        wanted: Some of ``SEARCHES``; None for all.
        start: Where each search begins; the others keep its other sizes.
        divides: Whether the model divides over a topology.
        lowered: Makes the update.

    Returns:
        Outcome by what was searched for; ``tried`` says of each size whether it fits.

    Raises:
        ConfigError: for a search that there is not, or devices whose memory is not known.
    """
    topology, memory = start.topology, start.topology.hardware.memory_bytes
    if wanted is not None and not set(wanted) <= set(SEARCHES):
        raise ConfigError(f"--search_over: got {','.join(wanted)}, wanted some of {','.join(SEARCHES)}.")
    if not memory:
        raise ConfigError(f"--search: got {topology.name}, wanted devices whose memory is known, such as h100:8x8.")
    known: dict[Point, int | None] = {}

    def fits(point: Point) -> bool:
        if point not in known:
            known[point] = needed = _needed_bytes(lowered(point), point.topology)
            held = "more than there is" if needed is None else f"{needed / GIGABYTE:.2f} GB"
            print(f"{point.topology.name}, {point.tokens} tokens, {point.rows} rows per shard: {held}", file=sys.stderr)
        needed = known[point]
        return needed is not None and needed <= memory

    def longest() -> Found:
        sizes = quarters(LEAST_TOKENS, MOST_TOKENS, start.tokens)
        return last_fitting(sizes, start.tokens, 4, lambda tokens: fits(start._replace(tokens=tokens)))

    def most() -> Found:
        sizes = quarters(1, MOST_ROWS, start.rows)
        return last_fitting(sizes, start.rows, 2, lambda rows: fits(start._replace(rows=rows)))

    def fewest() -> Found:
        some = {one.devices: one for one in smaller_and_larger(topology, MOST_GROWTH * topology.devices)}
        sizes = [size for size, one in some.items() if one == topology or divides(one)][::-1]
        return last_fitting(sizes, topology.devices, 1, lambda size: fits(start._replace(topology=some[size])))

    searches: dict[str, Callable[[], Found]] = dict(zip(SEARCHES, (longest, most, fewest), strict=True))
    return {name: searches[name]()._asdict() for name in wanted or SEARCHES}


def _needed_bytes(candidate: Candidate, topology: Topology) -> int | None:
    """Bytes on each device, or None where the compiler refuses a program for its size."""
    try:
        return compiled(candidate.program, topology, candidate.resident_bytes).needed_bytes
    except DoesNotFit:
        return None
