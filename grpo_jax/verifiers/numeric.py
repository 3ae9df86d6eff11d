"""Exact comparison of numbers: integers, decimals and fractions, never floating point."""

import fractions
import re
from typing import Literal

from grpo_jax.records import Completion, Problem, Verdict
from grpo_jax.verifiers.extract import extract_answer, extract_whole

# Below the smallest limit that Python can be given for int() of a text (640 digits).
MAX_NUMBER_CHARACTERS = 500
MAX_EXPONENT = 1_000

_INTEGER = r"(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+)"
_NUMBER = re.compile(
    rf"[+-]?(?:{_INTEGER} ?/ ?(?P<denominator>{_INTEGER})"
    rf"|(?:{_INTEGER}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE](?P<exponent>[+-]?[0-9]+))?)"
)


def parse_number(text: str) -> fractions.Fraction | None:
    """Reads one exact number written in ASCII.

    >>> parse_number("-12,500.50"), parse_number("3/4"), parse_number("2e-3")
    (Fraction(-25001, 2), Fraction(3, 4), Fraction(1, 500))

    Args:
        text: An integer, a decimal (with an exponent or not) or a fraction ``a/b`` of integers, with
            an optional sign and optional thousands separators (``12,500``; ``12,50`` is no number).

    Returns:
        The number, or ``None`` for anything else, a zero denominator, more than
        ``MAX_NUMBER_CHARACTERS`` characters or an exponent beyond ``MAX_EXPONENT``. These limits
        are checked before any number is built.
    """
    if len(text) > MAX_NUMBER_CHARACTERS:
        return None
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    if abs(int(match["exponent"] or 0)) > MAX_EXPONENT:
        return None
    if match["denominator"] is not None and not match["denominator"].strip("0"):
        return None
    return fractions.Fraction(text.replace(",", "").replace(" ", ""))


class NumericVerifier:
    """Reward 1 if the answer is exactly the reference number, else 0."""

    def __init__(self, extraction: Literal["answer_block", "whole"] = "answer_block") -> None:
        """Chooses the extraction.

        Args:
            extraction: Where the answer is looked for: in the block at the end, or in the whole text.
        """
        self._extract = extract_whole if extraction == "whole" else extract_answer

    def reference_fault(self, problem: Problem, /) -> str:
        """Says so where ``problem.answer`` is not an exact number."""
        if parse_number(problem.answer.strip()) is not None:
            return ""
        return f"reference answer {problem.answer[:50]!r} of problem {problem.identifier!r} is not an exact number"

    def __call__(self, problem: Problem, completion: Completion, /) -> Verdict:
        """Compares the answer with ``problem.answer`` as exact rationals.

        Args:
            problem: Its ``answer`` must be a number that ``parse_number`` reads.
            completion: Judged by its answer block or its whole text; a truncated one is never right.

        Returns:
            A verdict with ``error`` set if the reference is no number, since the completion cannot
            be blamed for that.
        """
        expected = parse_number(problem.answer.strip())
        if expected is None:
            return Verdict(0.0, correct=False, parsed=None, reason=self.reference_fault(problem), error=True)
        answer, reason = self._extract(completion)
        if answer is None:
            return Verdict(0.0, correct=False, parsed=None, reason=reason)
        number = parse_number(answer)
        if number is None:
            return Verdict(0.0, correct=False, parsed=answer, reason="not a number")
        equal = number == expected
        return Verdict(float(equal), correct=equal, parsed=answer, reason="equal" if equal else "not equal")
