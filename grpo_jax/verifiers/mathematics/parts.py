"""One part of an answer: a relation, a set, an interval, a tuple, a matrix, a ratio, a quantity, an expression."""

import fractions
from collections.abc import Callable

from grpo_jax.verifiers.mathematics import regions, spans, vocabulary
from grpo_jax.verifiers.mathematics.answers import (
    ELLIPSIS,
    Answer,
    Expression,
    FiniteSet,
    Listing,
    Matrix,
    Ratio,
    RealSet,
    Relation,
    Text,
    Tuple,
)
from grpo_jax.verifiers.mathematics.brackets import Token
from grpo_jax.verifiers.mathematics.limits import MAX_ITEMS, UnreadableError
from grpo_jax.verifiers.mathematics.names import name_of
from grpo_jax.verifiers.mathematics.parser import parse_whole
from grpo_jax.verifiers.mathematics.quantities import read_value
from grpo_jax.verifiers.mathematics.tree import Apply, Number, Tree, is_infinite

Fraction = fractions.Fraction

_DISPLAYS = vocabulary.words("equation align aligned gather gathered displaymath math center")
_TUPLE_BRACKETS = {"langle": "<>", "(": "()", "[": "[]"}

Reader = Callable[[list[Token]], Answer]

_MATRICES = vocabulary.words("pmatrix bmatrix Bmatrix matrix smallmatrix array")


def read_part(tokens: list[Token], read: Reader) -> Answer:
    """Reads one part of an answer.

    Args:
        tokens: Its tokens.
        read: Reads the tokens within brackets.

    Returns:
        The typed answer.

    Raises:
        UnreadableError: if there is no reading.
    """
    if not tokens:
        raise UnreadableError("empty")
    sides, operators = spans.split(tokens, lambda token: token.kind == "relation")
    if operators:
        return _relation(sides, operators, read)
    if any(token.kind in ("set operation", "in") for token in tokens):
        real_set = regions.read_region(tokens, read)
        if real_set is not None:
            return real_set
    inner = spans.enclosed(tokens)
    if inner is not None:
        bracketed = _bracketed(tokens[0].value, tokens[-1].value, inner, read)
        if bracketed is not None:
            return bracketed
    return _simple(tokens, read)


def _simple(tokens: list[Token], read: Reader) -> Answer:
    first = tokens[0]
    if first.kind == "number set" and len(tokens) == 1:
        return RealSet(regions.ALL_REALS) if first.value == "R" else Text(f"set of numbers {first.value}")
    if first.kind == "empty set" and len(tokens) == 1:
        return FiniteSet(())
    if first.kind == "begin":
        if first.value.rstrip("*") in _DISPLAYS and tokens[-1].value == first.value:
            return read_part(tokens[1:-1], read)
        return _matrix(tokens, read)
    if tokens[-1].kind == "end":
        return _scaled(tokens, read)
    if any(token.kind == "colon" for token in tokens):
        return _ratio(tokens)
    return read_value(tokens)


def _relation(sides: list[list[Token]], operators: list[Token], read: Reader) -> Answer:
    signs = tuple(token.value for token in operators)
    name = name_of(sides[0]) if signs[0] == "=" else None
    if name is None and signs == ("=",):
        # 5 = x names x as well as x = 5 does.
        name = name_of(sides[1])
        if name is not None and name_of(sides[0]) is None:
            sides = sides[::-1]
        else:
            name = None
    answers: list[Answer] = []
    for index, side in enumerate(sides):
        if not side:
            raise UnreadableError("a relation without a side")
        if index == 0 and name is not None:
            answers.append(_name_side(side, name, read))
        else:
            answers.append(read_part(side, read))
    return Relation(tuple(answers), signs, name)


def _name_side(side: list[Token], name: str, read: Reader) -> Answer:
    try:
        return read_part(side, read)
    except UnreadableError:
        return Text(name)


def _bracketed(opening: str, closing: str, inner: list[Token], read: Reader) -> Answer | None:
    """Reads the content of brackets around the whole part; ``None`` if they only group an expression."""
    parts, _ = spans.split(inner, lambda token: token.kind == "separator")
    if len(parts) > MAX_ITEMS:
        raise UnreadableError("too many parts")
    if opening == "lbrace" or (opening == "{" and len(parts) > 1):
        return _set(inner, read)
    if opening not in _TUPLE_BRACKETS:
        return None
    if len(parts) == 1:
        return _single(opening, closing, inner, read)
    if opening == "[" and all(part and part[0].value == "[" and spans.enclosed(part) for part in parts):
        return _rows(parts, read)
    items = tuple(read_part(part, read) if _not_ellipsis(part) else ELLIPSIS for part in parts)
    return _tuple_or_interval(items, opening, closing, _TUPLE_BRACKETS[opening])


