"""Typed answers: what a text can be read as."""

import dataclasses

from grpo_jax.verifiers.mathematics.tree import Number, Tree, describe, free_symbols, is_infinite
from grpo_jax.verifiers.mathematics.units import Unit


@dataclasses.dataclass(frozen=True, slots=True)
class Expression:
    """A number or an expression."""

    tree: Tree


@dataclasses.dataclass(frozen=True, slots=True)
class Quantity:
    """A value with a unit; percent is the unit ``percent``."""

    value: Tree
    unit: Unit


@dataclasses.dataclass(frozen=True, slots=True)
class Relation:
    """Equations, inequalities and other relations, possibly a chain ``a < x < b``.

    Attributes:
        sides: What stands between the operators.
        operators: One fewer: ``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=`` or the name of another relation.
        name: What the first side names, if it only names something: ``x``, ``f(x)``, ``|AB|``.
    """

    sides: "tuple[Answer, ...]"
    operators: tuple[str, ...]
    name: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """An interval of real numbers; infinite ends are open."""

    low: Tree
    high: Tree
    low_closed: bool
    high_closed: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Points:
    """Finitely many real numbers; none for the empty set."""

    values: tuple[Tree, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class SetOperation:
    """``union``, ``intersection`` or ``difference`` of two sets of real numbers."""

    operation: str
    left: "Region"
    right: "Region"


Region = Interval | Points | SetOperation


@dataclasses.dataclass(frozen=True, slots=True)
class RealSet:
    """A set of real numbers.

    Attributes:
        region: The set.
        variable: The variable that lies in it, if one was named.
    """

    region: Region
    variable: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class FiniteSet:
    """A set ``{a, b}``: neither order nor repetition matters."""

    items: "tuple[Answer, ...]"


@dataclasses.dataclass(frozen=True, slots=True)
class Listing:
    """Several answers ``a, b and c``.

    Attributes:
        items: The answers.
        name: The variable whose values they are, if one was named.
        sequence: Whether an ellipsis, or a mixture of joints, makes the order matter.
        joint: ``and``, ``or`` or a mixture if statements are joined; empty for values, or if a comma leaves it open.
    """

    items: "tuple[Answer, ...]"
    name: str | None = None
    sequence: bool = False
    joint: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Tuple:
    """An ordered tuple; ``brackets`` are those that were written. ``(a, b)`` may also be an open interval."""

    items: "tuple[Answer, ...]"
    brackets: str


@dataclasses.dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix by rows."""

    rows: "tuple[tuple[Answer, ...], ...]"


@dataclasses.dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio ``a:b:c``; ``clock`` says whether it may as well be a time of day."""

    parts: tuple[Tree, ...]
    clock: bool


@dataclasses.dataclass(frozen=True, slots=True)
class BaseNumber:
    """A numeral with its base, such as ``1011_2``."""

    digits: str
    base: int

    @property
    def value(self) -> int:
        """The number that it stands for."""
        return int(self.digits, self.base)


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """Words; ``read`` is ``False`` for a text that is meant as mathematics but has no reading."""

    words: str
    read: bool = True


Answer = Expression | Quantity | Relation | RealSet | FiniteSet | Listing | Tuple | Matrix | Ratio | BaseNumber | Text

ELLIPSIS = Text("...")


def kind(answer: Answer) -> str:
    """The name of an answer's type, for people."""
    match answer:
        case Expression(tree):
            return "infinity" if is_infinite(tree) else "expression" if free_symbols(tree) else "number"
        case Relation(_, operators):
            return "equation" if set(operators) == {"="} else "relation"
        case Text(_, read):
            return "text" if read else "unreadable"
        case BaseNumber(_, base):
            return f"number in base {base}"
    return _KINDS.get(type(answer), type(answer).__name__.lower())


_KINDS = {Listing: "list", RealSet: "set of real numbers", FiniteSet: "set"}


def normal_form(answer: Answer) -> str:
    """A canonical text of an answer, for people.

    Args:
        answer: The answer.

    Returns:
        Its normal form, such as ``(1/2, pi)``.
    """
    match answer:
        case Expression(tree):
            return describe(tree)
        case Quantity(value, unit):
            powers = " ".join(name if power == 1 else f"{name}^{power}" for name, power in unit.dimensions)
            size = "" if unit.factor == 1 else f"{unit.factor} "
            return f"{describe(value)} * {size}{powers}"
        case Relation(sides, operators):
            texts = [normal_form(side) for side in sides]
            return texts[0] + "".join(f" {sign} {text}" for sign, text in zip(operators, texts[1:], strict=True))
        case RealSet(region, variable):
            return (f"{variable} in " if variable else "") + _region_text(region)
        case Ratio(parts):
            return ":".join(map(describe, parts))
        case BaseNumber(digits, base):
            return f"{digits}_{base}"
        case Text(words):
            return words
    return _collection_text(answer)


def _collection_text(answer: FiniteSet | Listing | Tuple | Matrix) -> str:
    match answer:
        case FiniteSet(items):
            return "{" + ", ".join(map(normal_form, items)) + "}"
        case Listing(items, name):
            return (f"{name} = " if name else "") + ", ".join(map(normal_form, items))
        case Tuple(items, brackets):
            return brackets[0] + ", ".join(map(normal_form, items)) + brackets[1]
        case Matrix(rows):
            return "[" + "; ".join(", ".join(map(normal_form, row)) for row in rows) + "]"


def _region_text(region: Region) -> str:
    match region:
        case Interval(low, high, low_closed, high_closed):
            return f"{'[' if low_closed else '('}{describe(low)}, {describe(high)}{']' if high_closed else ')'}"
        case Points(values):
            return "{" + ", ".join(map(describe, values)) + "}"
        case SetOperation(operation, left, right):
            return f"({_region_text(left)} {operation} {_region_text(right)})"


def written_decimal(tree: Tree) -> Number | None:
    """The number if the tree is a decimal with a point, else ``None``."""
    return tree if isinstance(tree, Number) and tree.digits is not None else None
