"""Points far from the origin and around the constants of expressions, where a case distinction may change its case.

Polynomials, quotients and entire functions that agree on a small interval agree everywhere. Absolute values, even
roots, maxima, rounding and remainders do not: ``|x + 5|`` is ``x + 5`` near zero.
"""

import fractions
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from grpo_jax.verifiers.mathematics.exact import exact_value
from grpo_jax.verifiers.mathematics.limits import MAX_WORK, Budget, InexactError, TooLargeError, UndefinedError
from grpo_jax.verifiers.mathematics.numeric import DIGITS, approximate_value, context
from grpo_jax.verifiers.mathematics.points import base_point
from grpo_jax.verifiers.mathematics.tree import Apply, Number, Tree, free_symbols, has_operation, walk

Fraction = fractions.Fraction

_CASES = (
    *("abs", "floor", "ceil", "min", "max", "sqrt", "cbrt", "root", "mod", "gcd", "lcm", "factorial"),
    *("double factorial", "binom", "arcsin", "arccos", "arctan", "arccot", "arcsec", "arccsc", "arccosh"),
)
_MAGNITUDES = tuple(Fraction(*pair) for pair in ((37, 7), (97, 3), (100_003, 11), (10**9 + 7, 3), (1, 997), (3, 10**7)))
_INTEGERS = (24, 30, 97, 210, 1_009, 1_000_003)
_LARGEST = 10**12
_MAX_CONSTANTS = 6
_MAX_PAIRED = 4
_MAX_POINTS = 64
_WORK_AT_POINT = MAX_WORK // 100


def landmarks(left: Tree, right: Tree, names: dict[str, bool], positive: bool) -> Iterator[dict[str, Any]]:
    """Yields values for all variables; none if no case is distinguished.

    Args:
        left: One expression.
        right: The other one.
        names: Variables, and whether each stands for a positive integer.
        positive: Whether only positive values are wanted.

    Yields:
        A value for each variable, at most ``_MAX_POINTS`` times.
    """
    if not any(names.values()) and not any(map(_distinguishes_cases, (left, right))):
        return
    constants = _constants(left, right)
    reals, integers = _reals(constants), _integers(constants)
    number = 0
    for index in range(max(len(reals), len(integers))):
        for name in names:
            if number >= _MAX_POINTS:
                return
            # The other variables are near zero at one point and anywhere at the next one.
            point = base_point(names, "real", number)
            for place, other in enumerate(names):
                if other == name or number % 2:
                    values: list[Any] = integers if names[other] else reals
                    point[other] = values[(index + 7 * (0 if other == name else place + 1)) % len(values)]
            yield {other: abs(value) for other, value in point.items()} if positive else point
            number += 1


def differ_at_landmark(
    candidates: Iterator[dict[str, Any]], differ: Callable[[dict[str, Any], Budget], bool], budget: Budget
) -> bool:
    """Whether two expressions differ at one of these points.

    Args:
        candidates: The points.
        differ: Compares at one point with the work that is given to it.
        budget: The work that is left.

    Returns:
        ``True`` at the first difference; points without a value, or with too large ones, do not count.

    Raises:
        TooLargeError: if the work is used up.
        InexactError: if ``differ`` cannot compare.
    """
    for point in candidates:
        part = Budget(_WORK_AT_POINT)
        try:
            if differ(point, part):
                return True
        except (UndefinedError, TooLargeError):
            pass
        finally:
            budget.left -= _WORK_AT_POINT - max(part.left, 0)
        budget.charge(0)
    return False


def _distinguishes_cases(tree: Tree) -> bool:
    if has_operation(tree, *_CASES):
        return True
    return any(
        isinstance(node, Apply)
        and node.operation == "pow"
        and not (isinstance(node.arguments[1], Number) and node.arguments[1].value.denominator == 1)
        for node in walk(tree)
    )


def _constants(left: Tree, right: Tree) -> list[Fraction]:
    """The sizes of the parts without variables, zero excluded."""
    found: dict[Fraction, None] = {}
    budget = Budget(_WORK_AT_POINT)
    for node in itertools.chain(walk(left), walk(right)):
        if len(found) >= _MAX_CONSTANTS or budget.left < 0:
            break
        if free_symbols(node):
            continue
        try:
            value = abs(_value(node, budget))
        except (InexactError, TooLargeError, UndefinedError):
            continue
        if Fraction(1, _LARGEST) < value < _LARGEST:
            found[value] = None
    return list(found)


def _value(tree: Tree, budget: Budget) -> Fraction:
    try:
        return exact_value(tree, budget)
    except InexactError:
        own = context(DIGITS)
        value = approximate_value(tree, DIGITS, budget)
        if own.im(value) != 0 or own.mag(value) > 100:
            raise
        return Fraction(float(own.re(value)))


def _reals(constants: list[Fraction]) -> list[Fraction]:
    below, beyond, far = Fraction(996, 997), Fraction(102, 101), Fraction(17, 13)
    pairs = list(itertools.permutations(constants[:_MAX_PAIRED], 2))
    sizes = [*_MAGNITUDES]
    sizes += [size * factor for factor in (beyond, below, far) for size in constants]
    sizes += [a / b * beyond for a, b in pairs]
    sizes += [(a + b) * beyond for a, b in pairs if a < b] + [(b - a) * beyond for a, b in pairs if a < b]
    return [sign * size for size in dict.fromkeys(sizes) for sign in (1, -1)]


def _integers(constants: list[Fraction]) -> list[Fraction]:
    whole = [int(value) for value in constants if value.denominator == 1]
    near = [value + step for step in (0, 1, -1) for value in whole] + [2 * value + 1 for value in whole]
    near += [a + b for a, b in itertools.combinations(whole, 2)] + [a * b for a, b in itertools.combinations(whole, 2)]
    return [Fraction(value) for value in dict.fromkeys([*_INTEGERS, *near]) if value > 0]
