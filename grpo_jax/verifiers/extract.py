"""Strict extraction of the final answer from a completion's text.

Only literal, linear searches run on the model's text, and the answer's length is capped here, so
that whatever parses the answer never sees a long one.
"""

from typing import NamedTuple

from grpo_jax.records import Completion, FinishReason

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"
MAX_ANSWER_CHARACTERS = 10_000


class Extraction(NamedTuple):
    """The result of looking for an answer.

    Attributes:
        answer: The answer without surrounding white space, or ``None`` where there is none.
        reason: ``"found"``, or a stable phrase that says why there is no answer.
    """

    answer: str | None
    reason: str


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
    after_thinking = completion.text.rpartition(THINK_CLOSE)[2]
    shown, unclosed_think, _ = after_thinking.partition(THINK_OPEN)
    if shown.count(ANSWER_OPEN) > 1 or shown.count(ANSWER_CLOSE) > 1:
        return Extraction(None, "several answer blocks")
    start, end = shown.find(ANSWER_OPEN), shown.find(ANSWER_CLOSE)
    if start < 0 or end < start:
        return Extraction(None, "no answer block")
    if unclosed_think or shown[end + len(ANSWER_CLOSE) :].strip():
        return Extraction(None, "text after the answer block")
    answer = shown[start + len(ANSWER_OPEN) : end].strip()
    if not answer:
        return Extraction(None, "empty answer")
    if len(answer) > MAX_ANSWER_CHARACTERS:
        return Extraction(None, "answer too long")
    return Extraction(answer, "found")
