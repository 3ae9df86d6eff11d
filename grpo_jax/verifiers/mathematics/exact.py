"""Exact rational evaluation, with the size of every result estimated before it is built."""

import fractions
import math
from collections.abc import Mapping

from grpo_jax.verifiers.mathematics.limits import (
    MAX_BITS,
    MAX_FACTORIAL,
    MAX_TERMS,
    Budget,
    InexactError,
    TooLargeError,
    UndefinedError,
)
from grpo_jax.verifiers.mathematics.tree import Apply, Number, Symbol, Tree

Fraction = fractions.Fraction

# What a unit of the budget, about a microsecond, is enough for.
_BIT_PRODUCTS_PER_UNIT = 400_000
_FACTORIAL_PRODUCTS_PER_UNIT = 50_000
_BINOMIAL_PRODUCTS_PER_UNIT = 20_000
_NEWTON_STEPS = 20


def exact_value(tree: Tree, budget: Budget, values: Mapping[str, Fraction] | None = None) -> Fraction:
    """Evaluates a tree to a rational number.

    Args:
        tree: The expression.
        budget: The work that is left.
        values: A value for each of its variables.

    Returns:
        The exact value.

    Raises:
        InexactError: if it is irrational or not known to be rational.
        TooLargeError: if it would take more than ``MAX_BITS`` bits or too much work.
        UndefinedError: if it has no value.
    """
    return _Evaluation(budget, values or {}).value(tree)


