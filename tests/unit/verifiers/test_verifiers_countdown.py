import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_jax.records import Completion, FinishReason, Problem
from grpo_jax.verifiers.countdown import MAX_NESTING, CountdownVerifier, ExpressionError, evaluate

PROBLEM = Problem("p", "3 7 8 -> 29", "29", {"numbers": (3, 7, 8)})


def judge(text, problem=PROBLEM, finish=FinishReason.STOP):
    return CountdownVerifier()(problem, Completion(text, 10, finish))


def answer(expression):
    return f"<answer>{expression}</answer>"


@pytest.mark.parametrize("expression", ["7*3+8", "8+3*7", " ( (3 * 7) + 8 ) ", "8 + 7*3"])
def test_an_expression_of_all_numbers_with_the_right_value_is_correct(expression):
    verdict = judge(f"<think>7*3=21</think>{answer(expression)}")
    assert (verdict.reward, verdict.correct, verdict.reason, verdict.error) == (1.0, True, "equal", False)
    assert verdict.parsed == expression.strip()


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("7*8+3", "not equal"),
        ("29", "other numbers"),
        ("7*3+8+7-7", "other numbers"),
        ("7*3+9-1", "other numbers"),
        ("3+8", "other numbers"),
        ("37-8", "other numbers"),
        ("7*3+8=29", "not an expression"),
        ("7*3+8)", "not an expression"),
        ("(7*3+8", "not an expression"),
        ("7*3+", "not an expression"),
        ("7**3+8", "not an expression"),
        ("7//3+8", "not an expression"),
        ("-7+3+8", "not an expression"),
        ("7 3 8", "not an expression"),
        ("7.0*3+8", "not an expression"),
        ("7*3+8e0", "not an expression"),
        ("\N{ARABIC-INDIC DIGIT SEVEN}*3+8", "not an expression"),
        ("__import__('os')", "not an expression"),
        ("8/(7-7)+3", "division by zero"),
        ("8+" * 100 + "8", "expression too long"),
        ("(" * 31 + "7*3+8" + ")" * 31, "nested too deep"),
    ],
)
def test_anything_else_is_wrong_with_a_reason(expression, reason):
    verdict = judge(answer(expression))
    assert (verdict.reward, verdict.correct, verdict.reason, verdict.error) == (0.0, False, reason, False)


@pytest.mark.parametrize(
    ("text", "finish", "reason"),
    [
        ("7*3+8", FinishReason.STOP, "no answer block"),
        (answer("7*3+8"), FinishReason.LENGTH, "truncated"),
        (answer("7*3+8") + answer("1"), FinishReason.STOP, "several answer blocks"),
    ],
)
def test_the_answer_block_is_extracted_strictly(text, finish, reason):
    assert judge(text, finish=finish).reason == reason


@pytest.mark.parametrize(
    "problem",
    [
        Problem("p", "", "29"),
        Problem("p", "", "29", {"numbers": "3 7 8"}),
        Problem("p", "", "29", {"numbers": [3, 7.0, 8]}),
        Problem("p", "", "29", {"numbers": []}),
        Problem("p", "", "many", {"numbers": [3, 7, 8]}),
    ],
)
def test_a_problem_that_cannot_be_judged_is_an_error_of_the_judge(problem):
    verdict = judge(answer("7*3+8"), problem)
    assert verdict.error
    assert "problem 'p' lacks" in verdict.reason


def test_numbers_from_a_file_may_be_a_list_with_repetitions():
    problem = Problem("p", "", "12", {"numbers": [4, 4, 4]})
    assert judge(answer("4+4+4"), problem).correct
    assert judge(answer("4*4-4"), problem).correct
    assert judge(answer("4+4*2"), problem).reason == "other numbers"


def test_division_is_exact_and_left_to_right():
    assert evaluate("1/3*3") == (Fraction(1), [1, 3, 3])
    assert evaluate("2-3-4/8/2")[0] == Fraction(-5, 4)
    assert evaluate("(" * MAX_NESTING + "1" + ")" * MAX_NESTING)[0] == 1


def test_closed_parentheses_do_not_count_as_nesting():
    assert evaluate("+".join(["(1)"] * 40))[0] == 40


expressions = st.recursive(
    st.integers(0, 99).map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda parts: f"({''.join(parts)})"),
    max_leaves=8,
)


@given(expressions)
def test_values_agree_with_pythons_own_arithmetic(text):
    """The text is the test's own, so Python may run it here."""
    fractions = "".join(f"Fraction({part})" if part.isdigit() else part for part in _parts(text))
    try:
        expected = eval(fractions, {"Fraction": Fraction})
    except ZeroDivisionError:
        with pytest.raises(ExpressionError, match="division by zero"):
            evaluate(text)
        return
    assert evaluate(text)[0] == expected


def _parts(text):
    for mark in "+-*/()":
        text = text.replace(mark, f" {mark} ")
    return text.split()


@given(st.text("0123456789+-*/() .x", max_size=250))
def test_no_text_raises_anything_else(text):
    with contextlib.suppress(ExpressionError):
        evaluate(text)
