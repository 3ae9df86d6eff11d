"""Approximate evaluation with mpmath at any precision, with the size of every result bounded."""

import functools
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from grpo_jax.verifiers.mathematics import vocabulary
from grpo_jax.verifiers.mathematics.limits import (
    MAX_FACTORIAL,
    MAX_MAGNITUDE_BITS,
    MAX_TERMS,
    Budget,
    InexactError,
    TooLargeError,
    UndefinedError,
)
from grpo_jax.verifiers.mathematics.tree import Apply, Constant, Number, Symbol, Tree

DIGITS = 50
"""Decimal digits of a first evaluation."""
_MAX_FUNCTION_ARGUMENT_BITS = 200
_OPAQUE_BITS = 80
_MAX_GAMMA_DIGITS = 300

# In units of the budget, at 50 digits.
_COSTS = {
    **dict.fromkeys(("add", "mul", "neg"), 2),
    **dict.fromkeys(("factorial", "binom"), 1500),
    **dict.fromkeys(("sin", "cos", "tan", "exp", "ln", "log", "log base", "pow", "root", "cbrt"), 40),
    **dict.fromkeys(("arcsin", "arccos", "arctan", "sinh", "cosh", "tanh"), 100),
}

_FUNCTIONS = vocabulary.words(
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sech csch "
    "arcsinh arccosh arctanh"
)
_MPMATH_NAMES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot", "arcsec": "asec"} | {
    "arccsc": "acsc",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
}


@functools.cache
def context(digits: int) -> Any:
    """An mpmath context of its own, so that nobody else's precision is touched.

    Args:
        digits: Decimal digits of its numbers.

    Returns:
        The context (mpmath is loaded on first use).
    """
    import mpmath.ctx_mp

    own = mpmath.ctx_mp.MPContext()
    own.dps = digits
    return own


def approximate_value(
    tree: Tree,
    digits: int,
    budget: Budget,
    values: Mapping[str, Any] | None = None,
    real: bool = False,
    log_base: int | None = None,
) -> Any:
    """Evaluates a tree to a real or complex number.

    Args:
        tree: The expression.
        digits: Decimal digits to compute with.
        budget: The work that is left.
        values: A value for each of its variables: numbers of ``context(digits)``.
        real: Whether a root or logarithm of a negative number has no value.
        log_base: Base of a plain ``log``; ``None`` stands for e.

    Returns:
        A number of ``context(digits)``.

    Raises:
        UndefinedError: if it has no (real) value.
        TooLargeError: if a number on the way is too large or too small, or there is too much to do.
        InexactError: if something in it cannot be evaluated.
    """
    return _Evaluation(context(digits), budget, values or {}, real, log_base).value(tree)


