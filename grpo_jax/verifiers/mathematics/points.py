"""Pseudo-random values for variables that depend on nothing but names and numbers."""

import fractions
import hashlib
from collections.abc import Iterator
from typing import Any

from grpo_jax.verifiers.mathematics.tree import Tree, free_symbols, integer_symbols

Fraction = fractions.Fraction

_MAX_POINTS = 36


def points(names: dict[str, bool], kind: str) -> Iterator[dict[str, Any]]:
    """Yields values for all variables.

    Args:
        names: Variables, and whether each stands for a positive integer.
        kind: ``real``, ``positive`` or ``complex``, for the other ones.

    Yields:
        A value for each variable.
    """
    for number in range(_MAX_POINTS):
        yield base_point(names, kind, number)


def base_point(names: dict[str, bool], kind: str, number: int) -> dict[str, Any]:
    """One of the points near zero.

    Args:
        names: As for ``points``.
        kind: As for ``points``.
        number: Which one.

    Returns:
        A value for each variable: integers up to 23, other ones of size less than 4.
    """
    point: dict[str, Any] = {}
    for name, integer in names.items():
        value = _rational(name, number)
        if integer:
            point[name] = Fraction(1 + (7 * number + int(_random(name, 0) * 23)) % 23)
        elif kind == "complex":
            point[name] = complex(float(value), float(_rational(name + " imaginary", number)))
        else:
            point[name] = abs(value) if kind == "positive" else value
    return point


def _rational(name: str, number: int) -> Fraction:
    """A value between -4 and 4, away from integers, that depends on nothing but its arguments."""
    sign = -1 if _random(name + " sign", number) < 0.4 else 1
    return sign * (Fraction(int(_random(name, number) * 395) + 1, 101) + Fraction(1, 997))


def _random(name: str, number: int) -> float:
    digest = hashlib.sha256(f"{name} {number}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def variables(left: Tree, right: Tree) -> dict[str, bool]:
    """The variables of two expressions.

    Args:
        left: One expression.
        right: The other one.

    Returns:
        Their names in order, and whether each stands for an integer.
    """
    integers = integer_symbols(left) | integer_symbols(right)
    return {name: name in integers for name in sorted(free_symbols(left) | free_symbols(right))}


def needed_points(names: dict[str, bool]) -> int:
    """Points that have to agree: integers are small, so that two expressions meet by chance at some of them."""
    return 12 if any(names.values()) else 5
