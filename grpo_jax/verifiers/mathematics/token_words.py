"""What letters and degree signs among the tokens mean: functions, units, connectives, names."""

import re

from grpo_jax.verifiers.mathematics import units, vocabulary
from grpo_jax.verifiers.mathematics.brackets import Token

_MAX_PRODUCT = 3
_DIFFERENTIAL = re.compile("d[a-z]")


def join_degrees(tokens: list[Token]) -> list[Token]:
    r"""Makes ``^\circ`` and ``^{\circ}`` one token; with ``C`` or ``F`` after it, a unit of temperature.

    Args:
        tokens: Raw tokens.

    Returns:
        The tokens with joined degree signs.
    """
    joined: list[Token] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        kinds = [(following.kind, following.value) for following in tokens[index + 1 : index + 4]]
        length = 0
        if token.kind == "operator" and token.value == "^":
            if kinds[:1] == [("degree", "")]:
                length = 2
            elif kinds == [("open", "{"), ("degree", ""), ("close", "}")]:
                length = 4
        elif token.kind == "degree":
            length = 1
            if _composes(joined, kinds):
                joined.append(Token("operator", "compose", token.gap))
                index += 1
                continue
        if not length:
            joined.append(token)
            index += 1
            continue
        index += length
        scale = tokens[index] if index < len(tokens) else None
        if scale is not None and scale.kind == "word" and scale.value in ("C", "F"):
            joined.append(Token("unit", "celsius" if scale.value == "C" else "fahrenheit", token.gap, True))
            index += 1
        else:
            joined.append(Token("degree", "", token.gap))
    return joined


def _composes(before: list[Token], following: list[tuple[str, str]]) -> bool:
    r"""Whether a bare ``\circ`` stands between functions: never a degree sign between letters."""
    if not before or not following:
        return False
    operand = following[0][0] == "word" or following[0] == ("open", "(")
    scale = following[0] in (("word", "C"), ("word", "F"))
    previous = before[-1]
    return operand and (previous.kind == "word" or (previous.value == ")" and not scale))


def resolve_words(tokens: list[Token], short_units: bool) -> list[Token]:
    """Decides what every run of letters is; short runs without a meaning are products of variables.

    Args:
        tokens: Tokens with ``word`` for every run of letters.
        short_units: Whether a single letter after a number may be a unit outside of text commands.

    Returns:
        The tokens; long runs of letters without a meaning stay ``word``.
    """
    resolved: list[Token] = []
    for index, token in enumerate(tokens):
        if token.kind != "word":
            resolved.append(token)
            continue
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        resolved.extend(_resolve_word(token, resolved, following, short_units))
    return resolved


def _resolve_word(token: Token, before: list[Token], following: Token | None, short_units: bool) -> list[Token]:
    previous = before[-1] if before else None
    unit = units.canonical_name(token.value)
    if unit is not None and _in_unit_position(before):
        # km/h needs no context, 5 m does.
        long_enough = len(token.value) > 1 or token.text or short_units or before[-1].value == "/"
        called = following is not None and (following.value == "(" or following.kind in ("name", "number"))
        if long_enough and not (called and token.value in vocabulary.FUNCTIONS):
            return [token._replace(kind="unit", value=unit)]
    lower = token.value.casefold()
    if lower in vocabulary.SCALES and previous is not None and previous.kind == "number":
        return [Token("operator", "*"), Token("number", vocabulary.SCALES[lower])]
    if lower == "to" and previous is not None and previous.kind == "number":
        return [Token("colon", ":", token.gap)]
    if lower in vocabulary.UNIT_WORDS:
        return [token._replace(kind="unit word", value=vocabulary.UNIT_WORDS[lower])]
    known = _known_word(token, lower, previous)
    if known is not None:
        return [known]
    if token.value in vocabulary.GREEK or lower in vocabulary.GREEK:
        return [token._replace(kind="name", value=token.value if token.value in vocabulary.GREEK else lower)]
    return _letters(token, before, following)


def _letters(token: Token, before: list[Token], following: Token | None) -> list[Token]:
    """What letters without a meaning are: a differential, the name of three points, a product, or a word."""
    letters = token.value
    previous, after = (before[-1].value if before else ""), (following.value if following is not None else "")
    if _DIFFERENTIAL.fullmatch(letters):
        if after == "/":
            return [token._replace(kind="name")]
        if previous == "/" and len(before) > 1 and _DIFFERENTIAL.fullmatch(before[-2].value):
            before.pop()
            return [token._replace(kind="name", value=f"{before.pop().value}/{letters}")]
    if not letters.isascii() or len(letters) > _MAX_PRODUCT:
        return [token]
    if letters.isupper() and len(set(letters)) == _MAX_PRODUCT and after not in ("^", "'", "_"):
        # Three points, whose order matters.
        return [token._replace(kind="name")]
    return [Token("name", letter, token.gap and not index, token.text) for index, letter in enumerate(letters)]


def _known_word(token: Token, lower: str, previous: Token | None) -> Token | None:
    if lower in vocabulary.CONNECTIVES:
        return token._replace(kind="connective", value=vocabulary.CONNECTIVES[lower])
    if lower == "pi":
        return token._replace(kind="constant", value="pi")
    if lower in vocabulary.INFINITE_WORDS:
        return token._replace(kind="constant", value="infinity")
    if lower in ("percent", "pct"):
        return token._replace(kind="percent", value="%")
    if token.value in vocabulary.FUNCTIONS:
        return token._replace(kind="function", value=vocabulary.FUNCTIONS[token.value])
    if lower in ("union", "u") and previous is not None and previous.value in (")", "]") and token.gap:
        return token._replace(kind="set operation", value="union")
    if token.value == "in" and previous is not None and previous.kind == "name":
        return token._replace(kind="in", value="")
    return None


def _in_unit_position(before: list[Token]) -> bool:
    """Whether a unit may stand here: after a number or a bracket, or within a unit."""
    if not before:
        return False
    previous = before[-1]
    if previous.kind in ("number", "unit", "unit word", "constant", "degree") or (
        previous.kind == "close" and previous.value != "rbrace"
    ):
        return True
    return previous.value in ("/", "*", "^") and len(before) > 1 and before[-2].kind == "unit"