class _Evaluation:
    def __init__(self, budget: Budget, values: Mapping[str, Fraction]) -> None:
        self._budget = budget
        self._values = dict(values)

    def value(self, tree: Tree) -> Fraction:
        if isinstance(tree, Number):
            return tree.value
        if isinstance(tree, Symbol):
            if tree.name not in self._values:
                raise InexactError("a variable")
            return self._values[tree.name]
        if not isinstance(tree, Apply):
            raise InexactError("irrational")
        if tree.operation in ("sum", "prod"):
            return self._series(tree)
        self._budget.charge(2)
        arguments = [self.value(argument) for argument in tree.arguments]
        return self._apply(tree.operation, arguments)

    def _apply(self, operation: str, arguments: list[Fraction]) -> Fraction:
        match operation, arguments:
            case "add", _:
                return self._fold(arguments, product=False)
            case "mul", _:
                return self._fold(arguments, product=True)
            case "neg", [value]:
                return -value
            case "div", [numerator, denominator]:
                if denominator == 0:
                    raise UndefinedError("division by zero")
                self._charge_product(numerator, denominator)
                return self._bounded(numerator / denominator)
            case "pow", [base, exponent]:
                return self._power(base, exponent)
            case (("sqrt" | "cbrt" | "root"), [value, *index]):
                return self._root(value, index[0] if index else Fraction(2 if operation == "sqrt" else 3))
        # Division and the greatest common divisor take time that is quadratic in the bits.
        self._budget.charge(sum(map(_bits, arguments)) ** 2 // (4 * _BIT_PRODUCTS_PER_UNIT))
        return self._function(operation, arguments)

    def _fold(self, arguments: list[Fraction], product: bool) -> Fraction:
        result = arguments[0]
        for argument in arguments[1:]:
            result = self._combined(result, argument, product)
        return result

    def _combined(self, left: Fraction, right: Fraction, product: bool) -> Fraction:
        if product:
            self._charge_product(left, right)
            return self._bounded(left * right)
        below = [value.denominator.bit_length() for value in (left, right)]
        self._budget.charge((below[0] * _bits(right) + below[1] * _bits(left)) // _BIT_PRODUCTS_PER_UNIT)
        self._budget.charge(1 + (_bits(left) + _bits(right)) // 500)
        return self._bounded(left + right)

    def _charge_product(self, left: Fraction, right: Fraction) -> None:
        sizes = _bits(left), _bits(right)
        self._budget.charge(1 + sum(sizes) // 500 + sizes[0] * sizes[1] // _BIT_PRODUCTS_PER_UNIT)

    def _bounded(self, value: Fraction) -> Fraction:
        if _bits(value) > MAX_BITS:
            raise TooLargeError("number too large")
        return value

    def _power(self, base: Fraction, exponent: Fraction) -> Fraction:
        if exponent.denominator != 1:
            root = self._perfect_root(base, exponent.denominator)
            return self._power(root, Fraction(exponent.numerator))
        power = exponent.numerator
        if base == 0:
            if power <= 0:
                raise UndefinedError("a power of zero")
            return base
        if base in (1, -1):
            return base if power % 2 else Fraction(1)
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        # A number of n bits is at least 2^(n-1).
        if abs(power).bit_length() > 20 or bits * abs(power) > MAX_BITS:
            raise TooLargeError("number too large")
        self._budget.charge(1 + bits * abs(power) // 500 + (bits * abs(power)) ** 2 // (8 * _BIT_PRODUCTS_PER_UNIT))
        return self._bounded(base**power)

    def _root(self, value: Fraction, index: Fraction) -> Fraction:
        if index.denominator != 1 or index <= 0:
            raise InexactError("irrational")
        if value < 0 and index.numerator % 2:
            return -self._perfect_root(-value, index.numerator)
        return self._perfect_root(value, index.numerator)

    def _perfect_root(self, value: Fraction, index: int) -> Fraction:
        if value < 0 or index > 64:
            raise InexactError("irrational")
        steps = 1 if index == 2 else _NEWTON_STEPS
        self._budget.charge(1 + steps * _bits(value) ** 2 // _BIT_PRODUCTS_PER_UNIT)
        return Fraction(_integer_root(value.numerator, index), _integer_root(value.denominator, index))

    def _series(self, tree: Apply) -> Fraction:
        variable, first, last, term = tree.arguments
        start, end = self.value(first), self.value(last)
        if start.denominator != 1 or end.denominator != 1 or not isinstance(variable, Symbol):
            raise InexactError("a sum with bounds that are no integers")
        if end - start >= MAX_TERMS:
            raise TooLargeError("too many terms")
        outer = self._values
        result = Fraction(tree.operation == "prod")
        for number in range(int(start), int(end) + 1):
            self._budget.charge(2)
            self._values = {**outer, variable.name: Fraction(number)}
            value = self.value(term)
            result = self._combined(result, value, tree.operation == "prod")
        self._values = outer
        return result

    def _function(self, operation: str, arguments: list[Fraction]) -> Fraction:
        match operation, arguments:
            case (("factorial" | "double factorial"), [value]):
                step = 1 if operation == "factorial" else 2
                self._budget.charge(min(int(abs(value)), MAX_FACTORIAL) ** 2 * step // _FACTORIAL_PRODUCTS_PER_UNIT)
                return _factorial(value, step)
            case "binom", [total, chosen] if 0 <= chosen <= total:
                fewer = int(min(chosen, total - chosen, MAX_BITS))
                self._budget.charge(fewer * min(int(total), MAX_BITS) // _BINOMIAL_PRODUCTS_PER_UNIT)
        return _function(operation, arguments)


def _bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()


def _integer_root(number: int, index: int) -> int:
    if index == 2:
        root = math.isqrt(number)
    elif number < 2:
        root = number
    else:
        # Newton's method from above.
        root = 1 << -(-number.bit_length() // index)
        while True:
            smaller = ((index - 1) * root + number // root ** (index - 1)) // index
            if smaller >= root:
                break
            root = smaller
    if root**index != number:
        raise InexactError("irrational")
    return root


def _function(operation: str, arguments: list[Fraction]) -> Fraction:
    match operation, arguments:
        case "abs", [value]:
            return abs(value)
        case "floor", [value]:
            return Fraction(math.floor(value))
        case "ceil", [value]:
            return Fraction(math.ceil(value))
        case (("min" | "max"), _):
            return (min if operation == "min" else max)(arguments)
    if operation not in ("binom", "gcd", "lcm", "mod") or any(argument.denominator != 1 for argument in arguments):
        raise InexactError("not rational")
    return Fraction(_integer_function(operation, [argument.numerator for argument in arguments]))


def _integer_function(operation: str, integers: list[int]) -> int:
    match operation, integers:
        case "binom", [total, chosen]:
            return _binomial(total, chosen)
        case "mod", [number, modulus] if modulus > 0:
            return number % modulus
        case "gcd", _:
            return math.gcd(*integers)
        case "lcm", _ if sum(integer.bit_length() for integer in integers) < MAX_BITS:
            return math.lcm(*integers)
    raise InexactError("not rational")


def _factorial(value: Fraction, step: int) -> Fraction:
    if value.denominator != 1:
        raise InexactError("not an integer")
    if value < 0:
        raise UndefinedError("factorial of a negative number")
    if value > MAX_FACTORIAL:
        raise TooLargeError("number too large")
    return Fraction(math.factorial(int(value)) if step == 1 else math.prod(range(int(value), 0, -2)))


def _binomial(total: int, chosen: int) -> int:
    if not chosen >= 0 or total < 0:
        raise InexactError("not a plain binomial")
    if chosen > total:
        return 0
    fewer = min(chosen, total - chosen)
    if fewer * total.bit_length() > MAX_BITS:
        raise TooLargeError("number too large")
    return math.comb(total, fewer)
