"""What the left side of an equation names without being an expression to be worked out."""

from grpo_jax.verifiers.mathematics import spans, vocabulary
from grpo_jax.verifiers.mathematics.brackets import Token

_NO_NAMES = vocabulary.words("not never false wrong incorrect neither nor isn no if")
_MAX_TOKENS = 30
_EVENT_KINDS = frozenset(("name", "number", "relation", "set operation", "bar", "separator", "operator"))
_TRIGONOMETRIC = vocabulary.words("sin cos tan cot sec csc")


def name_of(tokens: list[Token]) -> str | None:
    r"""The name that tokens consist of: ``x_1``, ``f(x)``, ``P(A)``, ``|AB|``, ``(p, q)``, ``\angle ABC``, ``Area``.

    Args:
        tokens: One side of an equation.

    Returns:
        The name, or ``None`` if it is an expression to be worked out, such as ``x + y``.
    """
    if not tokens or len(tokens) > _MAX_TOKENS:
        return None
    values = [token.value for token in tokens]
    named = _is_letter(tokens) or _is_phrase(tokens) or _is_tuple(tokens)
    if not named:
        return None
    return "".join(values).casefold() if all(token.kind == "word" for token in tokens) else "".join(values)


def _is_letter(tokens: list[Token]) -> bool:
    """A letter with what belongs to it, or letters of points: ``x_1``, ``f(x)``, ``AB``, ``|AB|``."""
    first = tokens[0]
    if first.kind == "name" and first.value not in ("e", "i") and len(tokens) == 1:
        return True
    if first.kind == "name" and len(tokens) > 1 and _is_suffix(tokens[1:], first.value == "P"):
        return True
    if first.kind == tokens[-1].kind == "bar":
        return _capitals(tokens[1:-1])
    return len(tokens) > 1 and _capitals(tokens)


def _is_phrase(tokens: list[Token]) -> bool:
    """An angle, a cosine of an angle, a derivative, or words."""
    kinds, values = [token.kind for token in tokens], [token.value for token in tokens]
    if "angle" in kinds and set(kinds) <= {"angle", "name", "word"}:
        return True
    if kinds == ["function", "name"] and values[0] in _TRIGONOMETRIC and values[1] not in ("x", "y", "z"):
        return True
    if values[:3] == ["frac", "{", "d"] and "d" in values[3:] and set(kinds) <= {"command", "open", "close", "name"}:
        return True
    return set(kinds) == {"word"} and not _NO_NAMES & {value.casefold() for value in values}


def _is_tuple(tokens: list[Token]) -> bool:
    inner = spans.enclosed(tokens)
    if inner is None or tokens[0].value != "(":
        return False
    names, _ = spans.split(inner, lambda token: token.kind == "separator")
    return len(names) > 1 and all(name_of(part) is not None for part in names)


def _capitals(tokens: list[Token]) -> bool:
    return bool(tokens) and all(token.kind in ("name", "word") and token.value.isupper() for token in tokens)


def _is_suffix(tokens: list[Token], probability: bool) -> bool:
    """Whether these tokens only continue a name: primes, a subscript, an inverse, an argument in parentheses."""
    rest = list(tokens)
    if [token.value for token in rest[:6]] == ["^", "{", "-", "1", "}", "("]:
        rest = rest[5:]
    while rest and rest[0].value == "'":
        rest = rest[1:]
    if rest and rest[0].value == "_":
        if len(rest) > 1 and rest[1].value == "{":
            closing = next((index for index, token in enumerate(rest) if token.value == "}"), len(rest))
            rest = rest[closing + 1 :]
        else:
            rest = rest[2:]
    if not rest:
        return True
    inner = spans.enclosed(rest)
    if inner is None or rest[0].value != "(":
        return False
    if probability and all(token.kind in _EVENT_KINDS for token in inner):
        return True
    kinds = ("name", "number", "separator", "word", "operator")
    return all(token.kind in kinds and token.value not in ("*", "/", "^") for token in inner)
