"""Whether two answers are equal: each is read, and compared by its type."""

import dataclasses
import re

from grpo_jax.config.mathematics import MathematicsConfig
from grpo_jax.verifiers.mathematics.answers import Answer, Quantity, Text, kind, normal_form
from grpo_jax.verifiers.mathematics.comparison import Comparison
from grpo_jax.verifiers.mathematics.limits import Budget, TooLargeError, UndefinedError, UnreadableError
from grpo_jax.verifiers.mathematics.reader import Reading, read
from grpo_jax.verifiers.mathematics.surface import Surface, normal_spacing, strip_surroundings
from grpo_jax.verifiers.mathematics.worked import is_worked_out

_CHOICE = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice)\s+)?\(?\s*([A-Ja-j])\s*[).:]?")
_TEXT_GROUP = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf)\s*\{([^{}]*)\}")
_TEXT_LABEL = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf)\s*\{\s*\(")
_CHOICE_WITH_TEXT = re.compile(r"(?:\(([A-J])\)|([A-J])\s*[).:])\s*(\S.*)", re.DOTALL)
_SECOND_THOUGHT = re.compile(
    r"(?<![A-Za-z])(?:[A-J]|(?i:or|and|not|no|wrong|incorrect|false|isn|never|either|neither|maybe))(?![A-Za-z])"
)
_NO_READING = "the reference cannot be read"
_MAX_SHOWN_CHARACTERS = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Description:
    """How one answer was read.

    Attributes:
        text: What was left of it without its surroundings.
        kind: The type that it was read as.
        normal_form: Its canonical text.
    """

    text: str
    kind: str
    normal_form: str


@dataclasses.dataclass(frozen=True, slots=True)
class Judgement:
    """Whether an answer equals the reference, and why.

    Attributes:
        equal: The verdict.
        reason: A short, stable phrase.
        gold: How the reference was read.
        answer: How the answer was read.
        extracted: The answer's text as it came out of the completion.
        flags: ``unevaluated``, ``approximate``, ``unit_missing``, ``percent_ambiguous``, ``reordered``.
        error: The reference cannot be read, so that nothing can be said about the answer.
    """

    equal: bool
    reason: str
    gold: Description
    answer: Description
    extracted: str
    flags: tuple[str, ...] = ()
    error: bool = False


def judge(gold: str, answer: str, options: MathematicsConfig) -> Judgement:
    r"""Compares an answer with the reference answer.

    >>> judge("\\frac{1}{2}", "0.5", MathematicsConfig()).equal
    True

    Args:
        gold: The reference answer.
        answer: The text of the answer, without anything around it; never trusted.
        options: The conventions that count as equal.

    Returns:
        The judgement; this never raises and always ends, whatever the texts are.
    """
    try:
        gold_surface = strip_surroundings(gold)
    except UnreadableError as fault:
        return _unread(gold, answer, f"{_NO_READING}: {fault}", error=True)
    try:
        surface = strip_surroundings(answer)
    except UnreadableError as fault:
        return _unread(gold, answer, f"unreadable: {fault}")
    gold_read = read(gold_surface, decimal_comma=options.decimal_comma)
    if normal_spacing(gold_surface.content) == normal_spacing(surface.content):
        flags = () if is_worked_out(gold_read) else ("unevaluated",)
        description = _describe(gold_surface, gold_read)
        return Judgement(True, "identical", description, description, answer, flags)
    answer_read = read(surface, decimal_comma=options.decimal_comma)
    descriptions = _describe(gold_surface, gold_read), _describe(surface, answer_read)
    choice = _same_choice(gold_surface, surface, options)
    if choice is not None:
        return Judgement(choice, "equal" if choice else "not equal", *descriptions, answer)
    if gold_fault(gold, options):
        return Judgement(False, _NO_READING, *descriptions, answer, error=True)
    comparison = Comparison(options, Budget())
    sides = (gold_surface, gold_read), (surface, answer_read)
    if options.choice_with_text:
        sides = _without_labels(*sides, decimal_comma=options.decimal_comma)
    (_, gold_read), (_, answer_read) = sides
    equal, reason = _compare(comparison, *sides)
    flags = set(comparison.flags) if equal else set()
    if equal and is_worked_out(gold_read) and not is_worked_out(answer_read):
        flags.add("unevaluated")
    return Judgement(equal, reason, *descriptions, answer, tuple(sorted(flags)))


def gold_fault(gold: str, options: MathematicsConfig) -> str:
    """Says why a reference answer cannot be read.

    Args:
        gold: The reference answer.
        options: The options of the verifier.

    Returns:
        The fault, or an empty text. Only an answer with the very same text can be equal to such a reference.
    """
    try:
        surface = strip_surroundings(gold)
    except UnreadableError as fault:
        return f"{_NO_READING}: {fault}"
    reading = read(surface, decimal_comma=options.decimal_comma)
    if isinstance(reading, Text) and not reading.read and _labelled(surface) is None:
        return _NO_READING
    return ""


def _unread(gold: str, answer: str, reason: str, error: bool = False) -> Judgement:
    texts = [Description(text[:_MAX_SHOWN_CHARACTERS], "unreadable", "") for text in (gold, answer)]
    return Judgement(False, reason, texts[0], texts[1], answer, error=error)


def _describe(surface: Surface, answer: Answer) -> Description:
    return Description(
        surface.content[:_MAX_SHOWN_CHARACTERS], kind(answer), normal_form(answer)[:_MAX_SHOWN_CHARACTERS]
    )


def _compare(comparison: Comparison, gold: tuple[Surface, Answer], answer: tuple[Surface, Answer]) -> tuple[bool, str]:
    """Compares the usual readings, then the other ones that the texts allow."""
    reason = "not equal"
    for number, (gold_read, answer_read) in enumerate(_readings(gold, answer)):
        comparison.flags.clear()
        try:
            if comparison.equal(gold_read, answer_read):
                return True, "equal"
            found = comparison.reason
        except TooLargeError:
            found = "too large to evaluate"
        except UndefinedError:
            found = "undefined"
        reason = found if number == 0 else reason
    return False, reason


def _readings(gold: tuple[Surface, Answer], answer: tuple[Surface, Answer]) -> list[tuple[Answer, Answer]]:
    pairs = [(gold[1], answer[1])]
    contents = [gold[0].content, answer[0].content]
    other = Reading()
    if isinstance(gold[1], Quantity) != isinstance(answer[1], Quantity):
        other = other._replace(short_units=True)
    if any(re.search(r"\d,\d{3}", content) for content in contents):
        other = other._replace(thousands=False)
    if any(re.search(r"\de[+-]\d", content) for content in contents):
        other = other._replace(scientific=False)
    if other != Reading():
        again = read(gold[0], other), read(answer[0], other)
        pairs += [(again[0], answer[1]), (gold[1], again[1]), again]
    return pairs


def _labelled(surface: Surface) -> re.Match[str] | None:
    r"""Matches ``(B) 12``, ``B: 12`` and ``\textbf{(B)}\ 12``."""
    return _CHOICE_WITH_TEXT.fullmatch(_TEXT_GROUP.sub(r"\1", surface.content).replace("\\ ", " ").strip())


def _without_labels(
    gold: tuple[Surface, Answer], answer: tuple[Surface, Answer], *, decimal_comma: bool
) -> tuple[tuple[Surface, Answer], tuple[Surface, Answer]]:
    """Takes the letter of a choice off the text after it; two different letters stay."""
    found = [
        _labelled(surface) if isinstance(reading, Text) or _TEXT_LABEL.match(surface.content) else None
        for surface, reading in (gold, answer)
    ]
    letters = {match[1] or match[2] for match in found if match is not None}
    if len(letters) != 1:
        return gold, answer
    bare: list[tuple[Surface, Answer]] = []
    for side, match in zip((gold, answer), found, strict=True):
        if match is None:
            bare.append(side)
            continue
        surface = Surface(match[3], side[0].is_text)
        bare.append((surface, read(surface, decimal_comma=decimal_comma)))
    return bare[0], bare[1]


def _same_choice(gold: Surface, answer: Surface, options: MathematicsConfig) -> bool | None:
    """Compares two letters of a multiple choice; ``None`` if it is none."""
    first, second = (_TEXT_GROUP.sub(r"\1", surface.content) for surface in (gold, answer))
    letter = _CHOICE.fullmatch(first)
    if letter is None or not letter[1].isupper():
        letter, second = _CHOICE.fullmatch(second), first
        if letter is None or not letter[1].isupper():
            return None
    other = _CHOICE.fullmatch(second)
    if other is not None:
        # The letter i is a number.
        ignores_case = options.choice_ignores_case and letter[1] != "I"
        return letter[1] == (other[1].upper() if ignores_case else other[1])
    longer = _CHOICE_WITH_TEXT.fullmatch(second.replace("\\ ", " ").strip())
    if longer is None or not options.choice_with_text:
        return None
    if _SECOND_THOUGHT.search(longer[3]):
        return False
    return letter[1] in (longer[1], longer[2])
