"""Constant multiples of expressions, and the order of real numbers."""

from typing import Any

from grpo_jax.verifiers.mathematics.exact import exact_value
from grpo_jax.verifiers.mathematics.landmarks import differ_at_landmark, landmarks
from grpo_jax.verifiers.mathematics.limits import Budget, InexactError, TooLargeError, UndefinedError
from grpo_jax.verifiers.mathematics.numeric import DIGITS, approximate_value, context
from grpo_jax.verifiers.mathematics.points import needed_points, points, variables
from grpo_jax.verifiers.mathematics.probing import confirmation, evaluate_pair, same_number
from grpo_jax.verifiers.mathematics.tree import Tree, free_symbols

_FEWEST_POINTS = 3


def proportional(left: Tree, right: Tree, budget: Budget) -> int | None:
    """Whether one expression is a constant multiple of another one, neither of them zero everywhere.

    Args:
        left: One expression.
        right: The other one.
        budget: The work that is left.

    Returns:
        1 or -1, the sign of the constant; ``None`` if there is none or it is not real.

    Raises:
        TooLargeError: if the work is used up.
    """
    names = variables(left, right)
    for kind in ("real", "complex") if names else ("complex",):
        ratios: list[Any] = []
        for point in points(names, kind):
            try:
                evaluate_pair(left, right, DIGITS, budget, point, kind == "real", None)
                digits, tolerance = confirmation(budget)
                first, second = evaluate_pair(left, right, digits, budget, point, kind == "real", None)
            except (UndefinedError, TooLargeError, InexactError):
                continue
            zeros = [bool(abs(value) < tolerance) for value in (first, second)]
            if any(zeros) and (not all(zeros) or not names):
                return None
            if not any(zeros):
                ratios.append(first / second)
            if ratios and abs(ratios[-1] - ratios[0]) > abs(ratios[0]) * tolerance:
                return None
            if len(ratios) >= needed_points(names):
                break
        if len(ratios) >= (_FEWEST_POINTS if names else 1):
            return (
                _sign(ratios[0]) if _same_ratio_at_landmarks(left, right, ratios[0], kind == "real", budget) else None
            )
    return None


def _same_ratio_at_landmarks(left: Tree, right: Tree, ratio: Any, real: bool, budget: Budget) -> bool:
    own = context(DIGITS)

    def differ(point: dict[str, Any], part: Budget) -> bool:
        try:
            first, second = evaluate_pair(left, right, DIGITS, part, point, real, None)
        except InexactError:
            return False
        scale = max(abs(first), abs(second * ratio))
        return bool(abs(first - second * ratio) > scale * own.mpf(10) ** -10 and scale > 1e-20)

    names = variables(left, right)
    return not differ_at_landmark(landmarks(left, right, names, positive=False), differ, budget)


def _sign(ratio: Any) -> int | None:
    own = context(DIGITS)
    if abs(own.im(ratio)) > abs(ratio) * own.mpf(10) ** -30:
        return None
    return 1 if own.re(ratio) > 0 else -1


def order(left: Tree, right: Tree, budget: Budget) -> int:
    """Orders two real numbers.

    Args:
        left: One number.
        right: The other one.
        budget: The work that is left.

    Returns:
        -1, 0 or 1.

    Raises:
        InexactError: if one of them has variables, or is not real.
        TooLargeError: if one of them cannot be evaluated within the budget.
        UndefinedError: if one of them has no value.
    """
    try:
        values = [exact_value(tree, budget) for tree in (left, right)]
    except InexactError:
        if free_symbols(left) or free_symbols(right):
            raise
        if same_number(left, right, budget, {}, False, None):
            return 0
        digits, _ = confirmation(budget)
        values = [approximate_value(tree, digits, budget) for tree in (left, right)]
        if any(context(digits).im(value) != 0 for value in values):
            raise InexactError("not real") from None
    return (values[0] > values[1]) - (values[0] < values[1])
