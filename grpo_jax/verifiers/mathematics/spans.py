"""Cutting a list of tokens at the top level, outside all brackets."""

from collections.abc import Callable

from grpo_jax.verifiers.mathematics.brackets import Token, match_brackets
from grpo_jax.verifiers.mathematics.limits import UnreadableError


def split(tokens: list[Token], cuts: Callable[[Token], bool]) -> tuple[list[list[Token]], list[Token]]:
    """Cuts at every token outside brackets (and environments) that ``cuts`` accepts.

    Args:
        tokens: Tokens with matched brackets.
        cuts: Whether to cut at a token.

    Returns:
        The parts, and the tokens between them (one fewer).
    """
    parts: list[list[Token]] = [[]]
    between: list[Token] = []
    depth = 0
    for token in tokens:
        depth += (token.kind in ("open", "begin")) - (token.kind in ("close", "end"))
        if depth == 0 and cuts(token):
            between.append(token)
            parts.append([])
        else:
            parts[-1].append(token)
    return parts, between


def split_list(tokens: list[Token]) -> tuple[list[list[Token]], list[str]]:
    """Cuts a list at its commas, semicolons, ``and`` and ``or``; ``, and`` is one cut.

    Args:
        tokens: Tokens with matched brackets.

    Returns:
        The parts, and what joins them: ``and``, ``or``, ``land``, ``lor`` or ``,``. A final ``and`` or ``or`` speaks
        for the commas before it.

    Raises:
        UnreadableError: if a part is empty.
    """
    parts, between = split(tokens, lambda token: token.kind in ("separator", "connective"))
    kept, joints = [parts[0]], []
    for token, part in zip(between, parts[1:], strict=True):
        joint = token.value if token.kind == "connective" else ","
        if not kept[-1] and joints and joints[-1] == "," and joint != ",":
            kept.pop()
            joints.pop()
        kept.append(part)
        joints.append(joint)
    if any(not part for part in kept):
        raise UnreadableError("an empty part")
    if joints and joints[-1] != "," and all(joint in (",", joints[-1]) for joint in joints):
        joints = [joints[-1]] * len(joints)
    return kept, joints


def enclosed(tokens: list[Token]) -> list[Token] | None:
    """What stands between an opening bracket and its partner if these are the first and the last token."""
    if len(tokens) < 2 or tokens[0].kind != "open" or tokens[-1].kind != "close":
        return None
    return tokens[1:-1] if match_brackets(tokens)[0] == len(tokens) - 1 else None
