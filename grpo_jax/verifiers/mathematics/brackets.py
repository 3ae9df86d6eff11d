"""Brackets: reading a braced group of a text, and pairing the brackets of a list of tokens."""

import re
from typing import NamedTuple

from grpo_jax.verifiers.mathematics import vocabulary
from grpo_jax.verifiers.mathematics.limits import MAX_NESTING, UnreadableError

_ARGUMENT = re.compile(r"\\[A-Za-z]+|\\.|.", re.DOTALL)


class Token(NamedTuple):
    r"""One token.

    Attributes:
        kind: What it is: ``number``, ``name``, ``word``, ``function``, ``operator``, ``relation``, ``open``, ...
        value: Its canonical spelling.
        gap: Whether white space stands before it.
        text: Whether it comes from ``\text{}`` or the like.
    """

    kind: str
    value: str
    gap: bool = False
    text: bool = False


def group(text: str, position: int) -> tuple[str, int]:
    """Reads a command's argument.

    Args:
        text: The whole text.
        position: Right after the command.

    Returns:
        What stands between balanced braces (or the next character or command), and where it ends.

    Raises:
        UnreadableError: if the braces are not balanced or there is no argument.
    """
    while position < len(text) and text[position].isspace():
        position += 1
    if position >= len(text):
        raise UnreadableError("missing argument")
    if text[position] != "{":
        match = _ARGUMENT.match(text, position)
        if match is None or match[0] == "}":
            raise UnreadableError("missing argument")
        return match[0], match.end()
    end = closing_brace(text, position)
    if end < 0:
        raise UnreadableError("unbalanced braces")
    return text[position + 1 : end], end + 1


_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)


def closing_brace(text: str, start: int) -> int:
    """Finds the brace that closes the one at ``start``; -1 if there is none. Escaped braces do not count."""
    depth = 0
    for match in _BRACES.finditer(text, start):
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
            if depth == 0:
                return match.start()
    return -1


def drop_doubled_brackets(tokens: list[Token]) -> list[Token]:
    """Replaces ``((x))`` by ``(x)`` and checks the depth of what is left.

    Args:
        tokens: Tokens with brackets.

    Returns:
        The same tokens without brackets that directly enclose another pair of round ones or braces.

    Raises:
        UnreadableError: for unmatched brackets or more than ``MAX_NESTING`` levels.
    """
    partners = match_brackets(tokens)
    dropped: set[int] = set()
    for start, end in partners.items():
        inner = start + 1
        if partners.get(inner) == end - 1 and tokens[start].value == tokens[inner].value in ("(", "{"):
            dropped |= {start, end}
    kept = [token for index, token in enumerate(tokens) if index not in dropped]
    depth = 0
    for token in kept:
        depth += (token.kind == "open") - (token.kind == "close")
        if depth > MAX_NESTING:
            raise UnreadableError("nested too deep")
    return kept


def match_brackets(tokens: list[Token]) -> dict[int, int]:
    """Finds the partner of every opening bracket; ``[`` and ``(`` may close each other, for intervals."""
    partners: dict[int, int] = {}
    stack: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind == "open":
            stack.append(index)
        elif token.kind == "close":
            if not stack:
                raise UnreadableError("unbalanced brackets")
            opening = tokens[stack[-1]].value
            if token.value != vocabulary.OPENING[opening] and not (opening in "([" and token.value in ")]"):
                raise UnreadableError("unbalanced brackets")
            partners[stack.pop()] = index
    if stack:
        raise UnreadableError("unbalanced brackets")
    return partners