def _single(opening: str, closing: str, inner: list[Token], read: Reader) -> Answer | None:
    if opening + closing == "()" or any(token.kind == "begin" for token in inner):
        return read_part(inner, read)
    if opening + closing != "[]" or not inner:
        return None
    if inner[0].value == "[" and spans.enclosed(inner) is not None:
        return _rows([inner], read)
    # A list of one element is not that element.
    return Tuple((read_part(inner, read),), "[]")


def _not_ellipsis(part: list[Token]) -> bool:
    return [token.kind for token in part] != ["ellipsis"]


def _tuple_or_interval(items: tuple[Answer, ...], opening: str, closing: str, brackets: str) -> Answer:
    trees = [item.tree for item in items if isinstance(item, Expression)]
    mixed = (opening, closing) in (("(", "]"), ("[", ")"))
    if len(items) == len(trees) == 2 and brackets != "<>" and (mixed or opening == "[" or any(map(is_infinite, trees))):
        return RealSet(regions.interval(trees[0], trees[1], opening == "[", closing == "]"))
    if mixed:
        raise UnreadableError("unbalanced brackets")
    return Tuple(items, brackets)


def _set(inner: list[Token], read: Reader) -> Answer:
    if not inner:
        return FiniteSet(())
    builder = regions.read_builder(inner, read)
    if builder is not None:
        return builder
    parts, _ = spans.split(inner, lambda token: token.kind == "separator")
    if len(parts) > MAX_ITEMS or any(not part for part in parts):
        raise UnreadableError("not a set")
    if any(token.kind == "plus minus" for token in inner):
        both = read(inner)
        return FiniteSet(both.items if isinstance(both, Listing) else (both,))
    return FiniteSet(tuple(read_part(part, read) if _not_ellipsis(part) else ELLIPSIS for part in parts))


def _matrix(tokens: list[Token], read: Reader) -> Matrix:
    if tokens[-1].kind != "end" or tokens[0].value != tokens[-1].value or tokens[0].value not in _MATRICES:
        raise UnreadableError("unknown environment")
    inner = tokens[1:-1]
    if tokens[0].value == "array" and inner and inner[0].value == "{":
        closing = next((index for index, token in enumerate(inner) if token.value == "}"), len(inner))
        inner = inner[closing + 1 :]
    rows, _ = spans.split(inner, lambda token: token.kind == "row")
    if rows and not rows[-1]:
        rows.pop()
    return _matrix_of([spans.split(row, lambda token: token.kind == "cell")[0] for row in rows], read)


def _scaled(tokens: list[Token], read: Reader) -> Answer:
    """Reads a number before a matrix."""
    start = next((index for index, token in enumerate(tokens) if token.kind == "begin"), 0)
    matrix = _matrix(tokens[start:], read)
    scale = tokens[:start]
    if scale and scale[-1].value == "*":
        scale = scale[:-1]
    if [token.value for token in scale] == ["-"]:
        factor: Tree = Number(Fraction(-1))
    else:
        factor = parse_whole(scale)
    cells = [[cell.tree for cell in row if isinstance(cell, Expression)] for row in matrix.rows]
    if any(len(row) != len(cells[0]) or len(row) != len(matrix.rows[0]) for row in cells):
        raise UnreadableError("not a matrix of numbers")
    return Matrix(tuple(tuple(Expression(Apply("mul", (factor, cell))) for cell in row) for row in cells))


def _rows(parts: list[list[Token]], read: Reader) -> Matrix:
    cells = []
    for part in parts:
        inner = spans.enclosed(part)
        if inner is None:
            raise UnreadableError("not a matrix")
        cells.append(spans.split(inner, lambda token: token.kind == "separator")[0])
    return _matrix_of(cells, read)


def _matrix_of(rows: list[list[list[Token]]], read: Reader) -> Matrix:
    if not rows or len({len(row) for row in rows}) != 1 or sum(map(len, rows)) > MAX_ITEMS:
        raise UnreadableError("not a matrix")
    return Matrix(tuple(tuple(read_part(cell, read) for cell in row) for row in rows))


def _ratio(tokens: list[Token]) -> Answer:
    parts, colons = spans.split(tokens, lambda token: token.kind == "colon")
    if not colons or any(not part for part in parts) or len(parts) > 10:
        raise UnreadableError("not a ratio")
    values = tuple(parse_whole(part) for part in parts)
    texts = ["".join(token.value for token in part) for part in parts]
    if any(len(text) == 2 and text.startswith("0") for text in texts[1:]):
        # Nobody writes a ratio as 3:05.
        return Text(":".join([texts[0].lstrip("0") or "0", *texts[1:]]))
    clock = len(texts) in (2, 3) and all(len(text) <= 2 and text.isdigit() for text in texts)
    clock = clock and all(len(text) == 2 and text < "60" for text in texts[1:]) and int(texts[0]) <= 24
    return Ratio(values, clock)
