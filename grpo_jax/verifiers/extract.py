"""Strict extraction of the final answer from a completion's text.

Only linear searches run on the model's text, and the answer's length is capped here, so
that whatever parses the answer never sees a long one.
"""

import re
from typing import NamedTuple

from grpo_jax.records import Completion, FinishReason

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"
MAX_ANSWER_CHARACTERS = 10_000

_ANSWER_OPENING = re.compile(
    r"^[ \t>#*_]*(?:the[ \t]+)?(?:final[ \t]+)?answer[*_]*[ \t]*[:\uff1a][*_]*\s*"
    r"|^[ \t>#*_]*(?:the[ \t]+)?final[ \t]+answer[ \t*_]*\n\s*"
    r"|^[ \t]*####[ \t]*"
    r"|\bthe[ \t]+(?:final[ \t]+|correct[ \t]+)?answer[ \t]+is[ \t]*:?",
    re.IGNORECASE | re.MULTILINE,
)
_SENTENCE_END = re.compile(r"\.[*_$)]*(?=\s|$)|\n")


class Extraction(NamedTuple):
    """The result of looking for an answer.

    Attributes:
        answer: The answer without surrounding white space, or ``None`` where there is none.
        reason: ``"found"``, or a stable phrase that says why there is no answer.
    """

    answer: str | None
    reason: str


def after_thinking(text: str) -> tuple[str, bool]:
    """What a completion shows: the text after the last ``</think>``, up to a ``<think>`` that is never closed.

    Args:
        text: The completion's text.

    Returns:
        The shown text, and whether a think part is left open after it.
    """
    shown, unclosed_think, _ = text.rpartition(THINK_CLOSE)[2].partition(THINK_OPEN)
    return shown, bool(unclosed_think)


def extract_answer(completion: Completion) -> Extraction:
    """Finds the one ``<answer>`` block at the end of a finished completion.

    Everything up to the last ``</think>`` is dropped, and so is everything from a ``<think>`` that
    is never closed: an answer inside the think part does not count. What is left must hold exactly
    one block, with nothing but white space after it. Text before the block is allowed.

    Args:
        completion: The completion; a truncated one has no answer.

    Returns:
        The answer, or the reason why there is none: ``"truncated"``, ``"no answer block"``,
        ``"several answer blocks"``, ``"text after the answer block"``, ``"empty answer"`` or
        ``"answer too long"``.
    """
    if completion.finish == FinishReason.LENGTH:
        return Extraction(None, "truncated")
    shown, unclosed_think = after_thinking(completion.text)
    if shown.count(ANSWER_OPEN) > 1 or shown.count(ANSWER_CLOSE) > 1:
        return Extraction(None, "several answer blocks")
    start, end = shown.find(ANSWER_OPEN), shown.find(ANSWER_CLOSE)
    if start < 0 or end < start:
        return Extraction(None, "no answer block")
    if unclosed_think or shown[end + len(ANSWER_CLOSE) :].strip():
        return Extraction(None, "text after the answer block")
    return _bounded(shown[start + len(ANSWER_OPEN) : end])


def extract_whole(completion: Completion) -> Extraction:
    """Takes the whole text of a finished completion for its answer.

    Args:
        completion: The completion; a truncated one has no answer.

    Returns:
        The answer, or the reason why there is none: ``"truncated"``, ``"empty answer"`` or ``"answer too long"``.
    """
    if completion.finish == FinishReason.LENGTH:
        return Extraction(None, "truncated")
    return _bounded(completion.text)


def _bounded(text: str) -> Extraction:
    answer = text.strip()
    if not answer:
        return Extraction(None, "empty answer")
    if len(answer) > MAX_ANSWER_CHARACTERS:
        return Extraction(None, "answer too long")
    return Extraction(answer, "found")


class AnswerLine(NamedTuple):
    """What a text says that the answer is.

    Attributes:
        start: Where the saying begins.
        end: Where the sentence or line ends.
        content: The answer.
    """

    start: int
    end: int
    content: str


def answer_lines(text: str) -> list[AnswerLine]:
    """Finds what follows ``The answer is`` in a sentence, or ``Answer:`` at the start of a line.

    Args:
        text: Any text.

    Returns:
        The answers in order, up to the end of the sentence or line.
    """
    answers: list[AnswerLine] = []
    position = 0
    while (opening := _ANSWER_OPENING.search(text, position)) is not None:
        start, position = opening.start(), opening.end()
        while (again := _ANSWER_OPENING.match(text, position)) is not None and again.end() > position:
            # Final Answer: The final answer is 5.
            position = again.end()
        end = _SENTENCE_END.search(text, position)
        content_start = position
        # The signs after the full stop belong to the sentence: **42.**
        position = len(text) if end is None else max(end.end(), position)
        answers.append(AnswerLine(start, position, text[content_start:position].strip()))
    return answers


def sentence_around(text: str, start: int, end: int) -> tuple[int, int]:
    """The bounds of the sentence or line that a part of a text stands in.

    Args:
        text: Any text.
        start: Where the part begins.
        end: Where it ends.

    Returns:
        Where the sentence begins and ends.
    """
    line = text.rfind("\n", 0, start) + 1
    first = max((match.end() for match in _SENTENCE_END.finditer(text, line, start)), default=line)
    closing = _SENTENCE_END.search(text, end)
    return first, len(text) if closing is None else closing.end()
