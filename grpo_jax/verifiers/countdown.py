"""Countdown: an expression of the given numbers, each used once, with the target as its value."""

import fractions
import re
from collections.abc import Sequence

from grpo_jax.records import Completion, Problem, Verdict
from grpo_jax.verifiers.extract import extract_answer
from grpo_jax.verifiers.numeric import parse_number

MAX_EXPRESSION_CHARACTERS = 200
MAX_NESTING = 30

_TOKEN = re.compile(r"[0-9]+|[-+*/()]")


class CountdownVerifier:
    """Reward 1 if the answer block's expression uses exactly the given numbers and hits the target, else 0."""

    def reference_fault(self, problem: Problem, /) -> str:
        """Says so where the target is not an exact number or the numbers are not integers."""
        if parse_number(problem.answer.strip()) is not None and _integers(problem.extra.get("numbers")) is not None:
            return ""
        return f"problem {problem.identifier!r} lacks a numeric answer or a list of integers in extra['numbers']"

    def __call__(self, problem: Problem, completion: Completion, /) -> Verdict:
        """Evaluates the expression with exact rationals.

        Args:
            problem: ``answer`` is the target and ``extra["numbers"]`` lists the integers to use.
            completion: Judged by its answer block: integers, ``+ - * /`` and parentheses, without signs.

        Returns:
            A verdict with ``error`` set if the problem has no such numbers or target.
        """
        target = parse_number(problem.answer.strip())
        numbers = _integers(problem.extra.get("numbers"))
        if target is None or numbers is None:
            return Verdict(0.0, correct=False, parsed=None, reason=self.reference_fault(problem), error=True)
        answer, reason = extract_answer(completion)
        if answer is None:
            return Verdict(0.0, correct=False, parsed=None, reason=reason)
        try:
            value, used = evaluate(answer)
        except ExpressionError as error:
            return Verdict(0.0, correct=False, parsed=answer, reason=str(error))
        if sorted(used) != sorted(numbers):
            return Verdict(0.0, correct=False, parsed=answer, reason="other numbers")
        equal = value == target
        return Verdict(float(equal), correct=equal, parsed=answer, reason="equal" if equal else "not equal")


class ExpressionError(ValueError):
    """A text is no expression; the message is a short, stable phrase."""


def evaluate(text: str) -> tuple[fractions.Fraction, list[int]]:
    """Evaluates an arithmetic expression without running any of it as code.

    >>> evaluate("(7-3)/8")
    (Fraction(1, 2), [7, 3, 8])

    Args:
        text: Integers, ``+ - * /``, parentheses and spaces, in at most ``MAX_EXPRESSION_CHARACTERS`` characters and
            ``MAX_NESTING`` nested parentheses.

    Returns:
        The exact value, and the integers in the order in which they occur.

    Raises:
        ExpressionError: for anything else, and for a division by zero.
    """
    if len(text) > MAX_EXPRESSION_CHARACTERS:
        raise ExpressionError("expression too long")
    tokens = _TOKEN.findall(text)
    # Digits that a space separates are two tokens, so "1 2" cannot pass for 12.
    if "".join(tokens) != text.replace(" ", ""):
        raise ExpressionError("not an expression")
    parser = _Parser(tokens)
    value = parser.sum()
    if parser.next() is not None:
        raise ExpressionError("not an expression")
    return value, parser.used


class _Parser:
    """Recursive descent: sum = product {+- product}, product = atom {*/ atom}, atom = integer | ( sum )."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.used: list[int] = []
        self._tokens = tokens
        self._position = 0
        self._depth = 0

    def next(self) -> str | None:
        return self._tokens[self._position] if self._position < len(self._tokens) else None

    def sum(self) -> fractions.Fraction:
        value = self._product()
        while self.next() in ("+", "-"):
            value = value + self._product() if self._take() == "+" else value - self._product()
        return value

    def _product(self) -> fractions.Fraction:
        value = self._atom()
        while self.next() in ("*", "/"):
            if self._take() == "*":
                value *= self._atom()
            else:
                divisor = self._atom()
                if divisor == 0:
                    raise ExpressionError("division by zero")
                value /= divisor
        return value

    def _atom(self) -> fractions.Fraction:
        token = self._take()
        if token.isdigit():
            self.used.append(int(token))
            return fractions.Fraction(self.used[-1])
        if token != "(":
            raise ExpressionError("not an expression")
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise ExpressionError("nested too deep")
        value = self.sum()
        if self._take() != ")":
            raise ExpressionError("not an expression")
        self._depth -= 1
        return value

    def _take(self) -> str:
        token = self.next()
        if token is None:
            raise ExpressionError("not an expression")
        self._position += 1
        return token


def _integers(numbers: object) -> list[int] | None:
    if not isinstance(numbers, (list, tuple)) or not numbers or any(type(number) is not int for number in numbers):
        return None
    return list(numbers)
