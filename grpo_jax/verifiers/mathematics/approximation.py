"""Whether a written decimal is an approximation of a number that no finite decimal equals."""

import fractions

from grpo_jax.verifiers.mathematics.answers import written_decimal
from grpo_jax.verifiers.mathematics.exact import exact_value
from grpo_jax.verifiers.mathematics.limits import Budget, InexactError, TooLargeError, UndefinedError
from grpo_jax.verifiers.mathematics.numeric import DIGITS, approximate_value, context
from grpo_jax.verifiers.mathematics.tree import Tree, free_symbols


def approximates(left: Tree, right: Tree, digits: int, budget: Budget) -> bool:
    """Whether one is a decimal of enough digits that rounds, or cuts, the other one.

    Args:
        left: One number.
        right: The other one.
        digits: The fewest significant digits; 0 if no approximation counts.
        budget: The work that is left.

    Returns:
        ``True`` only if exactly one of the two is a written decimal, and the other is irrational or
        has an infinite decimal expansion.
    """
    decimals = written_decimal(left), written_decimal(right)
    if digits == 0 or (decimals[0] is None) == (decimals[1] is None):
        return False
    decimal, other = (decimals[0], right) if decimals[0] is not None else (decimals[1], left)
    if decimal is None or decimal.digits is None or decimal.digits < digits or free_symbols(other):
        return False
    step = _last_place(decimal.value, decimal.digits)
    try:
        excess = _value(other, budget) - decimal.value
    except (InexactError, TooLargeError, UndefinedError):
        return False
    # Rounded to the nearest, or cut: then the number lies further from zero than the decimal.
    return abs(excess) * 2 <= step or 0 <= (excess if decimal.value > 0 else -excess) < step


def _last_place(value: fractions.Fraction, digits: int) -> fractions.Fraction:
    """The unit of the last significant digit."""
    size, place = abs(value), fractions.Fraction(1)
    for _ in range(4_000):
        if size >= place * 10:
            place *= 10
        elif size < place:
            place /= 10
        else:
            break
    return place * fractions.Fraction(10) ** (1 - digits)


def _value(tree: Tree, budget: Budget) -> fractions.Fraction:
    try:
        exact = exact_value(tree, budget)
    except InexactError:
        number = approximate_value(tree, DIGITS, budget)
        own = context(DIGITS)
        if own.im(number) != 0 or abs(own.mag(number)) > 10_000:
            raise
        sign, mantissa, exponent, _ = own.re(number)._mpf_
        return (-1) ** sign * fractions.Fraction(mantissa) * fractions.Fraction(2) ** exponent
    denominator = exact.denominator
    for factor in (2, 5):
        while denominator % factor == 0:
            denominator //= factor
    if denominator == 1:
        raise InexactError("a finite decimal")
    return exact
