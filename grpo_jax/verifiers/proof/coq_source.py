"""Reads Coq sources far enough to tell commands from comments, strings and names.

This is a first filter, and it need not be perfect: whatever it lets through is still judged by a process that the
model's text never ran in.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

STRING = '"'
"""Stands for any string among a sentence's words."""

_STRING = r'"[^"]*(?:""[^"]*)*(?:"|\Z)'
_TOKEN = re.compile(
    rf"(?P<space>\s+)|(?P<comment>\(\*)|(?P<string>{_STRING})|(?P<end>\.(?:\.\.)?(?=\s|\Z|\(\*))"
    r"|(?P<word>[^\W\d][\w']*|\d\w*)|(?P<other>.)",
    re.DOTALL,
)
_COMMENT_PART = re.compile(rf"(?P<open>\(\*)|(?P<close>\*\))|{_STRING}")

_REFUSED = (
    ("Declare", "ML", "Module"),
    ("Load",),
    ("Cd",),
    ("Drop",),
    ("Quit",),
    ("Add", "LoadPath"),
    ("Add", "Rec", "LoadPath"),
    ("Add", "ML", "Path"),
    ("Add", "Rec", "ML", "Path"),
    ("Remove", "LoadPath"),
    ("Extraction",),
    ("Recursive", "Extraction"),
    ("Separate", "Extraction"),
    ("Set", "Extraction"),
    ("Set", "Typing", "Flags"),
    ("Rewrite", "Rule"),
    ("Rewrite", "Rules"),
)
_MODIFIERS = frozenset(
    {"Local", "Global", "Export", "Polymorphic", "Monomorphic", "Cumulative", "NonCumulative", "Private", "Program"}
    | {"Fail", "Succeed", "Time", "Instructions", "-", "+", "*", "{", "}", ":"}
)
_WITH_ARGUMENT = frozenset({"Timeout", "Redirect"})
_SETTINGS = frozenset({"Require", "From", "Import", "Open", "Close", "Set", "Unset", "Delimit", "Bind"})


class Sentence(NamedTuple):
    """One command or tactic.

    Attributes:
        words: Its words and signs, without comments.
        text: Its text.
    """

    words: tuple[str, ...]
    text: str


def sentences(source: str) -> Iterator[Sentence]:
    """Splits a source at the points that end commands; what follows the last one comes last."""
    words: list[str] = []
    position = start = 0
    while position < len(source):
        match = _TOKEN.match(source, position)
        assert match is not None, "any character is a token"
        position = _comment_end(source, match.end()) if match.lastgroup == "comment" else match.end()
        if match.lastgroup == "end":
            yield Sentence(tuple(words), source[start:position])
            words, start = [], position
        elif match.lastgroup == "string":
            words.append(STRING)
        elif match.lastgroup in ("word", "other"):
            words.append(match.group())
    if words:
        yield Sentence(tuple(words), source[start:])


def _comment_end(source: str, position: int) -> int:
    """Where a comment ends that was opened before; comments nest, and strings in them hide their ends."""
    depth = 1
    for match in _COMMENT_PART.finditer(source, position):
        depth += {"open": 1, "close": -1}.get(match.lastgroup or "", 0)
        if depth == 0:
            return match.end()
    return len(source)


def refused_command(source: str, forbidden: Sequence[str] = ()) -> str | None:
    """Finds a command that no proof needs and that reaches out of it.

    Args:
        source: The model's text.
        forbidden: Further phrases, refused wherever they stand in the code.

    Returns:
        The command's name, or ``None``.
    """
    phrases = {phrase: tuple(word for sentence in sentences(phrase) for word in sentence.words) for phrase in forbidden}
    for sentence in sentences(source):
        words = sentence.words
        if "bypass_check" in words:
            return "bypass_check"
        for phrase, wanted in phrases.items():
            if any(words[at : at + len(wanted)] == wanted for at in range(len(words))):
                return phrase
        words = _bare(words)
        if words[:1] == ("Unset",) and words[-1] == "Checking":
            return " ".join(words)
        for refused in _REFUSED:
            if words[: len(refused)] == refused:
                return " ".join(refused)
    return None


def _bare(words: tuple[str, ...]) -> tuple[str, ...]:
    """Drops what may stand before a command: attributes, modifiers, bullets and selectors of goals."""
    while words:
        if words[0] in _MODIFIERS or (words[0] == "Profile" and words[1:2] != (STRING,)):
            words = words[1:]
        elif words[0] in _WITH_ARGUMENT or words[0] == "Profile" or words[1:2] == (":",):
            words = words[2:]
        elif words[:2] == ("#", "["):
            words = words[2 + _bracket_length(words[2:]) :]
        elif words[0] == "[":
            words = words[1 + _bracket_length(words[1:]) :]
        else:
            break
    return words


def _bracket_length(words: Sequence[str]) -> int:
    depth = itertools.accumulate(({"[": 1, "]": -1}.get(word, 0) for word in words), initial=1)
    return next((length for length, level in enumerate(depth) if level == 0), len(words))


def is_bare_proof(source: str) -> bool:
    """Whether a text starts with ``Proof``: it proves the statement without repeating it."""
    first = next(sentences(source), None)
    return first is not None and first.words[:1] == ("Proof",)


def context(preamble: str, name: str) -> str:
    """What a proof needs to see of a statement's preamble.

    Args:
        preamble: The preamble, which is a part of the compiled statement's module.
        name: That module.

    Returns:
        Its imports, scopes and options once more, and an import of the module if it defines something.
    """
    parts = list(sentences(preamble))
    settings = [part for part in parts if not _SETTINGS.isdisjoint(_bare(part.words)[:1])]
    lines = [part.text.strip() for part in settings]
    if len(settings) < len(parts):
        lines.append(f"Require Import {name}.")
    return "\n".join(lines)
