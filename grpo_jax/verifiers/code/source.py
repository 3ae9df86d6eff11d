"""Finds the program in a completion's text."""

import re
from typing import Literal, NamedTuple

from grpo_jax.records import Completion, FinishReason
from grpo_jax.verifiers.extract import THINK_CLOSE, THINK_OPEN

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n]*$", re.MULTILINE)


class Source(NamedTuple):
    """The result of looking for a program.

    Attributes:
        text: The program, or ``None`` where there is none.
        reason: ``"found"``, or a stable phrase that says why there is none.
    """

    text: str | None
    reason: str


def extract_source(
    completion: Completion,
    extraction: Literal["fenced", "whole"],
    max_characters: int,
    languages: tuple[str, ...] = ("python", "py", "python3"),
) -> Source:
    """Finds the program that a finished completion ends with.

    Everything up to the last ``</think>`` is dropped. An unclosed ``<think>`` or a block without an end leaves none.

    Args:
        completion: The completion; a truncated one has no program.
        extraction: ``fenced`` takes the last fenced block that names one of the languages or none; ``whole`` takes
            all of the text.
        max_characters: Longest program.
        languages: Names of the language, in lower case.

    Returns:
        The program, or the reason why there is none: ``"truncated"``, ``"no code block"``, ``"empty program"`` or
        ``"program too long"``.
    """
    if completion.finish == FinishReason.LENGTH:
        return Source(None, "truncated")
    text = completion.text.rpartition(THINK_CLOSE)[2]
    if extraction == "fenced":
        found = _last_block(text.partition(THINK_OPEN)[0], languages)
        if found is None:
            return Source(None, "no code block")
        text = found
    if not text.strip():
        return Source(None, "empty program")
    if len(text) > max_characters:
        return Source(None, "program too long")
    return Source(text, "found")


def _last_block(text: str, languages: tuple[str, ...]) -> str | None:
    last, opened = None, None
    for fence in _FENCE.finditer(text):
        marks, language = fence.group(1), fence.group(2).lower()
        if opened is None:
            opened = (marks, language, fence.end() + 1)
        elif not language and marks.startswith(opened[0]):
            if not opened[1] or opened[1] in languages:
                last = text[opened[2] : fence.start()]
            opened = None
    return last
