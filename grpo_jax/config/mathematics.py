"""Options of the verifier of mathematical answers."""

import dataclasses
from typing import Literal

from grpo_jax.config.checks import Section, require


@dataclasses.dataclass(frozen=True)
class MathematicsConfig(Section):
    r"""Where the answer is looked for, and which conventions count as equal.

    Attributes:
        extraction: ``answer_block``: one ``<answer>`` block at the end, and in it the box or else the whole text; a
            box inside a formula is only a part of the answer, and words that hedge are refused. ``boxed``: the last
            ``\boxed{}`` after the think part. ``final``: the block, else the box, else a line ``The answer is X``,
            unless its sentence hedges or what follows takes it back. ``whole``: the whole text is the answer.
        last_box: Whether the last of several different boxes is the answer; otherwise all must be right.
        unclosed_answer: Whether an ``<answer>`` that is never closed counts.
        percent: What ``50%`` may stand for without its sign: ``0.5``, ``50``, either of them (flagged), or nothing.
        missing_unit: Whether a unit (or currency) may be missing on one side; flagged. Three dozen eggs
            are 36. Also for ``am`` and ``pm``.
        convert_units: Whether ``100 cm`` is ``1 m`` and ``180^\circ`` is ``\pi``.
        approximation_digits: Significant digits from which on a decimal may stand for a number that is no finite
            decimal, correctly rounded or cut; flagged. 0: never.
        decimal_comma: Whether ``1,5`` is 1.5.
        list_order: Whether a list ``1, 2`` may be given in any order.
        list_as_set: Whether a list of two or more answers equals the set of them.
        tuple_as_list: Whether ``(1, 2)`` equals the list ``1, 2``.
        vector_as_tuple: Whether a matrix of one row or column equals the tuple of its elements.
        interval_as_inequality: Whether ``x < 3`` equals ``(-\infty, 3)``.
        name_optional: Whether ``x = 5`` equals ``5``.
        choice_ignores_case: Whether the choice ``A`` equals ``a``.
        choice_with_text: Whether the choice ``B`` equals ``B: 12``, and so does ``12``.
        base_as_value: Whether ``321_5`` equals 86.
        ratio_as_fraction: Whether ``3:4`` equals ``3/4``.
    """

    extraction: Literal["answer_block", "boxed", "final", "whole"] = "answer_block"
    last_box: bool = False
    unclosed_answer: bool = False
    percent: Literal["either", "fraction", "number", "strict"] = "either"
    missing_unit: bool = True
    convert_units: bool = True
    approximation_digits: int = 6
    decimal_comma: bool = False
    list_order: Literal["any", "same"] = "any"
    list_as_set: bool = True
    tuple_as_list: bool = False
    vector_as_tuple: bool = True
    interval_as_inequality: bool = True
    name_optional: bool = True
    choice_ignores_case: bool = True
    choice_with_text: bool = True
    base_as_value: bool = False
    ratio_as_fraction: bool = False

    def validate(self, path: str) -> None:
        """Refuses a number of digits that would accept any coarse guess."""
        digits = self.approximation_digits
        require(
            digits == 0 or 3 <= digits <= 40,
            f"{path}.approximation_digits",
            digits,
            "0 or 3 to 40",
            "Fewer digits would reward guesses; 0 turns it off.",
        )
        require(
            not self.last_box or self.extraction != "whole",
            f"{path}.last_box",
            self.last_box,
            "False, since extraction is 'whole'",
            "Set extraction to another value.",
        )
        require(
            not self.unclosed_answer or self.extraction in ("answer_block", "final"),
            f"{path}.unclosed_answer",
            self.unclosed_answer,
            f"False, since extraction is {self.extraction!r}",
            "Set extraction to 'answer_block' or 'final'.",
        )
