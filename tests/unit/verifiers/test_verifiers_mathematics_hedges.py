"""Boxes that are parts of formulas, and words that take an answer back."""

import pytest

from grpo_jax.config.mathematics import MathematicsConfig
from grpo_jax.records import Completion, FinishReason, Problem
from grpo_jax.verifiers.mathematics.hedges import MAX_BOXES
from grpo_jax.verifiers.mathematics.verifier import MathematicsVerifier

ALONE = [
    r"\boxed{8}",
    r"$\boxed{8}$.",
    r"**\boxed{8}**",
    r"\[\boxed{8}\]",
    "The answer is\n\n$$\n\\boxed{8}\n$$",
    r"$x=\boxed{8}$",
    r"$3+5=\boxed{8}$",
    r"The answer is $\boxed{8}$.",
    r"Since $3+5=8$, we get $\boxed{8}$",
    r"\boxed{8}, \boxed{8}",
    r"\boxed{8} as was to be shown",
    r"\boxed 8",
    r"\boxed{8} cm",
    r"\boxed{8}\text{ cm}",
]
NOT_ALONE = [
    r"-\boxed{8}",
    r"9\boxed{8}",
    r"\boxed{8}9",
    r"\boxed{8}^2",
    r"\boxed{8} + 1",
    r"\frac{\boxed{8}}{2}",
    r"\phantom{\boxed{8}}9",
    r"x \neq \boxed{8}",
    r"x < \boxed{8}",
    r"\boxed{8} or 9",
    r"9, \boxed{8}",
    r"\boxed{8}, -\boxed{8}",
]
HEDGED = [
    r"either \boxed{8} or 9",
    r"not \boxed{8}",
    r"It isn't \boxed{8}.",
    r"maybe \boxed{8}",
    r"\boxed{8} is wrong, the answer is 9",
    r"twice more than \boxed{8}",
]


def judged(text, extraction):
    verifier = MathematicsVerifier(MathematicsConfig(extraction=extraction))
    completion = Completion(text, 1, FinishReason.STOP)
    verdict = verifier(Problem(identifier="p", prompt="q", answer="8"), completion)
    return verdict.correct, verdict.reason


@pytest.mark.parametrize("text", ALONE)
def test_a_box_with_words_around_it_is_the_answer(text):
    assert judged(f"<answer>{text}</answer>", "answer_block") == (True, "equal" if "cm" in text else "identical")
    assert judged(text, "final")[0]


@pytest.mark.parametrize("text", NOT_ALONE)
def test_a_part_of_a_formula_is_no_answer(text):
    assert not judged(f"<answer>{text}</answer>", "answer_block")[0]
    assert not judged(text, "final")[0]


@pytest.mark.parametrize("text", HEDGED)
def test_a_hedged_box_is_no_answer(text):
    assert judged(f"<answer>{text}</answer>", "answer_block") == (False, "hedged answer")
    assert judged(text, "final") == (False, "hedged answer")


@pytest.mark.parametrize(
    "text",
    [
        "The answer is 8. No wait, 9.",
        "It is false that the answer is 8",
        "The answer is 8. Or maybe 9.",
        r"So $\boxed{8}$. No wait, it is 9.",
    ],
)
def test_what_is_taken_back_is_no_answer(text):
    assert judged(text, "final") == (False, "hedged answer")


@pytest.mark.parametrize(
    "text",
    [
        "**Final Answer**\n\n8",
        "Final Answer: The final answer is 8.",
        "We do not know x, and 3 is wrong.\n\nThe answer is 8.",
        "We do not know x, and 3 is wrong.\n\nTherefore $\\boxed{8}$.",
        r"The final answer is $\boxed{8}$. I hope it is correct.",
    ],
)
def test_words_elsewhere_do_not_matter(text):
    assert judged(text, "final")[0]


def test_the_number_of_boxes_is_bounded():
    boxes = r"\boxed{8} " * MAX_BOXES
    assert judged(boxes, "final") == (True, "identical")
    assert judged(boxes + r"\boxed{8}", "final") == (False, "too many boxes")


def test_only_the_last_box_is_looked_at_with_the_option():
    text = "It is not \\boxed{9}.\nSo it is \\boxed{8}."
    options = MathematicsConfig(extraction="final", last_box=True)
    problem, completion = Problem(identifier="p", prompt="q", answer="8"), Completion(text, 1, FinishReason.STOP)
    assert MathematicsVerifier(options)(problem, completion).correct
    assert judged(text, "final") == (False, "hedged answer")
