"""From the text of an answer to a typed answer."""

import fractions
import re
from typing import NamedTuple

from grpo_jax.verifiers.mathematics import numerals, spans, vocabulary
from grpo_jax.verifiers.mathematics.answers import (
    ELLIPSIS,
    Answer,
    BaseNumber,
    Expression,
    Listing,
    RealSet,
    Relation,
    SetOperation,
    Text,
)
from grpo_jax.verifiers.mathematics.brackets import Token
from grpo_jax.verifiers.mathematics.conventions import outside
from grpo_jax.verifiers.mathematics.limits import MAX_ITEMS, UnreadableError
from grpo_jax.verifiers.mathematics.parts import read_part
from grpo_jax.verifiers.mathematics.regions import ALL_REALS, region_of
from grpo_jax.verifiers.mathematics.surface import Surface, normal_spacing
from grpo_jax.verifiers.mathematics.tokens import tokenize
from grpo_jax.verifiers.mathematics.tree import Apply, Number, Symbol
from grpo_jax.verifiers.mathematics.words import is_words, normal_words

_MAX_PLUS_MINUS = 3
_MAX_SPECIAL_CHARACTERS = 200
_ALL_REALS = frozenset(("all real numbers", "all reals", "the real numbers", "the set of all real numbers"))
_OUTWARD_BRACKETS = re.compile(r"([\[\]])([^\[\](){};]*)([\[\]])")
_BASE_NUMBER = re.compile(
    r"\(?\s*(?:\\(?:text|mathrm)\s*\{\s*)?([0-9A-F][0-9A-Fa-f]*)\s*\}?\s*\)?\s*_\s*"
    r"(?:\{\s*)?(?:\\(?:text|mathrm)\s*\{\s*)?([0-9]{1,2}|[a-z]+)\s*\}?\s*\}?"
)
_CLOCK = re.compile(
    r"(1[0-2]|0?[1-9])(?:\s*:\s*([0-5]\d)(?:\s*:\s*([0-5]\d))?)?\s*(?:\\text\s*\{)?\s*([AaPp])\.?\s*[Mm]\.?\s*\}?"
)

_FIGURE = re.compile(r"\\(angle|triangle) ?\{?([A-Z]{1,3})\}?")
_RESIDUE = re.compile(
    r"(?:([A-Za-z]) ?\\equiv ?)?(-?[0-9]{1,30}) ?(?:\\ )?"
    r"(?:\\pmod|\( ?\\?(?:mod|bmod|text ?\{ ?mod ?\}|mathrm ?\{mod\})) ?(?:\\ )?\{? ?([0-9]{1,30}) ?\}?\)?"
)


class Reading(NamedTuple):
    """One way to read what can be read in several ways.

    Attributes:
        thousands: Whether ``1,234`` is one number rather than two.
        scientific: Whether ``2e-1`` is 0.2 rather than ``2 e - 1``.
        short_units: Whether ``5 m`` is a length rather than ``5 * m``.
    """

    thousands: bool = True
    scientific: bool = True
    short_units: bool = False


def read(surface: Surface, reading: Reading | None = None, decimal_comma: bool = False) -> Answer:
    """Reads an answer.

    Args:
        surface: The answer without its surroundings.
        reading: How to read what is ambiguous; by default as in plain use.
        decimal_comma: Whether a single comma between digits is a decimal point.

    Returns:
        The typed answer; ``Text`` with ``read=False`` where nothing else fits.
    """
    reading = reading or Reading()
    if is_words(surface):
        words = normal_words(surface.content)
        if words in vocabulary.NUMBER_WORDS:
            return Expression(Number(fractions.Fraction(vocabulary.NUMBER_WORDS[words])))
        return RealSet(ALL_REALS) if words in _ALL_REALS else Text(words)
    try:
        return _read_mathematics(surface.content, reading, decimal_comma)
    except UnreadableError:
        words = normal_words(surface.content)
        if any(mark in surface.content for mark in "\\^_=<>"):
            return Text(normal_spacing(surface.content), read=False)
        return Text(words, read=bool(re.search(r"[^\W\d_]{3}", words)))


def _read_mathematics(content: str, reading: Reading, decimal_comma: bool) -> Answer:
    special = _special_form(content)
    if special is not None:
        return special
    outward = _OUTWARD_BRACKETS.fullmatch(content)
    if outward is not None and outward[1] + outward[3] != "[]" and "," in outward[2]:
        # ]0,1[ is the open interval.
        content = ("(" if outward[1] == "]" else "[") + outward[2] + (")" if outward[3] == "[" else "]")
    if decimal_comma:
        content = re.sub(r"^([+-]?\d+),(\d+)$", r"\1.\2", content)
    if not reading.scientific:
        content = re.sub(r"(?<=\d)e(?=[+-]\d)", " e ", content)
    tokens = tokenize(content, reading.short_units)
    tokens = numerals.join_thousands(tokens, reading.thousands)
    return read_tokens(tokens)


