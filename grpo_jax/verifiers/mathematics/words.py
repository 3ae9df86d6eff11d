"""Answers in words: when a text is one, and when two of them say the same."""

import re

from grpo_jax.verifiers.mathematics import vocabulary
from grpo_jax.verifiers.mathematics.surface import Surface, normal_spacing

_WORDS = re.compile(r"[^\W\d_]+(?:[\s,'.?!-]+[^\W\d_]+)*[\s'.?!]*")
_FORMAT = re.compile(r"\\(?:" + "|".join(sorted(vocabulary.TEXT_COMMANDS, key=len, reverse=True)) + r")\s*(?=\{)")
_VOWELS = frozenset("eiou")
_PRODUCT_LETTERS = frozenset("abcdxyz")

_SAME = {
    **dict.fromkeys(("does not exist", "doesn't exist", "d.n.e", "dne", "the limit does not exist"), "does not exist"),
    **dict.fromkeys(("no solution", "no solutions", "there is no solution", "there are no solutions"), "no solution"),
    **dict.fromkeys(("no real solution", "no real solutions"), "no real solution"),
    **dict.fromkeys(("undefined", "not defined", "is undefined"), "undefined"),
    **dict.fromkeys(("infinitely many", "infinitely many solutions"), "infinitely many"),
}


def is_words(surface: Surface) -> bool:
    """Whether an answer consists of words rather than of letters that are variables.

    Args:
        surface: The answer without its surroundings.

    Returns:
        ``True`` for ``Evelyn``, ``no`` or ``the x-axis``; ``False`` for ``A``, ``xy``, ``pi`` or ``sin x``.
    """
    content = surface.content
    if not _WORDS.fullmatch(content):
        return False
    parts = re.findall(r"[^\W\d_]+", content)
    if len(parts) == 1 and surface.is_text and len(parts[0]) > 1:
        return parts[0].casefold() not in vocabulary.INFINITE_WORDS
    return not all(_is_mathematics(part) for part in parts)


def _is_mathematics(part: str) -> bool:
    lower = part.casefold()
    if len(part) == 1 or lower in vocabulary.CONNECTIVES or lower in vocabulary.INFINITE_WORDS or lower == "pi":
        return True
    if part in vocabulary.FUNCTIONS or part in vocabulary.GREEK:
        return True
    if len(part) > 3 or not part.isascii() or not part.islower() or _VOWELS & set(part):
        return False
    if len(part) < 3 or set(part) <= _PRODUCT_LETTERS:
        return True
    # Words such as cat and sky are no products; kxy may be one.
    return "a" not in part and ("y" not in part or bool(set(part) & {"x", "z"}))


def normal_words(content: str) -> str:
    """The text without case, spacing, text commands, quotation marks and final punctuation.

    Args:
        content: The answer without its surroundings.

    Returns:
        A text that is equal for equal answers in words.
    """
    content = _FORMAT.sub("", content)
    content = content.replace("{", "").replace("}", "").replace("$", "").strip().casefold()
    content = normal_spacing(content).strip("\"' ").rstrip(".!;,")
    return _SAME.get(content, content)
