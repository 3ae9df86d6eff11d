"""What one answer says and another one leaves to convention: variables in order, half of the day, a constant's name."""

from collections.abc import Sequence

from grpo_jax.verifiers.mathematics.answers import Answer, Interval, Ratio, RealSet, Relation, SetOperation, Text
from grpo_jax.verifiers.mathematics.tree import (
    Apply,
    Number,
    Symbol,
    Tree,
    describe,
    free_symbols,
    is_infinite,
    renamed,
)


def values_by_name(items: Sequence[Answer]) -> list[Answer] | None:
    """The values of ``x = 1, y = 2`` as the tuple ``(1, 2)`` has them.

    Args:
        items: The elements of a list.

    Returns:
        The values in the order of their variables; ``None`` unless each is an equation of another variable.
    """
    named = {
        item.name: item.sides[1]
        for item in items
        if isinstance(item, Relation) and item.name is not None and item.operators == ("=",)
    }
    if len(named) != len(items) or any(len(name.partition("_")[0]) != 1 for name in named):
        return None
    return [named[name] for name in sorted(named)]


def without_half(clock: Ratio, text: Text) -> bool:
    """Whether ``9:45`` is the time of a text such as ``9:45 am`` but for the half of the day."""
    parts = [describe(part).zfill(2) for part in clock.parts]
    time, _, half = text.words.partition(" ")
    return clock.clock and half in ("am", "pm") and [part.zfill(2) for part in time.split(":")] == [*parts, "00"][:3]


def same_integration_constant(left: Tree, right: Tree) -> Tree | None:
    """The left tree with the name that the right one gives to the constant of integration.

    Args:
        left: One expression, such as ``x^2 + C``.
        right: The other one, such as ``x^2 + c``.

    Returns:
        ``x^2 + c``; ``None`` if not exactly one of them adds ``C`` and the other one ``c``.
    """
    for old, new in (("C", "c"), ("c", "C")):
        own = old not in free_symbols(right) and new not in free_symbols(left)
        if own and _adds(left, old) and _adds(right, new):
            return renamed(left, old, new)
    return None


def _adds(tree: Tree, name: str) -> bool:
    return isinstance(tree, Apply) and tree.operation == "add" and tree.arguments[-1] == Symbol(name)


def outside(sets: Sequence[RealSet]) -> RealSet | None:
    """The union that ``x < 1, x > 2`` means: nothing lies in both half-lines.

    Args:
        sets: The sets that the parts of a list describe.

    Returns:
        The union of two half-lines of one variable that lie apart, else ``None``.
    """
    if len(sets) != 2 or sets[0].variable != sets[1].variable:
        return None
    for first, second in (sets, sets[::-1]):
        match first.region, second.region:
            case Interval(low, Number(end)), Interval(Number(start), high) if (
                is_infinite(low) < 0 < is_infinite(high) and end <= start
            ):
                return RealSet(SetOperation("union", first.region, second.region), sets[0].variable)
    return None
