"""Matching the elements of two lists or sets in any order."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from grpo_jax.verifiers.mathematics.limits import MAX_UNORDERED_ITEMS

Item = TypeVar("Item")


def same_items(
    left: Sequence[Item],
    right: Sequence[Item],
    equal: Callable[[Item, Item], bool],
    as_sets: bool = False,
) -> bool:
    """Whether two collections hold the same elements.

    Args:
        left: One collection.
        right: The other one.
        equal: Whether two elements are equal.
        as_sets: Whether repeated elements count once.

    Returns:
        The verdict; ``False`` beyond ``MAX_UNORDERED_ITEMS`` elements unless they are in the same order.
    """
    if max(len(left), len(right)) > MAX_UNORDERED_ITEMS:
        return len(left) == len(right) and all(map(equal, left, right))
    if as_sets:
        return all(any(equal(a, b) for b in right) for a in left) and all(any(equal(a, b) for a in left) for b in right)
    if len(left) != len(right):
        return False
    unmatched = list(right)
    for item in left:
        match = next((index for index, other in enumerate(unmatched) if equal(item, other)), None)
        if match is None:
            return False
        unmatched.pop(match)
    return True
