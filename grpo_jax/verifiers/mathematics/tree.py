"""The whitelisted tree of an expression: numbers, symbols, constants and known operations, nothing else."""

import dataclasses
import fractions
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True, slots=True)
class Number:
    """A written rational number.

    Attributes:
        value: Its exact value.
        digits: Significant digits if it was written as a decimal with a point, else ``None``.
    """

    value: fractions.Fraction
    digits: int | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, with its subscript and primes as part of the name."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Constant:
    """One of ``pi``, ``e``, ``i``, ``infinity``."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Apply:
    """An operation: ``add``, ``mul``, ``div``, ``neg``, ``pow``, a function's name, ``call NAME`` if it is unknown.

    ``sum`` and ``prod`` have the arguments variable, first, last, term.
    """

    operation: str
    arguments: "tuple[Tree, ...]"


_INTEGER_OPERATIONS = frozenset(("factorial", "double factorial", "binom", "gcd", "lcm", "mod"))

Tree = Number | Symbol | Constant | Apply


def walk(tree: Tree) -> Iterator[Tree]:
    """Yields the tree and all trees in it."""
    pending: list[Tree] = [tree]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, Apply):
            pending.extend(node.arguments)


def free_symbols(tree: Tree) -> set[str]:
    """The names of all variables that no sum or product binds."""
    if isinstance(tree, Symbol):
        return {tree.name}
    if not isinstance(tree, Apply):
        return set()
    if tree.operation in ("sum", "prod"):
        variable, first, last, term = tree.arguments
        return free_symbols(first) | free_symbols(last) | (free_symbols(term) - free_symbols(variable))
    return set().union(*map(free_symbols, tree.arguments))


def integer_symbols(tree: Tree) -> set[str]:
    """The names of variables that only make sense as integers: in bounds, factorials, and exponents of negatives."""
    names: set[str] = set()
    for node in walk(tree):
        if not isinstance(node, Apply):
            continue
        if node.operation in ("sum", "prod"):
            names |= free_symbols(node.arguments[1]) | free_symbols(node.arguments[2])
        elif node.operation in _INTEGER_OPERATIONS:
            names |= free_symbols(node)
        elif node.operation == "pow" and _is_negative(node.arguments[0]):
            names |= free_symbols(node.arguments[1])
    return names & free_symbols(tree)


def _is_negative(tree: Tree) -> bool:
    if isinstance(tree, Number):
        return tree.value < 0
    return isinstance(tree, Apply) and tree.operation == "neg"


def has_constant(tree: Tree, name: str) -> bool:
    """Whether a constant occurs in the tree."""
    return any(isinstance(node, Constant) and node.name == name for node in walk(tree))


def has_operation(tree: Tree, *names: str) -> bool:
    """Whether one of these operations occurs in the tree."""
    return any(isinstance(node, Apply) and node.operation in names for node in walk(tree))


def is_infinite(tree: Tree) -> int:
    """Returns 1 for infinity, -1 for minus infinity, 0 for anything else."""
    if isinstance(tree, Constant) and tree.name == "infinity":
        return 1
    if isinstance(tree, Apply) and tree.operation == "neg":
        return -is_infinite(tree.arguments[0])
    return 0


def is_final(tree: Tree) -> bool:
    """Whether nothing is left to be worked out: a number, a fraction of integers, a name, or their negative."""
    if isinstance(tree, Apply):
        if tree.operation == "neg":
            return is_final(tree.arguments[0])
        if tree.operation == "div":
            return all(isinstance(part, Number) and part.value.denominator == 1 for part in tree.arguments)
        return False
    return True


def describe(tree: Tree) -> str:
    """A canonical text of the tree, for people and for comparing names."""
    if isinstance(tree, Number):
        return describe_fraction(tree.value)
    if isinstance(tree, Symbol | Constant):
        return tree.name
    return f"{tree.operation}({', '.join(map(describe, tree.arguments))})"


def canonical(tree: Tree) -> str:
    """A text of the tree that does not depend on the order of its terms."""
    if isinstance(tree, Apply) and tree.operation == "add":
        return f"add({', '.join(sorted(map(canonical, tree.arguments)))})"
    return describe(tree)


def renamed(tree: Tree, old: str, new: str) -> Tree:
    """The tree with one variable renamed."""
    if isinstance(tree, Apply):
        return Apply(tree.operation, tuple(renamed(argument, old, new) for argument in tree.arguments))
    return Symbol(new) if tree == Symbol(old) else tree


def describe_fraction(value: fractions.Fraction) -> str:
    """The decimal text of a rational number, or its size where that would be long."""
    bits = value.numerator.bit_length() + value.denominator.bit_length()
    return str(value) if bits < 2_000 else f"a rational number of {bits} bits"
