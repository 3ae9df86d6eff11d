"""Sets of real numbers: reading them, and whether two of them are the same set."""

import fractions
import functools
from collections.abc import Callable

from grpo_jax.verifiers.mathematics import spans
from grpo_jax.verifiers.mathematics.answers import (
    Answer,
    Expression,
    FiniteSet,
    Interval,
    Points,
    RealSet,
    Region,
    Relation,
    SetOperation,
    Tuple,
)
from grpo_jax.verifiers.mathematics.brackets import Token
from grpo_jax.verifiers.mathematics.limits import MAX_ITEMS, Budget, InexactError, UnreadableError
from grpo_jax.verifiers.mathematics.ordering import order
from grpo_jax.verifiers.mathematics.probing import Outcome, compare
from grpo_jax.verifiers.mathematics.tree import Apply, Constant, Number, Symbol, Tree, is_infinite

Fraction = fractions.Fraction

_INFINITY = Constant("infinity")
_MINUS_INFINITY = Apply("neg", (_INFINITY,))
ALL_REALS = Interval(_MINUS_INFINITY, _INFINITY, False, False)
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}

Reader = Callable[[list[Token]], Answer]


def interval(low: Tree, high: Tree, low_closed: bool, high_closed: bool) -> Interval:
    """Makes an interval; nothing is closed at infinity."""
    return Interval(low, high, low_closed and not is_infinite(low), high_closed and not is_infinite(high))


def read_region(tokens: list[Token], read: Reader) -> RealSet | None:
    r"""Reads ``A \cup B``, ``A \setminus B``, ``A \cap B`` or ``x \in A``.

    Args:
        tokens: The tokens of one part of an answer.
        read: Reads the tokens of one of the sets.

    Returns:
        The set, or ``None`` if there is no such operation outside brackets.

    Raises:
        UnreadableError: if what it is applied to is no set of real numbers.
    """
    sides, memberships = spans.split(tokens, lambda token: token.kind == "in")
    if memberships:
        if len(sides) != 2 or [token.kind for token in sides[0]] != ["name"]:
            raise UnreadableError("not a membership")
        inner = region_of(read(sides[1]))
        if inner is None or inner.variable is not None:
            raise UnreadableError("not a set of real numbers")
        return RealSet(inner.region, sides[0][0].value)
    # Union binds loosest, so that it is cut first; difference is cut from the right.
    for operation in ("union", "difference", "intersection"):
        parts, found = spans.split(tokens, functools.partial(_is_operation, operation))
        if found:
            if len(parts) > MAX_ITEMS:
                raise UnreadableError("too many parts")
            regions = [_operand(part, read) for part in parts]
            return RealSet(functools.reduce(functools.partial(SetOperation, operation), regions))
    return None


def _is_operation(operation: str, token: Token) -> bool:
    return token.kind == "set operation" and token.value == operation


def _operand(tokens: list[Token], read: Reader) -> Region:
    real_set = region_of(read(tokens)) if tokens else None
    if real_set is None:
        raise UnreadableError("not a set of real numbers")
    return real_set.region


def read_builder(tokens: list[Token], read: Reader) -> RealSet | None:
    r"""Reads what stands in the braces of ``\{x : x > 3\}``; ``None`` if it is no condition."""
    for index in range(1, min(len(tokens), 8)):
        token = tokens[index]
        if token.kind in ("bar", "colon") or (token.kind == "relation" and token.value == "mid"):
            condition = region_of(read(tokens[index + 1 :]))
            if condition is None or condition.variable != tokens[0].value or tokens[0].kind != "name":
                raise UnreadableError("unknown condition")
            if index > 1 and [(inner.kind, inner.value) for inner in tokens[1:index]] not in (
                [("in", ""), ("number set", "R")],
            ):
                raise UnreadableError("unknown condition")
            return RealSet(condition.region)
    return None


def region_of(answer: Answer) -> RealSet | None:
    """Sees an answer as a set of real numbers, if it can be one.

    Args:
        answer: A set, an interval, a pair that may be an open interval, or a relation of one variable.

    Returns:
        The set, with the variable that the relation is about; ``None`` for anything else.
    """
    match answer:
        case RealSet():
            return answer
        case FiniteSet(items):
            trees = [item.tree for item in items if isinstance(item, Expression)]
            return RealSet(Points(tuple(trees))) if len(trees) == len(items) else None
        case Tuple((Expression(low), Expression(high)), "()"):
            return RealSet(interval(low, high, False, False))
        case Relation():
            return _solution(answer)
    return None


def _distance(trees: list[Tree], signs: tuple[str, ...]) -> RealSet | None:
    """The set that ``|x| < 2`` or ``|x - 5| >= 2`` describes."""
    if len(trees) == 2 and isinstance(trees[0], Number):
        trees, signs = trees[::-1], (_MIRRORED[signs[0]],)
    match trees:
        case [Apply("abs", (inner,)), Number(radius)] if radius > 0 and signs[0] in ("<", "<=", ">", ">="):
            pass
        case _:
            return None
    match inner:
        case Symbol(name):
            center = Fraction(0)
        case Apply("add", (Symbol(name), Number(offset))):
            center = -offset
        case _:
            return None
    low, high, closed = Number(center - radius), Number(center + radius), signs[0].endswith("=")
    if signs[0].startswith("<"):
        return RealSet(interval(low, high, closed, closed), name)
    left, right = interval(_MINUS_INFINITY, low, False, closed), interval(high, _INFINITY, closed, False)
    return RealSet(SetOperation("union", left, right), name)


