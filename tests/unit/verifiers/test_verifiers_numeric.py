import time
from fractions import Fraction

import pytest

from grpo_jax.records import Completion, FinishReason, Problem
from grpo_jax.verifiers import numeric
from grpo_jax.verifiers.numeric import NumericVerifier, parse_number


def _judge(answer: str, reference: str = "42", finish: FinishReason = FinishReason.STOP):
    completion = Completion(f"<think>?</think><answer>{answer}</answer>", 9, finish)
    return NumericVerifier()(Problem("p", "6*7=", reference), completion)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", Fraction(0)),
        ("-0", Fraction(0)),
        ("007", Fraction(7)),
        ("+42", Fraction(42)),
        ("-42.", Fraction(-42)),
        (".5", Fraction(1, 2)),
        ("0.1", Fraction(1, 10)),
        ("12,500", Fraction(12500)),
        ("-1,234,567.25", Fraction(-123456725, 100)),
        ("3/4", Fraction(3, 4)),
        ("-6 / 8", Fraction(-3, 4)),
        ("1,000/3", Fraction(1000, 3)),
        ("3e5", Fraction(300000)),
        ("2.5E-3", Fraction(1, 400)),
        ("1e1000", Fraction(10**1000)),
        ("9" * 500, Fraction(10**500 - 1)),
    ],
)
def test_numbers_are_read_exactly(text, number):
    assert parse_number(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "-",
        "--1",
        "+-1",
        "- 1",
        "1 2",
        "1_000",
        "12,50",
        "1,2345",
        "0,500",
        ",500",
        "1,,000",
        "1.2.3",
        "1.5/2",
        "1/2/3",
        "1/-2",
        "1/0",
        "1/0,000",
        "1/000",
        "1e",
        "1e1.5",
        "1e1001",
        "1e-1001",
        "1e999999999",
        "1e-999999999",
        "1e" + "9" * 400,
        "9" * 501,
        "9" * 1_000_000,
        "1" + ",000" * 200_000,
        "1/" + "9" * 1_000_000,
        "0x2a",
        "inf",
        "nan",
        "42 apples",
        "definitely not 42",
        "42 or 43",
        "x=42",
        "42\n",
        "42\x00",
        "\uff14\uff12",
        "\u0664\u0662",
        "\u221242",
        "\u00b2",
        "\u00bd",
        "__import__('os').system('x')",
        "6*7",
        "<answer>42",
    ],
)
def test_anything_else_is_refused_at_once(text):
    began = time.process_time()
    assert parse_number(text) is None
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize(
    ("answer", "reference"),
    [("42", "42"), ("42.0", "42"), ("84/2", " 42 "), ("0.5", "1/2"), ("12,500", "12500"), ("4.2e1", "42")],
)
def test_equal_numbers_are_right(answer, reference):
    verdict = _judge(answer, reference)
    assert (verdict.reward, verdict.correct, verdict.parsed, verdict.reason) == (1.0, True, answer, "equal")


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("41", "42"),
        ("-42", "42"),
        ("0.3333333333333333", "1/3"),
        ("9007199254740993", "9007199254740992"),
        ("0.30000000000000004", "0.3"),
        ("1e-1000", "0"),
    ],
)
def test_numbers_that_only_floats_would_confuse_are_wrong(answer, reference):
    verdict = _judge(answer, reference)
    assert (verdict.reward, verdict.correct, verdict.parsed, verdict.reason) == (0.0, False, answer, "not equal")


def test_what_is_no_number_is_wrong_and_no_error():
    verdict = _judge("definitely not 42")
    assert (verdict.reward, verdict.correct, verdict.error) == (0.0, False, False)
    assert (verdict.parsed, verdict.reason) == ("definitely not 42", "not a number")


def test_a_truncated_completion_is_never_right():
    verdict = _judge("42", finish=FinishReason.LENGTH)
    assert (verdict.reward, verdict.correct, verdict.parsed, verdict.reason) == (0.0, False, None, "truncated")


def test_the_reason_of_the_extraction_is_passed_on():
    assert _judge("42</answer><answer>42").reason == "several answer blocks"


@pytest.mark.parametrize("reference", ["", "forty-two", "1/0", "9" * 501])
@pytest.mark.parametrize("answer", ["42", "forty-two"])
def test_a_reference_that_is_no_number_is_the_judges_fault(answer, reference):
    verdict = _judge(answer, reference)
    assert verdict.error
    assert (verdict.reward, verdict.correct) == (0.0, False)
    assert verdict.reason.endswith("of problem 'p' is not an exact number")


def test_no_text_beyond_the_caps_reaches_int(monkeypatch):
    # A Fraction is the only thing that is built from digits; an exponent is at most a cap's digits long.
    monkeypatch.setattr(numeric.fractions, "Fraction", lambda _: pytest.fail("a number was built"))
    assert parse_number("9" * 1_000_000) is None
    assert parse_number("1e999999999") is None


@pytest.mark.parametrize(
    ("text", "correct", "reason"),
    [
        ("87", True, "equal"),
        (" 87 ", True, "equal"),
        ("87.0", True, "equal"),
        ("78", False, "not equal"),
        ("87 78", False, "not a number"),
        ("87 (the larger)", False, "not a number"),
        ("max(12,87)", False, "not a number"),
        ("88-1", False, "not a number"),
        ("<answer>87</answer>", False, "not a number"),
        (" ", False, "empty answer"),
        ("8" * 10_001, False, "answer too long"),
    ],
)
def test_a_whole_text_is_the_number_and_nothing_else(text, correct, reason):
    verdict = NumericVerifier("whole")(Problem("p", "max(12,87)=", "87"), Completion(text, 9, FinishReason.STOP))
    assert (verdict.correct, verdict.reward, verdict.reason) == (correct, float(correct), reason)


def test_a_whole_text_that_was_cut_off_is_never_right():
    verdict = NumericVerifier("whole")(Problem("p", "max(12,87)=", "87"), Completion("87", 9, FinishReason.LENGTH))
    assert (verdict.correct, verdict.reason) == (False, "truncated")
