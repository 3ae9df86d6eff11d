import decimal
import math
from typing import Literal

import pytest

from grpo_jax.records import Completion, FinishReason
from grpo_jax.verifiers.code import suite
from grpo_jax.verifiers.code.compare import equal_output, equal_values
from grpo_jax.verifiers.code.source import extract_source
from grpo_jax.verifiers.code.suite import Case, parse_suite


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (3, 3),
        (3.0, 3),
        (3, 3.0),
        ((1, 2), [1, 2]),
        ([(1, "a")], [[1, "a"]]),
        ({1: 2}, {"1": 2}),
        ({"a": (1,)}, {"a": [1]}),
        (math.nan, math.nan),
        (math.inf, math.inf),
        (0.1 + 0.2, 0.3),
        (1e-12, 0.0),
        (None, None),
        ("a", "a"),
        (True, True),
        (10**400, 10**400),
    ],
)
def test_equal_values(actual, expected):
    assert equal_values(actual, expected, 1e-9)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (True, 1),
        (1, True),
        (0, False),
        (None, False),
        ("3", 3),
        (3, "3"),
        ([1, 2], [2, 1]),
        ([1], [1, 2]),
        ({1, 2}, [1, 2]),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({1: 2, "1": 3}, {"1": 3}),
        (3.5, 3),
        (1e17 + 16, 10**17),
        (0.31, 0.3),
        (b"a", "a"),
        (1 + 0j, 1),
        (math.nan, 1.0),
        (1.0, math.nan),
        (math.inf, 1e308),
        (10**400, 1.5),
        (decimal.Decimal(3), 3),
        ({}, []),
        ("ab", ["a", "b"]),
        (None, []),
        (range(2), [0, 1]),
        (10**17, 1e17 * (1 + 1e-8)),
    ],
)
def test_unequal_values(actual, expected):
    assert not equal_values(actual, expected, 1e-9)


def test_without_tolerance_floats_are_compared_exactly():
    assert not equal_values(0.1 + 0.2, 0.3, 0.0)
    assert equal_values(0.5, 0.5, 0.0)


@pytest.mark.parametrize(
    ("actual", "expected", "equal"),
    [
        (b"6", b"6\n", True),
        (b"1  2\r\n3\n\n", b"1 2\n3", True),
        (b"0.30000000000000004", b"0.3", True),
        (b".5", b"0.5", True),
        (b"5e-1", b"0.5", True),
        (b"6.0", b"6", False),
        (b"1 2", b"1 2 3", False),
        (b"1 2 3", b"1 2", False),
        (b"0.5_0", b"0.50", False),
        (b"nan", b"0.5", False),
        (b"inf", b"1e999", False),
        (b"YES", b"Yes", False),
        (b"", b"", True),
        (b"0x1", b"1.0", False),
    ],
)
def test_output_is_compared_word_by_word(actual, expected, equal):
    assert equal_output(actual, expected, 1e-9) is equal


def test_without_tolerance_words_are_compared_exactly():
    assert not equal_output(b"0.50", b"0.5", 0.0)


def source(text: str, extraction: Literal["fenced", "whole"] = "fenced", finish=FinishReason.STOP, limit=1000):
    return extract_source(Completion(text, 1, finish), extraction, limit)


FENCE = "```"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{FENCE}python\na\n{FENCE}\n", "a\n"),
        (f"{FENCE}\na\n{FENCE}", "a\n"),
        (f"{FENCE}py\na\n{FENCE} \ntext", "a\n"),
        (f"first\n{FENCE}python\na\n{FENCE}\nbetter:\n{FENCE}Python3\nb\n{FENCE}", "b\n"),
        (f"{FENCE}python\na\n{FENCE}\noutput:\n{FENCE}text\n1\n{FENCE}", "a\n"),
        (f"<think>{FENCE}python\na\n{FENCE}</think>{FENCE}python\nb\n{FENCE}", "b\n"),
        (f'{FENCE}`python\ns = """\n{FENCE}\n"""\n{FENCE}`', f's = """\n{FENCE}\n"""\n'),
        ("~~~python\na\n~~~", "a\n"),
    ],
)
def test_the_last_block_of_the_language_is_the_program(text, found):
    assert source(text) == (found, "found")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = 1", "no code block"),
        (f"{FENCE}java\na\n{FENCE}", "no code block"),
        (f"{FENCE}python\na\n", "no code block"),
        (f"<think>{FENCE}python\na\n{FENCE}", "no code block"),
        (f"{FENCE}python\na\n{FENCE}</think>", "no code block"),
        (f"{FENCE}python\n \n{FENCE}", "empty program"),
        (f"{FENCE}python\n{'a' * 1001}\n{FENCE}", "program too long"),
        ("", "no code block"),
    ],
)
def test_a_completion_without_a_program_says_why(text, reason):
    assert source(text) == (None, reason)


def test_the_whole_text_is_taken_as_it_is():
    fenced = f"{FENCE}python\na\n{FENCE}"
    assert source(fenced, "whole") == (fenced, "found")
    assert source("<think>x</think>a", "whole") == ("a", "found")
    assert source("", "whole") == (None, "empty program")
    assert source("a", finish=FinishReason.LENGTH) == (None, "truncated")


def test_suites_are_read():
    call = parse_suite({"style": "call", "entry": "f", "cases": [[[1], 2], [{"a": 1}, None]]})
    assert call.cases == (Case([1], 2), Case({"a": 1}, None))
    assert parse_suite({"style": "stdin", "cases": [["1", "2"]]}).cases == (Case("1", "2"),)
    code = parse_suite({"style": "asserts", "code": ["assert f(1)", "assert f(2)"], "module": "main", "entry": "f"})
    assert (code.style, code.code, code.module) == ("code", "assert f(1)\nassert f(2)", "main")


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        (None, "got tests of type NoneType"),
        ([], "got tests of type list"),
        ({}, "got style None, wanted call, stdin, asserts"),
        ({"style": "shell"}, "got style 'shell'"),
        ({"style": "call", "cases": [[[1], 2]]}, "got entry '', wanted a function's name"),
        ({"style": "call", "entry": "f(", "cases": [[[1], 2]]}, "got entry 'f"),
        ({"style": "call", "entry": 3, "cases": [[[1], 2]]}, "got entry 3"),
        ({"style": "call", "entry": "f", "cases": []}, "got no cases"),
        ({"style": "call", "entry": "f"}, "got no cases"),
        ({"style": "call", "entry": "f", "cases": [[1, 2]]}, "case 1 is no pair"),
        ({"style": "call", "entry": "f", "cases": [[[1], 2], [[1]]]}, "case 2 is no pair"),
        ({"style": "stdin", "cases": [[1, "2"]]}, "case 1 is no pair"),
        ({"style": "unittest", "code": " "}, "got no code"),
        ({"style": "pytest"}, "got no code"),
        ({"style": "asserts", "code": "assert 1", "module": "a.b"}, "got module 'a.b'"),
    ],
)
def test_suites_of_another_form_are_refused(tests, message):
    with pytest.raises(suite.SuiteError, match=message.replace("(", r"\(")):
        parse_suite(tests)