def _solution(relation: Relation) -> RealSet | None:
    """The set that a relation ``a < x <= b``, ``x != a`` or ``x = a`` describes, if it has this form."""
    trees = [side.tree for side in relation.sides if isinstance(side, Expression)]
    signs = relation.operators
    if len(trees) != len(relation.sides) or any(sign not in _MIRRORED for sign in signs):
        return None
    distance = _distance(trees, signs)
    if distance is not None:
        return distance
    match trees:
        case [Symbol(name), bound]:
            return RealSet(_half_line(signs[0], bound), name)
        case [bound, Symbol(name)]:
            return RealSet(_half_line(_MIRRORED[signs[0]], bound), name)
        case [low, Symbol(name), high] if signs[0][0] == signs[1][0] in ("<", ">"):
            ends = (_half_line(_MIRRORED[signs[0]], low), _half_line(signs[1], high))
            return RealSet(SetOperation("intersection", *ends), name)
    return None


def _half_line(sign: str, bound: Tree) -> Region:
    closed = sign.endswith("=")
    match sign:
        case "<" | "<=":
            return interval(_MINUS_INFINITY, bound, False, closed)
        case ">" | ">=":
            return interval(bound, _INFINITY, closed, False)
        case "=":
            return Points((bound,))
    return SetOperation("difference", ALL_REALS, Points((bound,)))


def same_region(left: Region, right: Region, budget: Budget) -> bool:
    """Whether two sets of real numbers are equal.

    All end points are put in order; the sets are equal if they agree on every end point and on every
    gap between two of them. End points that cannot be ordered (with variables) are compared in the
    order in which they are written.

    Args:
        left: One set.
        right: The other one.
        budget: The work that is left.

    Returns:
        Whether they are equal.

    Raises:
        TooLargeError: if an end point cannot be evaluated within the budget.
        UndefinedError: if an end point has no value.
    """
    ends = [end for region in (left, right) for end in _ends(region) if not is_infinite(end)]
    if len(ends) > MAX_ITEMS:
        return False
    try:
        points = _ordered(ends, budget)
    except InexactError:
        return _same_shape(left, right, budget)
    pattern = [_pattern(region, points) for region in (left, right)]
    return pattern[0] == pattern[1]


def _ends(region: Region) -> list[Tree]:
    match region:
        case Interval(low, high):
            return [low, high]
        case Points(values):
            return list(values)
        case SetOperation(_, left, right):
            return [*_ends(left), *_ends(right)]


def _ordered(ends: list[Tree], budget: Budget) -> dict[Tree, int]:
    """The rank of every end; equal ends have equal ranks."""
    unique = list(dict.fromkeys(ends))
    unique.sort(key=functools.cmp_to_key(lambda a, b: order(a, b, budget)))
    ranks: dict[Tree, int] = {}
    rank = 0
    for index, end in enumerate(unique):
        if index and order(unique[index - 1], end, budget) != 0:
            rank += 1
        ranks[end] = rank
    return ranks


def _pattern(region: Region, ranks: dict[Tree, int]) -> list[bool]:
    """Membership of the gap before the first end, the first end, the next gap, and so on."""
    size = 2 * (max(ranks.values(), default=-1) + 1) + 1

    def place(end: Tree) -> int:
        infinite = is_infinite(end)
        return (-1 if infinite < 0 else size) if infinite else 2 * ranks[end] + 1

    match region:
        case Interval(low, high, low_closed, high_closed):
            start, stop = place(low), place(high)
            inside = [start < index < stop for index in range(size)]
            if start <= stop and 0 <= start < size:
                inside[start] = low_closed and (start < stop or high_closed)
            if start < stop < size:
                inside[stop] = high_closed
            return inside
        case Points(values):
            places = {place(value) for value in values}
            return [index in places for index in range(size)]
        case SetOperation(operation, left, right):
            pairs = zip(_pattern(left, ranks), _pattern(right, ranks), strict=True)
            if operation == "union":
                return [a or b for a, b in pairs]
            return [a and (b if operation == "intersection" else not b) for a, b in pairs]


def _same_shape(left: Region, right: Region, budget: Budget) -> bool:
    match left, right:
        case Interval(), Interval():
            closed = (left.low_closed, left.high_closed) == (right.low_closed, right.high_closed)
            return closed and _same_end(left.low, right.low, budget) and _same_end(left.high, right.high, budget)
        case Points(first), Points(second):
            return len(first) == len(second) and all(
                _same_end(a, b, budget) for a, b in zip(first, second, strict=True)
            )
        case SetOperation(), SetOperation():
            return (
                left.operation == right.operation
                and _same_shape(left.left, right.left, budget)
                and _same_shape(left.right, right.right, budget)
            )
    return False


def _same_end(left: Tree, right: Tree, budget: Budget) -> bool:
    if is_infinite(left) or is_infinite(right):
        return is_infinite(left) == is_infinite(right)
    return compare(left, right, budget) is Outcome.EQUAL
