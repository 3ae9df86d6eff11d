"""Whether two expressions are equal: exactly where they are rational, else by probing at pseudo-random points."""

import enum
import fractions
from collections.abc import Callable
from typing import Any

from grpo_jax.verifiers.mathematics.exact import exact_value
from grpo_jax.verifiers.mathematics.landmarks import differ_at_landmark, landmarks
from grpo_jax.verifiers.mathematics.limits import Budget, InexactError, TooLargeError, UndefinedError
from grpo_jax.verifiers.mathematics.numeric import DIGITS, approximate_value, context
from grpo_jax.verifiers.mathematics.points import needed_points, points, variables
from grpo_jax.verifiers.mathematics.tree import (
    Number,
    Symbol,
    Tree,
    has_constant,
    has_operation,
)

Fraction = fractions.Fraction
_NO_VALUE = (UndefinedError, TooLargeError, InexactError)

CONFIRMING_DIGITS = 300
"""Decimal digits of the one that confirms an equality."""


class Outcome(enum.Enum):
    """What a comparison of two expressions found."""

    EQUAL = "equal"
    DIFFERENT = "not equal"
    UNDEFINED = "undefined"
    TOO_LARGE = "too large to evaluate"
    UNKNOWN = "cannot be compared"


def compare(left: Tree, right: Tree, budget: Budget) -> Outcome:
    """Decides whether two expressions have the same value.

    With variables, they are equal if they agree wherever both have a real value; complex points are
    probed only if they hold the imaginary unit or too few real points are left.

    Args:
        left: One expression.
        right: The other one.
        budget: The work that is left.

    Returns:
        The outcome; anything but ``EQUAL`` means that they are not known to be equal.
    """
    if left == right and isinstance(left, Symbol | Number):
        return Outcome.EQUAL
    names = variables(left, right)
    if not names:
        return _compare_constants(left, right, budget)
    outcome = _compare_rational(left, right, names, budget)
    if outcome is None:
        outcome = _compare_functions(left, right, names, budget)
    return outcome


def _compare_constants(left: Tree, right: Tree, budget: Budget) -> Outcome:
    try:
        values = [exact_value(tree, budget) for tree in (left, right)]
        return Outcome.EQUAL if values[0] == values[1] else Outcome.DIFFERENT
    except UndefinedError:
        return Outcome.UNDEFINED
    except (TooLargeError, InexactError):
        pass
    outcome = _attempt(lambda: same_number(left, right, budget, {}, False, None))
    if outcome is Outcome.DIFFERENT and (has_operation(left, "log") or has_operation(right, "log")):
        # A plain log is natural or decimal; both are in use.
        outcome = _attempt(lambda: same_number(left, right, budget, {}, False, 10))
    return outcome


def _attempt(decide: Callable[[], bool]) -> Outcome:
    try:
        return Outcome.EQUAL if decide() else Outcome.DIFFERENT
    except UndefinedError:
        return Outcome.UNDEFINED
    except TooLargeError:
        return Outcome.TOO_LARGE
    except InexactError:
        return Outcome.UNKNOWN


def same_number(
    left: Tree,
    right: Tree,
    budget: Budget,
    values: dict[str, Any],
    real: bool,
    log_base: int | None,
) -> bool:
    """Whether two expressions have the same value at one point.

    Args:
        left: One expression.
        right: The other one.
        budget: The work that is left.
        values: The value of each variable.
        real: Whether a root or logarithm of a negative number has no value.
        log_base: Base of a plain ``log``; ``None`` stands for e.

    Returns:
        ``True`` if they agree to at least 200 digits beyond all sizes in them, or both are zero.
    """
    seemingly = _seem_equal(evaluate_pair(left, right, DIGITS, budget, values, real, log_base))
    if seemingly is False:
        return False
    digits, tolerance = confirmation(budget)
    confirmed = evaluate_pair(left, right, digits, budget, values, real, log_base)
    sizes = [abs(value) for value in confirmed]
    if min(sizes) < tolerance:
        return bool(max(sizes) < tolerance)
    return bool(abs(confirmed[0] - confirmed[1]) <= max(sizes) * tolerance)


def _seem_equal(pair: tuple[Any, Any]) -> bool | None:
    """A clear equality or difference of a first evaluation; ``None`` if cancellation may have eaten its digits."""
    scale = max(map(abs, pair))
    if min(map(abs, pair)) <= 1e-20:
        return None if scale else True
    return bool(abs(pair[0] - pair[1]) <= scale * context(DIGITS).mpf(10) ** -10)


