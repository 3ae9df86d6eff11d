r"""What stands around a box or beside an answer: a formula that it is a part of, or words that take it back."""

import re
from typing import NamedTuple

from grpo_jax.boxes import Box
from grpo_jax.verifiers.extract import AnswerLine, sentence_around
from grpo_jax.verifiers.mathematics.units import canonical_name

MAX_BOXES = 100
"""Boxes of one text; each is looked at with the sentence around it."""

_HEDGE = re.compile(
    r"(?<![A-Za-z\\])(?:not|no|nor|isn'?t|aren'?t|doesn'?t|don'?t|cannot|can'?t|never|either|neither|false|wrong|incorrect|"
    r"mistaken|mistake|maybe|perhaps|possibly|might|wait|instead|unless|except|rather|unlikely|unsure|doubt|hmm|sorry|"
    r"plus|minus|times|more|less|than)(?![A-Za-z])",
    re.IGNORECASE,
)
_RETRACTION = re.compile(
    r"(?<![A-Za-z\\])(?:no[,.]? wait|wait|wrong|incorrect|mistaken|mistake|instead|sorry|correction|actually|hmm|"
    r"scratch that|not (?:right|correct|true)|isn'?t|either way|or (?:maybe|perhaps|possibly|rather))(?![A-Za-z])",
    re.IGNORECASE,
)
_DELIMITER = r"(?:\\[()\[\]]|\$|[*_`]|\s|\\(?:[,;:! ]|q?quad|displaystyle)(?![A-Za-z]))"
# What may stand right before a box that is no part of a formula.
_BEFORE = re.compile(
    rf"(?:^|\n\s*\n|(?:\$|\\[)\]])\s*\n|(?<![A-Za-z\\])[A-Za-z]{{2,}}|[.:]|(?<![!<>:=~])=){_DELIMITER}*$"
)
_AFTER = re.compile(rf"{_DELIMITER}*(?:[.,;:!]{_DELIMITER}*)?")
_WORDS = re.compile(r"[A-Za-z,.;:'\s]*")
_HYPHEN = re.compile(r"(?<=[A-Za-z])-(?=[A-Za-z])")
# Far more than a few signs between a word and a box; keeps the search short.
_MAX_LOOK_BACK = 200


class Found(NamedTuple):
    """The answers that boxes stand for.

    Attributes:
        answers: In order; none if words take one of them back.
        reason: ``found``, or why there is none.
    """

    answers: list[str]
    reason: str


def answers_in_boxes(text: str, boxes: list[Box], *, by_sentence: bool, last_only: bool) -> Found:
    """Decides for every box whether it is the answer, or a part of a longer answer.

    Args:
        text: The text with the boxes.
        boxes: Its boxes, at least one.
        by_sentence: Whether only the sentence around a box speaks about it; otherwise the whole text does.
        last_only: Whether only the last box is an answer.

    Returns:
        The content of a box that stands alone, or what it is a part of.
    """
    if len(boxes) > MAX_BOXES and not last_only:
        return Found([], "too many boxes")
    answers: list[str] = []
    seen: set[tuple[int, int]] = set()
    for number, box in enumerate(boxes):
        if last_only and number < len(boxes) - 1:
            continue
        start, end = sentence_around(text, box.start, box.end) if by_sentence else (0, len(text))
        if (start, end) not in seen and _HEDGE.search(_without(text, boxes, start, end)):
            return Found([], "hedged answer")
        seen.add((start, end))
        before = max(start, boxes[number - 1].end if number else 0)
        after = min(end, boxes[number + 1].start if number + 1 < len(boxes) else end)
        alone = box.depth == 0 and _stands_alone(
            text[before : box.start], text[box.end : after], before > start, after < end
        )
        answers.append(box.content if alone else text[start:end].strip())
    if by_sentence and _RETRACTION.search(text, boxes[-1].end):
        return Found([], "hedged answer")
    return Found(list(dict.fromkeys(answers)), "found")


def takes_back(text: str, lines: list[AnswerLine]) -> bool:
    """Whether words before or after the last answer of a text say that it is none.

    Args:
        text: The text.
        lines: Its answers, at least one.
    """
    last = lines[-1]
    start, _ = sentence_around(text, last.start, last.start)
    return bool(_HEDGE.search(text, start, last.start) or _RETRACTION.search(text, last.end))


def _without(text: str, boxes: list[Box], start: int, end: int) -> str:
    kept, position = [], start
    for box in boxes:
        if start <= box.start and box.end <= end:
            kept.append(text[position : box.start])
            position = box.end
    return " ".join([*kept, text[position:end]])


def _stands_alone(before: str, after: str, follows: bool, goes_on: bool) -> bool:
    """Whether a box, within its bounds, has nothing beside it but words, other boxes and punctuation."""
    if len(before) > _MAX_LOOK_BACK:
        before = "0" + before[-_MAX_LOOK_BACK:]
    if not follows and not _BEFORE.search(before):
        return False
    if goes_on:
        after = after.replace("=", " ")
    if not _WORDS.fullmatch(_HYPHEN.sub("", re.sub(_DELIMITER, " ", after))):
        return False
    if follows or goes_on:
        return True
    if re.search(r"(?<![A-Za-z])or(?![A-Za-z])", after):
        return False
    gap = _AFTER.match(after)
    word = re.match(r"[A-Za-z]+", after[gap.end() :] if gap is not None else after)
    return word is None or (len(word[0]) > 1 and canonical_name(word[0]) is None)