def _special_form(content: str) -> Answer | None:
    # The patterns allow space in many places: they must not meet a long run of it.
    content = " ".join(content.split())
    if len(content) > _MAX_SPECIAL_CHARACTERS:
        return None
    base = _BASE_NUMBER.fullmatch(content)
    if base is not None:
        number = int(base[2]) if base[2].isdigit() else vocabulary.NUMBER_WORDS.get(base[2], 0)
        digits = base[1].upper().lstrip("0") or "0"
        plain_digits = base[1].isdigit() or number > 10
        if 2 <= number <= 36 and plain_digits:
            if any(int(digit, 36) >= number for digit in digits):
                raise UnreadableError("a digit outside its base")
            return Expression(Number(fractions.Fraction(digits))) if number == 10 else BaseNumber(digits, number)
    clock = _CLOCK.fullmatch(content)
    if clock is not None:
        hour, minute, second, half = clock.groups()
        return Text(f"{int(hour)}:{minute or '00'}:{second or '00'} {half.lower()}m")
    figure = _FIGURE.fullmatch(content)
    if figure is not None:
        return Text(f"{figure[1]} {figure[2]}".casefold())
    return _residue(content)


def _residue(content: str) -> Answer | None:
    r"""Reads ``x \equiv 5 \pmod 6`` and ``5 \pmod 6``."""
    residue = _RESIDUE.fullmatch(content)
    if residue is None or int(residue[3]) == 0:
        return None
    name, modulus = residue[1], int(residue[3])
    numbers = (Number(fractions.Fraction(number)) for number in (int(residue[2]) % modulus, modulus))
    value = Expression(Apply("call residue", tuple(numbers)))
    return value if name is None else Relation((Expression(Symbol(name)), value), ("=",), name)


def read_tokens(tokens: list[Token]) -> Answer:
    """Reads the tokens of a whole answer: one part or a list of parts.

    Args:
        tokens: Tokens with matched brackets.

    Returns:
        The typed answer.

    Raises:
        UnreadableError: if there is no reading.
    """
    if not tokens:
        raise UnreadableError("empty")
    if any(token.value == "mp" for token in tokens):
        # Signs that go together are chosen for the whole answer.
        return _combine(_both_signs(tokens), ["or"])
    parts, joints = spans.split_list(tokens)
    if len(parts) > MAX_ITEMS:
        raise UnreadableError("too many parts")
    items: list[Answer] = []
    for part in parts:
        if [token.kind for token in part] == ["ellipsis"]:
            items.append(ELLIPSIS)
        elif any(token.kind == "plus minus" for token in part) and part[0].value != "lbrace":
            items.extend(_both_signs(part))
        else:
            items.append(read_part(part, read_tokens))
    return items[0] if len(items) == 1 else _combine(items, joints or ["or"])


def _combine(items: list[Answer], written_joints: list[str]) -> Answer:
    logical = any(joint in ("land", "lor") for joint in written_joints)
    joints = [{"land": "and", "lor": "or"}.get(joint, joint) for joint in written_joints]
    mixed = len(set(joints)) > 1
    regions = [region_of(item) for item in items]
    stated = [isinstance(item, RealSet | Relation) for item in items]
    if not mixed and joints[0] in ("or", "and") and all(stated) and all(regions):
        variables = {region.variable for region in regions if region is not None}
        if len(variables) == 1 and not all(isinstance(item, Relation) and "=" in item.operators for item in items):
            return _joined_region([region for region in regions if region is not None], joints[0])
    if joints == [","] and all(stated) and all(regions):
        apart = outside([region for region in regions if region is not None])
        if apart is not None:
            return apart
    joint = " ".join(joints if mixed else joints[:1]) if logical or all(stated) else ""
    joint = "" if joint == "," else joint
    sequence = ELLIPSIS in items or (mixed and bool(joint))
    first = items[0]
    if isinstance(first, Relation) and first.name is not None and set(first.operators) == {"="}:
        values, same = [], True
        for item in items:
            if isinstance(item, Relation):
                same &= item.name == first.name and item.operators == ("=",)
                values.append(item.sides[-1])
            else:
                values.append(item)
        if same:
            return Listing(tuple(values), first.name, sequence, joint)
        if not all(isinstance(item, Relation) for item in items):
            raise UnreadableError("a list of equations and values")
        # x = 1, y = 2 holds at once.
        joint = joint or "and"
    return Listing(tuple(items), None, sequence, joint)


def _joined_region(sets: list[RealSet], joint: str) -> RealSet:
    region = sets[0].region
    for following in sets[1:]:
        region = SetOperation("union" if joint == "or" else "intersection", region, following.region)
    return RealSet(region, sets[0].variable)


def _both_signs(tokens: list[Token]) -> list[Answer]:
    r"""``a \pm b`` is both values; minus-plus goes with plus-minus, several plus-minus are independent."""
    places = [index for index, token in enumerate(tokens) if token.kind == "plus minus"]
    if len(places) > _MAX_PLUS_MINUS:
        raise UnreadableError("too many signs")
    linked = any(tokens[index].value == "mp" for index in places)
    answers: list[Answer] = []
    for choice in range(2 if linked else 2 ** len(places)):
        signed = list(tokens)
        for number, index in enumerate(places):
            minus = bool(choice & 1) if linked else bool(choice >> number & 1)
            minus ^= tokens[index].value == "mp"
            signed[index] = Token("operator", "-" if minus else "+", tokens[index].gap)
        answer = read_tokens(signed)
        answers.extend(answer.items if isinstance(answer, Listing) else [answer])
    return answers
