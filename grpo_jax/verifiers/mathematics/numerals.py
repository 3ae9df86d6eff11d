"""Written numbers: thousands separators, repeating decimals and scientific notation."""

import fractions
import re

from grpo_jax.verifiers.mathematics.brackets import Token
from grpo_jax.verifiers.mathematics.limits import MAX_DIGITS, UnreadableError
from grpo_jax.verifiers.mathematics.tree import Apply, Number, Tree

_MAX_WRITTEN_EXPONENT = 1_000


def join_thousands(tokens: list[Token], commas: bool = True) -> list[Token]:
    """Joins ``12,500``, ``12 500`` and ``12{,}500`` into one number each.

    Commas within brackets separate elements. A run of numbers that is not grouped in threes all the
    way is left as it is.

    Args:
        tokens: The tokens of one text.
        commas: Whether a comma outside brackets may group digits.

    Returns:
        The tokens with joined numbers.
    """
    joined: list[Token] = []
    index = 0
    separating: list[bool] = []
    while index < len(tokens):
        token = tokens[index]
        end = index + 1
        if token.kind == "open":
            separating.append(not (token.value == "{" and index > 0 and _takes_argument(tokens[index - 1])))
        elif token.kind == "close":
            separating.pop()
        elif token.kind == "number":
            end = _run_end(tokens, index)
            numbers = _grouped(tokens[index:end], commas and not any(separating))
            if numbers is not None:
                joined.append(token._replace(value=numbers))
                index = end
                continue
        joined.extend(tokens[index:end])
        index = end
    return joined


def _takes_argument(token: Token) -> bool:
    """Whether a brace after this token holds an argument rather than a set."""
    return token.kind in ("command", "decoration", "function") or token.value in ("^", "_", "}")


def _run_end(tokens: list[Token], index: int) -> int:
    """The end of the longest run of numbers that commas or spaces separate."""
    index += 1
    while index < len(tokens):
        token = tokens[index]
        separated = token.value in (",", "{,}", "'")
        if separated and index + 1 < len(tokens) and tokens[index + 1].kind == "number" and not token.gap:
            if tokens[index + 1].gap and token.value == ",":
                break
            index += 2
        elif token.kind == "number" and token.gap:
            index += 1
        else:
            break
    return index


def _grouped(run: list[Token], commas: bool) -> str | None:
    numbers = [token.value for token in run if token.kind == "number"]
    marks = {token.value if token.kind != "number" else " " for token in run[1:] if token.kind != "number" or token.gap}
    if len(numbers) < 2 or not re.fullmatch("[1-9][0-9]{0,2}", numbers[0]):
        return None
    whole, _, decimals = numbers[-1].partition(".")
    groups = [*numbers[1:-1], whole]
    if any(len(group) != 3 or not group.isdigit() for group in groups) or (decimals and not decimals.isdigit()):
        return None
    # A space after the comma of a LaTeX group, 12,\\!500, leaves no gap; a plain one makes a list.
    if not (marks in ({"{,}"}, {" "}, {"'"}) or (commas and marks == {","})):
        return None
    return "".join([numbers[0], *groups]) + ("." + decimals if decimals else "")


def decimal(text: str) -> Tree:
    """Reads ``12``, ``.5``, ``7.0`` or ``3e-5``.

    Args:
        text: A number token's text.

    Returns:
        The exact number; a product with an unevaluated power of ten if the exponent is very large.

    Raises:
        UnreadableError: if it is too long.
    """
    if text == "." or len(text) > MAX_DIGITS:
        raise UnreadableError("not a number")
    mantissa, _, exponent = text.replace("E", "e").partition("e")
    digits = len(mantissa.replace(".", "").lstrip("0")) if "." in mantissa else None
    number = Number(fractions.Fraction(mantissa), digits)
    if not exponent:
        return number
    if len(exponent) <= 5 and abs(int(exponent)) <= _MAX_WRITTEN_EXPONENT:
        return Number(number.value * fractions.Fraction(10) ** int(exponent), digits)
    if len(exponent) > 30:
        raise UnreadableError("number too long")
    power = Apply("pow", (Number(fractions.Fraction(10)), Number(fractions.Fraction(int(exponent)))))
    return Apply("mul", (number, power))


def repeating(text: str, period: str) -> Number:
    """The number whose decimals are ``text`` followed by ``period`` for ever.

    >>> repeating("0.1", "6").value
    Fraction(1, 6)

    Args:
        text: Digits with a decimal point.
        period: The digits that repeat.

    Returns:
        The exact number.
    """
    whole, _, fixed = text.partition(".")
    scale = 10 ** len(fixed)
    tail = fractions.Fraction(int(period), (10 ** len(period) - 1) * scale)
    return Number(fractions.Fraction(int((whole or "0") + fixed), scale) + tail)


def period_before_ellipsis(text: str) -> tuple[str, str] | None:
    """Splits ``0.1666`` (with an ellipsis after it) into ``0.1`` and ``6``.

    Args:
        text: Digits with a decimal point.

    Returns:
        The decimals before the period and the period, or ``None`` unless the written digits show a
        period: one digit at least three times, or more digits at least twice.
    """
    whole, point, digits = text.partition(".")
    if not point or not digits.isdigit():
        return None
    for length in range(1, len(digits) // 2 + 1):
        period = digits[-length:]
        start = len(digits)
        while start >= length and digits[start - length : start] == period:
            start -= length
        repeats = (len(digits) - start) // length
        if repeats >= (3 if length == 1 else 2):
            return f"{whole}.{digits[:start]}", period
    return None
