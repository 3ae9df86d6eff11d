"""What surrounds an answer without being part of it: delimiters, boxes, emphasis, a full stop."""

import re
from typing import NamedTuple

from grpo_jax.verifiers.mathematics import vocabulary
from grpo_jax.verifiers.mathematics.brackets import closing_brace
from grpo_jax.verifiers.mathematics.characters import to_ascii_mathematics
from grpo_jax.verifiers.mathematics.limits import MAX_CHARACTERS, UnreadableError
from grpo_jax.verifiers.mathematics.notation import plain_notation

_WRAPPER = re.compile(
    r"\\("
    + "|".join(sorted(vocabulary.TEXT_COMMANDS | vocabulary.TRANSPARENT_COMMANDS, key=len, reverse=True))
    + r")\s*\{"
)
_PAIRS = (
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ("$$", "$$"),
    ("$", "$"),
    ("***", "***"),
    ("**", "**"),
    ("*", "*"),
    ("__", "__"),
    ("`", "`"),
)
_LEADING_SPACE = re.compile(r"(?:\s|\\[,;:!> ]|\\q?quad(?![A-Za-z])|~)+")
_TRAILING_SPACE = ("\\,", "\\;", "\\:", "\\!", "\\>", "\\quad", "\\qquad", "\\ ", "~")
_MATHEMATICS_DELIMITER = re.compile(r"(?<!\\)\$")
_MAX_LAYERS = 60


class Surface(NamedTuple):
    r"""An answer without its surroundings.

    Attributes:
        content: What is left, in ASCII mathematics.
        is_text: Whether it stood in ``\text{}`` or the like.
    """

    content: str
    is_text: bool


def strip_surroundings(text: str) -> Surface:
    """Takes off mathematics delimiters, boxes, text commands, emphasis, outer space and a full stop.

    Args:
        text: An answer or a reference.

    Returns:
        What they surround.

    Raises:
        UnreadableError: for a text that is too long, empty, or holds control characters.
    """
    if len(text) > MAX_CHARACTERS:
        text = text.strip()
    if len(text) > MAX_CHARACTERS:
        raise UnreadableError("too long")
    content, is_text = to_ascii_mathematics(text), False
    if "~~" in content or re.match(r"[\s~]*~\s*\d", content):
        raise UnreadableError("struck out or approximate")
    for _ in range(_MAX_LAYERS):
        before = content
        content = _without_outer_space(content)
        content = _without_full_stop(content)
        content, text_command = _without_wrapper(content)
        is_text |= text_command
        content = _without_pair(content)
        if content == before:
            break
    content = plain_notation(_without_inner_delimiters(content))
    if not content:
        raise UnreadableError("empty")
    return Surface(content, is_text)


def _without_outer_space(content: str) -> str:
    leading = _LEADING_SPACE.match(content)
    if leading is not None:
        content = content[leading.end() :]
    while content:
        shorter = content if content.endswith("\\ ") else content.rstrip()
        for command in _TRAILING_SPACE:
            shorter = shorter.removesuffix(command)
        if shorter == content:
            break
        content = shorter
    return content


def _without_full_stop(content: str) -> str:
    if content.endswith(("\\\\",)):
        content = content[:-2]
    if content.endswith((",", ";")) and not content.endswith("\\", 0, -1):
        return content[:-1]
    if content.endswith("。") or (content.endswith(".") and not content.endswith("..")):
        return content[:-1]
    return content


def _without_wrapper(content: str) -> tuple[str, bool]:
    match = _WRAPPER.match(content)
    if match is not None and closing_brace(content, match.end() - 1) == len(content) - 1:
        return content[match.end() : -1], match[1] in vocabulary.TEXT_COMMANDS
    return content, False


def _without_pair(content: str) -> str:
    for opening, closing in _PAIRS:
        if len(content) < len(opening) + len(closing):
            continue
        if not (content.startswith(opening) and content.endswith(closing)):
            continue
        inner = content[len(opening) : -len(closing)]
        if opening in inner or closing in inner or inner.endswith("\\"):
            continue
        return inner
    return content


def _without_inner_delimiters(content: str) -> str:
    """Drops dollar signs that come in pairs around mathematics; a single one is a currency."""
    content = content.replace("\\(", "").replace("\\)", "") if "\\(" in content else content
    places = [match.start() for match in _MATHEMATICS_DELIMITER.finditer(content)]
    if len(places) < 2 or len(places) % 2:
        return content
    return _MATHEMATICS_DELIMITER.sub("", content)


def normal_spacing(content: str) -> str:
    """One canonical spacing, for comparing texts: runs of white space are one space, none stands beside a sign.

    Args:
        content: What ``strip_surroundings`` left.

    Returns:
        The text; a space stays only between two letters or digits, where it separates words or numbers.
    """
    content = re.sub(r"\\[,;:> ]|\\!|~|\s+", " ", content)
    content = re.sub(r"(\\[A-Za-z]+)\s+(?=[0-9])", r"\1", " ".join(content.split()))
    return re.sub(r"(?<![A-Za-z0-9]) | (?![A-Za-z0-9])", "", content)
