"""The last of a row of sizes that fits, found with few compilations."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from grpo_jax.forensics.hardware import Topology


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
        topology: One of them. GPU hosts stay as they are.
        most_devices: None has more.

    Returns:
        Topologies with rising numbers of devices.
    """
    if topology.hardware.platform == "cuda":
        hosts = {1, 2, 3, *quarters(4, most_devices, topology.grid[0])}
        grids = [(number, topology.grid[1]) for number in hosts]
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