def confirmation(budget: Budget) -> tuple[int, Any]:
    """How precisely an equality has to be confirmed: the more so, the larger or smaller the numbers in it are.

    Args:
        budget: Knows the sizes of the numbers so far.

    Returns:
        Decimal digits to compute with, and the largest relative difference (or size of a zero) that is
        rounding error.
    """
    peak_digits = budget.peak_bits * 3 // 10 + 1
    digits = CONFIRMING_DIGITS
    while digits < CONFIRMING_DIGITS - 50 + 3 * peak_digits:
        digits *= 2
    return digits, context(digits).mpf(10) ** -(CONFIRMING_DIGITS - 100 + 2 * peak_digits)


def evaluate_pair(
    left: Tree,
    right: Tree,
    digits: int,
    budget: Budget,
    values: dict[str, Any],
    real: bool,
    log_base: int | None,
) -> tuple[Any, Any]:
    """Evaluates both expressions at one point; the arguments are those of ``same_number``."""
    own = context(digits)
    numbers = {name: _in_context(own, value) for name, value in values.items()}
    return (
        approximate_value(left, digits, budget, numbers, real, log_base),
        approximate_value(right, digits, budget, numbers, real, log_base),
    )


def _in_context(own: Any, value: Any) -> Any:
    if isinstance(value, complex):
        return own.mpc(value.real, value.imag)
    return own.mpf(value.numerator) / value.denominator


def _compare_rational(left: Tree, right: Tree, names: dict[str, bool], budget: Budget) -> Outcome | None:
    """Exact comparison at rational points; ``None`` if one of the expressions is not rational there."""
    agreed = 0
    for point in points(names, "real"):
        try:
            if exact_value(left, budget, point) != exact_value(right, budget, point):
                return Outcome.DIFFERENT
        except UndefinedError:
            continue
        except (InexactError, TooLargeError):
            return None
        agreed += 1
        if agreed >= needed_points(names):
            return _exactly_equal_at_landmarks(left, right, names, budget)
    return Outcome.UNDEFINED


def _exactly_equal_at_landmarks(left: Tree, right: Tree, names: dict[str, bool], budget: Budget) -> Outcome | None:
    def differ(point: dict[str, Any], part: Budget) -> bool:
        return exact_value(left, part, point) != exact_value(right, part, point)

    try:
        different = differ_at_landmark(landmarks(left, right, names, positive=False), differ, budget)
    except InexactError:
        return None
    except TooLargeError:
        return Outcome.TOO_LARGE
    return Outcome.DIFFERENT if different else Outcome.EQUAL


def _compare_functions(left: Tree, right: Tree, names: dict[str, bool], budget: Budget) -> Outcome:
    uses_complex = has_constant(left, "i") or has_constant(right, "i")
    has_log = has_operation(left, "log") or has_operation(right, "log")
    outcome = Outcome.UNDEFINED
    for kind in ("complex",) if uses_complex else ("real", "positive", "complex"):
        # A plain log is natural or decimal; both are in use.
        for log_base in (None, 10) if has_log else (None,):
            found = _probe(left, right, names, budget, kind, log_base)
            if found is Outcome.EQUAL:
                return found
            if found is Outcome.DIFFERENT:
                outcome = found
        if outcome is Outcome.DIFFERENT:
            return outcome
        if found is not Outcome.UNDEFINED:
            outcome = found
    return outcome


def _probe(left: Tree, right: Tree, names: dict[str, bool], budget: Budget, kind: str, log_base: int | None) -> Outcome:
    agreed, outcome = 0, Outcome.UNDEFINED
    for point in points(names, kind):
        try:
            if not same_number(left, right, budget, point, kind != "complex", log_base):
                return Outcome.DIFFERENT
        except TooLargeError:
            outcome = Outcome.TOO_LARGE
            continue
        except (UndefinedError, InexactError):
            continue
        agreed += 1
        if agreed >= needed_points(names):
            return _equal_at_landmarks(left, right, names, budget, kind, log_base)
    return outcome


def _equal_at_landmarks(
    left: Tree, right: Tree, names: dict[str, bool], budget: Budget, kind: str, log_base: int | None
) -> Outcome:
    real = kind != "complex"

    def differ(point: dict[str, Any], part: Budget) -> bool:
        try:
            equal = _seem_equal(evaluate_pair(left, right, DIGITS, part, point, real, log_base))
            if equal is None:
                equal = same_number(left, right, part, point, real, log_base)
        except InexactError:
            return False
        return not equal

    try:
        different = differ_at_landmark(landmarks(left, right, names, kind == "positive"), differ, budget)
    except TooLargeError:
        return Outcome.TOO_LARGE
    return Outcome.DIFFERENT if different else Outcome.EQUAL