class _Evaluation:
    def __init__(self, own: Any, budget: Budget, values: Mapping[str, Any], real: bool, log_base: int | None) -> None:
        self._own = own
        self._values = dict(values)
        self._real = real
        self._log_base = log_base
        self._budget = budget
        # Elementary functions take a little more than linear time at these sizes.
        self._cost_factor = max(1, own.dps // 75) * (12 if own.dps > 1_000 else 1)

    def value(self, tree: Tree) -> Any:
        if isinstance(tree, Number):
            return self._bounded(self._own.mpf(tree.value.numerator) / tree.value.denominator)
        if isinstance(tree, Symbol):
            if tree.name not in self._values:
                raise InexactError("a variable")
            return self._values[tree.name]
        if isinstance(tree, Constant):
            return self._constant(tree.name)
        self._budget.charge(_COSTS.get(tree.operation, 5) * self._cost_factor + len(tree.arguments))
        if tree.operation in ("sum", "prod"):
            return self._series(tree)
        arguments = [self.value(argument) for argument in tree.arguments]
        try:
            return self._bounded(self._apply(tree.operation, arguments))
        except (ZeroDivisionError, ValueError, OverflowError) as error:
            if isinstance(error, UndefinedError | TooLargeError | InexactError):
                raise
            raise UndefinedError("no value") from error

    def _constant(self, name: str) -> Any:
        if name == "infinity":
            raise UndefinedError("infinite")
        if name == "i":
            if self._real:
                raise UndefinedError("not real")
            return self._own.mpc(0, 1)
        return +(self._own.pi if name == "pi" else self._own.e)

    def _bounded(self, number: Any) -> Any:
        if not self._own.isfinite(number):
            raise UndefinedError("not finite")
        bits = abs(self._own.mag(number)) if number else 0
        if bits > MAX_MAGNITUDE_BITS:
            raise TooLargeError("number too large")
        if self._own.dps == DIGITS:
            # A zero leaves rounding error, which looks the smaller, the higher the precision: one look is enough.
            self._budget.peak_bits = max(self._budget.peak_bits, int(bits))
        # Complex numbers have no order, so one without an imaginary part becomes real.
        return self._own.re(number) if self._own.im(number) == 0 else number

    def _apply(self, operation: str, arguments: list[Any]) -> Any:
        own = self._own
        match operation, arguments:
            case "add", _:
                return own.fsum(arguments)
            case "mul", _:
                return own.fprod(arguments)
            case (("neg" | "div"), [value, *divisor]):
                return value / divisor[0] if divisor else -value
            case "degree", [value]:
                return value * own.pi / 180
            case "sqrt", [value]:
                return own.sqrt(self._nonnegative(value))
            case (("cbrt" | "root"), [value, *index]):
                return self._root(value, index[0] if index else own.mpf(3))
            case (("pow" | "exp"), _):
                return self._power(*(arguments if operation == "pow" else (+own.e, *arguments)))
        return self._function(operation, arguments)

    def _function(self, operation: str, arguments: list[Any]) -> Any:
        own = self._own
        if operation in ("ln", "log", "log2", "log10", "log base"):
            return self._logarithm(operation, arguments)
        if len(arguments) == 1 and operation in _FUNCTIONS:
            value = self._small(arguments[0])
            result = getattr(own, _MPMATH_NAMES.get(operation, operation))(value)
            if self._real and own.im(result) != 0:
                raise UndefinedError("not real")
            return result
        if operation.startswith("call "):
            return self._opaque(operation, arguments)
        match operation, arguments:
            case "abs", [value]:
                return abs(value)
            case (("floor" | "ceil"), [value]) if own.im(value) == 0 and own.mag(value) < _MAX_FUNCTION_ARGUMENT_BITS:
                return own.floor(value) if operation == "floor" else own.ceil(value)
            case (("min" | "max"), _) if all(own.im(value) == 0 for value in arguments):
                return (min if operation == "min" else max)(own.re(value) for value in arguments)
            case "factorial", [value]:
                return own.gamma(self._moderate(value) + 1)
            case "binom", [total, chosen]:
                return own.binomial(self._moderate(total), self._moderate(chosen))
        raise InexactError("cannot be evaluated")

    def _logarithm(self, operation: str, arguments: list[Any]) -> Any:
        own = self._own
        value = self._nonnegative(arguments[0])
        if value == 0:
            raise UndefinedError("logarithm of zero")
        base: Any = {"log": self._log_base, "log2": 2, "log10": 10}.get(operation)
        if operation == "log base":
            base = self._nonnegative(arguments[1])
        return own.ln(value) if base is None else own.ln(value) / own.ln(base)

    def _power(self, base: Any, exponent: Any) -> Any:
        own = self._own
        if base == 0:
            if own.im(exponent) != 0 or own.re(exponent) <= 0:
                raise UndefinedError("a power of zero")
            return own.mpf(0)
        if own.mag(exponent) > 64:
            raise TooLargeError("number too large")
        if base != 1 and abs(own.mag(base)) * abs(exponent) > 2 * MAX_MAGNITUDE_BITS:
            raise TooLargeError("number too large")
        if self._real and own.re(base) < 0 and not own.isint(exponent):
            raise UndefinedError("not real")
        if abs(own.im(exponent)) > MAX_MAGNITUDE_BITS:
            raise TooLargeError("number too large")
        return base**exponent

    def _root(self, value: Any, index: Any) -> Any:
        own = self._own
        if own.im(value) == 0 and own.re(value) < 0 and own.isint(index) and int(own.re(index)) % 2:
            return -self._power(-value, 1 / index)
        return self._power(value, 1 / index)

    def _nonnegative(self, value: Any) -> Any:
        if self._real and self._own.re(value) < 0:
            raise UndefinedError("not real")
        return value

    def _small(self, value: Any) -> Any:
        if value and self._own.mag(value) > _MAX_FUNCTION_ARGUMENT_BITS:
            raise TooLargeError("number too large")
        return value

    def _moderate(self, value: Any) -> Any:
        # The gamma function takes seconds at higher precision.
        if abs(value) > MAX_FACTORIAL or self._own.dps > _MAX_GAMMA_DIGITS:
            raise TooLargeError("number too large")
        return value

    def _opaque(self, name: str, arguments: list[Any]) -> Any:
        """An unknown function: equal names and arguments give equal values, anything else gives other ones."""
        from mpmath.libmp import mpf_pos

        parts = [part for argument in arguments for part in (self._own.re(argument), self._own.im(argument))]
        rounded = [tuple(map(int, mpf_pos(part._mpf_, _OPAQUE_BITS, "n"))) for part in parts]
        digest = hashlib.sha256(repr((name, rounded)).encode()).digest()
        return self._own.mpf(int.from_bytes(digest[:12], "big")) / 2**94 + self._own.mpf(1) / 3

    def _series(self, tree: Apply) -> Any:
        variable, first, last, term = tree.arguments
        if not isinstance(variable, Symbol):
            raise InexactError("a sum without a variable")
        try:
            start, end = self.value(first), self.value(last)
        except UndefinedError:
            return self._unknown_series(tree)
        own = self._own
        if not own.isint(start) or not own.isint(end):
            return self._unknown_series(tree)
        if end - start >= MAX_TERMS:
            raise TooLargeError("too many terms")
        add: Callable[[Any, Any], Any] = (lambda a, b: a + b) if tree.operation == "sum" else (lambda a, b: a * b)
        result = own.mpf(tree.operation == "prod")
        outer = self._values
        for number in range(int(start), int(end) + 1):
            self._values = {**outer, variable.name: own.mpf(number)}
            result = self._bounded(add(result, self.value(term)))
        self._values = outer
        return result

    def _unknown_series(self, tree: Apply) -> Any:
        """A sum that is not added up here, as an unknown function of its bounds and of its term at one point."""
        variable, first, last, term = tree.arguments
        outer = self._values
        self._values = {**outer, getattr(variable, "name", ""): self._own.mpf(7) / 11}
        at_point = self.value(term)
        self._values = outer
        bounds = [
            self._own.mpf(-(10**9)) if isinstance(bound, Constant) and bound.name == "infinity" else self.value(bound)
            for bound in (first, last)
        ]
        return self._opaque(tree.operation, [*bounds, at_point])
