"""Values with and without a unit, a currency, a percent sign or a degree sign."""

import fractions

from grpo_jax.verifiers.mathematics.answers import Answer, Expression, Quantity
from grpo_jax.verifiers.mathematics.brackets import Token
from grpo_jax.verifiers.mathematics.limits import UnreadableError
from grpo_jax.verifiers.mathematics.parser import negate, parse_expression
from grpo_jax.verifiers.mathematics.tree import Apply, Number, Tree
from grpo_jax.verifiers.mathematics.units import CURRENCIES, NO_UNIT, Unit, unit_named

PERCENT = Unit(fractions.Fraction(1), (("percent", 1),))
_MAX_UNIT_TOKENS = 16
_MAX_UNIT_POWER = 9


def read_value(tokens: list[Token]) -> Answer:
    """Reads an expression with whatever measures it.

    Args:
        tokens: All tokens of one part of an answer.

    Returns:
        An expression, or a quantity.

    Raises:
        UnreadableError: if something else follows the expression.
    """
    negative, currency, tokens = _leading_currency(tokens)
    tree, rest = parse_expression(tokens)
    if negative:
        tree = negate(tree)
    if rest and rest[-1].kind == "currency" and len(rest) == 1 and currency is None:
        currency, rest = rest[0].value, []
    if currency is not None:
        unit = unit_named(CURRENCIES[currency])
        if len(rest) == 1 and rest[0].value == "dollar" and currency == "$":
            rest = []
        if rest and (rest[0].value == "/" or rest[0].value == "per"):
            return Quantity(tree, unit.times(read_unit(rest[1:]), -1))
        if rest:
            raise UnreadableError("not a quantity")
        return Quantity(tree, unit)
    if [token.kind for token in rest] == ["percent"]:
        return Quantity(tree, PERCENT)
    degrees, found = _without_degrees(tree)
    if rest:
        unit = read_unit(rest)
        if unit.dimensions == ():
            # Three dozen are 36.
            return Expression(multiple(tree, unit.factor))
        return Quantity(tree, unit)
    return Quantity(degrees, unit_named("degree")) if found else Expression(tree)


def multiple(tree: Tree, factor: fractions.Fraction) -> Tree:
    """A tree times a number; of a number, a number."""
    if factor == 1:
        return tree
    if isinstance(tree, Number):
        return Number(tree.value * factor, tree.digits)
    return Apply("mul", (tree, Number(factor)))


def _leading_currency(tokens: list[Token]) -> tuple[bool, str | None, list[Token]]:
    negative = len(tokens) > 1 and tokens[0].value == "-" and tokens[1].kind == "currency"
    if negative:
        tokens = tokens[1:]
    if tokens and tokens[0].kind == "currency":
        if len(tokens) > 1 and tokens[1].value == "{":
            # A template, ${...}, and no price.
            raise UnreadableError("not a quantity")
        return negative, tokens[0].value, tokens[1:]
    return False, None, tokens


def _without_degrees(tree: Tree) -> tuple[Tree, bool]:
    """Takes the degree signs off a sum or multiple of angles; those in a function's argument stay."""
    if not isinstance(tree, Apply):
        return tree, False
    if tree.operation == "degree":
        return tree.arguments[0], True
    if tree.operation not in ("add", "neg", "mul", "div"):
        return tree, False
    parts = [_without_degrees(argument) for argument in tree.arguments]
    found = [part[1] for part in parts]
    wanted = len(found) if tree.operation == "add" else 1
    if sum(found) != wanted or (tree.operation == "div" and found[1]):
        return tree, False
    return Apply(tree.operation, tuple(part[0] for part in parts)), True


def read_unit(tokens: list[Token]) -> Unit:
    """Reads a unit such as ``cm^2``, ``miles per hour``, ``square feet`` or ``m/s^2``.

    Args:
        tokens: Only the unit's tokens.

    Returns:
        The unit.

    Raises:
        UnreadableError: if they are no unit.
    """
    if not 0 < len(tokens) <= _MAX_UNIT_TOKENS:
        raise UnreadableError("not a unit")
    unit, sign, index = NO_UNIT, 1, 0
    expect_factor = True
    while index < len(tokens):
        token = tokens[index]
        if not expect_factor and (token.value in ("/", "per") or token.value == "*"):
            sign, expect_factor = (-1 if token.value != "*" else 1), True
            index += 1
            continue
        factor, index = _unit_factor(tokens, index)
        unit = _celsius(unit, factor) or unit.times(factor, sign)
        sign, expect_factor = 1, False
    if expect_factor:
        raise UnreadableError("not a unit")
    return unit


def _celsius(before: Unit, scale: Unit) -> Unit | None:
    """Degrees Celsius: the word for the degree says nothing of its own."""
    if before == unit_named("degree") and scale.dimensions in ((("celsius", 1),), (("fahrenheit", 1),)):
        return scale
    return None


def _unit_factor(tokens: list[Token], index: int) -> tuple[Unit, int]:
    power = 1
    if tokens[index].kind == "unit word" and tokens[index].value in ("2", "3"):
        power = int(tokens[index].value)
        index += 1
    if index >= len(tokens) or tokens[index].kind != "unit":
        raise UnreadableError("not a unit")
    base = unit_named(tokens[index].value)
    index += 1
    if index < len(tokens) and tokens[index].value in ("^2", "^3"):
        power *= int(tokens[index].value[1])
        index += 1
    elif index < len(tokens) and tokens[index].value == "^":
        exponent, index = _unit_power(tokens, index + 1)
        power *= exponent
    return NO_UNIT.times(base, power), index


def _unit_power(tokens: list[Token], index: int) -> tuple[int, int]:
    values = [token.value for token in tokens[index : index + 4]]
    braced = values[:1] == ["{"]
    inner = values[1:] if braced else values
    sign = -1 if inner[:1] == ["-"] else 1
    inner = inner[1:] if sign < 0 else inner
    if not inner or not inner[0].isdigit() or int(inner[0]) > _MAX_UNIT_POWER:
        raise UnreadableError("not a unit")
    if braced and inner[1:2] != ["}"]:
        raise UnreadableError("not a unit")
    return sign * int(inner[0]), index + 1 + (sign < 0) + 2 * braced
