"""Equations and inequalities: equal up to a constant factor, a swap of sides, and the order of a chain."""

import itertools
from collections.abc import Callable

from grpo_jax.verifiers.mathematics.answers import Answer, Expression, Relation
from grpo_jax.verifiers.mathematics.collections import same_items
from grpo_jax.verifiers.mathematics.limits import Budget
from grpo_jax.verifiers.mathematics.ordering import proportional
from grpo_jax.verifiers.mathematics.regions import region_of, same_region
from grpo_jax.verifiers.mathematics.tree import Apply, Tree

_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_SYMMETRIC = frozenset(("=", "!=", "approx", "sim", "cong", "equiv", "perp", "parallel", "iff"))

Equal = Callable[[Answer, Answer], bool]


def same_relation(left: Relation, right: Relation, equal: Equal, budget: Budget) -> bool:
    """Whether two relations say the same.

    Args:
        left: One relation.
        right: The other one.
        equal: Compares two sides.
        budget: The work that is left.

    Returns:
        ``True`` if the sides are equal one by one (or swapped), if the difference of the sides of the
        one is a constant multiple of the other's, or if both describe the same set of a variable.
    """
    if left.operators == right.operators and all(map(equal, left.sides, right.sides)):
        return True
    if tuple(reversed([_mirror(sign) for sign in left.operators])) == right.operators and all(
        map(equal, reversed(left.sides), right.sides)
    ):
        return True
    if left.name is not None and right.name is not None and left.name != right.name and len(left.operators) == 1:
        # y = 2x + 3 and 2x - y + 3 = 0 may still be one equation, x = 5 and y = 5 are not.
        return _proportional(left, right, budget)
    regions = region_of(left), region_of(right)
    if regions[0] is not None and regions[1] is not None and "=" not in left.operators:
        same_variable = regions[0].variable == regions[1].variable
        if same_variable and same_region(regions[0].region, regions[1].region, budget):
            return True
    return _proportional(left, right, budget)


def _mirror(sign: str) -> str:
    return sign if sign in _SYMMETRIC else _MIRRORED.get(sign, f"mirrored {sign}")


def _proportional(left: Relation, right: Relation, budget: Budget) -> bool:
    steps = _steps(left), _steps(right)
    if steps[0] is None or steps[1] is None or len(steps[0]) != len(steps[1]):
        return False

    def equal(a: tuple[Tree, str], b: tuple[Tree, str]) -> bool:
        if a[1] != b[1]:
            return False
        sign = proportional(a[0], b[0], budget)
        return sign is not None and (sign > 0 or a[1] in ("=", "!="))

    return same_items(steps[0], steps[1], equal)


def _steps(relation: Relation) -> list[tuple[Tree, str]] | None:
    """Every step of a chain as ``difference = 0``, ``!= 0``, ``< 0`` or ``<= 0``."""
    steps = []
    for (before, after), operator in zip(itertools.pairwise(relation.sides), relation.operators, strict=True):
        if not isinstance(before, Expression) or not isinstance(after, Expression):
            return None
        low, high, sign = before.tree, after.tree, operator
        if operator in (">", ">="):
            low, high, sign = high, low, _MIRRORED[operator]
        if sign not in ("=", "!=", "<", "<="):
            return None
        steps.append((Apply("add", (low, Apply("neg", (high,)))), sign))
    return steps


def constant_equation(equation: Relation, equal: Equal) -> bool:
    """Whether all sides after the first of ``x = 2 + 3 = 5`` agree."""
    values = equation.sides[1:]
    return all(equal(before, after) for before, after in itertools.pairwise(values))
