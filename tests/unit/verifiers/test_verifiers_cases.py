import json

import pytest

from grpo_jax.config import ConfigError, VerifierConfig
from grpo_jax.records import Verdict
from grpo_jax.verifiers import cases

MATH_ROWS = [
    {"id": "a", "gold": "42", "answer": "42.0", "equal": True},
    {"id": "b", "gold": "42", "answer": "43", "equal": False, "form": "bare"},
    {"id": "c", "gold": "1/2", "answer": "So it is \\boxed{\\frac12}.", "equal": True, "form": "completion"},
    {"id": "d", "gold": "50", "answer": "5 kg", "equal": True, "convention": True},
]


def write(path, rows):
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    return path


def test_math_cases_are_read_judged_and_counted(tmp_path):
    labelled = cases.read_cases(write(tmp_path / "cases.jsonl", MATH_ROWS), "math")
    verdicts = cases.judge_cases(labelled, "math", VerifierConfig(deadline_seconds=20.0))
    result = cases.report(labelled, verdicts)
    assert list(result["verdicts"]) == ["a", "b", "c", "d"]
    assert {name: value["correct"] for name, value in result["verdicts"].items()} == {
        "a": True, "b": False, "c": True, "d": False,
    }  # fmt: skip
    assert (result["cases"], result["right"], result["false_positives"], result["false_negatives"]) == (4, 3, 0, 1)
    assert result["sure"] == {"cases": 3, "right": 3, "false_positives": 0, "false_negatives": 0}
    assert 0 < result["p50_ms"] <= result["p99_ms"] <= result["max_ms"]
    assert (result["timeouts"], result["errors"]) == (0, 0)


def test_the_tally_tells_both_kinds_of_mistake(tmp_path):
    rows = [{"id": name, "gold": "1", "answer": "1", "equal": name in "ab"} for name in "abcd"]
    labelled = cases.read_cases(write(tmp_path / "cases.jsonl", rows), "math")
    verdicts = {name: Verdict(0.0, name in "ac", None, "") for name in "abcd"}
    assert cases.tally(labelled, verdicts) == cases.Tally(cases=4, right=2, false_positives=1, false_negatives=1)


def test_an_error_of_the_judge_accepts_nothing(tmp_path):
    rows = [{"id": name, "gold": "1", "answer": "1", "equal": name == "a"} for name in "ab"]
    labelled = cases.read_cases(write(tmp_path / "cases.jsonl", rows), "math")
    verdicts = {name: Verdict(0.0, False, None, "broken", error=True) for name in "ab"}
    result = cases.report(labelled, verdicts)
    assert (result["right"], result["false_positives"], result["false_negatives"]) == (0, 0, 1)
    assert result["errors"] == 2


def test_a_program_may_stand_alone_or_in_a_completion(tmp_path):
    row = {"tests": {"style": "call", "entry": "f", "cases": [[[1], 2]]}, "expect": "pass"}
    program = "def f(x):\n    return x + 1"
    rows = [
        {"id": "alone", "completion": program, **row},
        {"id": "within", "completion": f"So:\n```python\n{program}\n```", "form": "completion", **row},
    ]
    labelled = cases.read_cases(write(tmp_path / "cases.jsonl", rows), "code")
    verdicts = cases.judge_cases(labelled, "code", VerifierConfig())
    assert [verdict.correct for verdict in verdicts.values()] == [True, True], verdicts


@pytest.mark.parametrize(
    ("percent", "value"), [(1, 1), (50, 5), (51, 6), (99, 10), (100, 10)]
)  # fmt: skip
def test_percentiles_are_values_of_the_list(percent, value):
    assert cases.percentile([float(number) for number in range(1, 11)], percent) == value


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        ("math", {"id": 1, "answer": "2", "equal": True}, "line 2 of .* is no case of kind 'math': it has no 'gold'"),
        ("math", {"id": 1, "gold": 2, "answer": "2", "equal": True}, "gold is a int, wanted a text"),
        ("math", {"id": 1, "gold": "2", "answer": "2", "equal": "yes"}, "equal is 'yes', wanted true or false"),
        ("math", {"id": 1, "gold": "2", "answer": "2", "equal": True, "form": "x"}, "form is 'x', wanted 'bare' or"),
        ("code", {"id": 1, "tests": {}, "completion": "", "expect": "ok"}, "expect is 'ok', wanted one of 'pass'"),
        ("proof", {"id": 1, "prover": "coq", "candidate": "", "expect": "pass"}, "it has no 'statement'"),
        ("proof", [1], "line 2"),
    ],
)
def test_a_row_that_is_no_case_is_named(tmp_path, kind, row, message):
    path = tmp_path / "cases.jsonl"
    path.write_text("\n" + json.dumps(row))
    with pytest.raises(ConfigError, match=message):
        cases.read_cases(path, kind)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no case"),
        ("{", "line 1 of .* is no case"),
        ((json.dumps(MATH_ROWS[0]) + "\n") * 2, "has the id 'a' more than once"),
    ],
)
def test_a_file_without_cases_is_refused(tmp_path, text, message):
    path = tmp_path / "cases.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        cases.read_cases(path, "math")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"--cases: .*absent\.jsonl cannot be read"):
        cases.read_cases(tmp_path / "absent.jsonl", "math")


def test_a_verifier_ends_by_itself_before_the_deadline():
    config = cases.case_config(VerifierConfig(deadline_seconds=1.0), "code", is_bare=True)
    assert config.deadline_seconds == config.code.total_seconds + cases.DEADLINE_MARGIN_SECONDS
    assert config.code.extraction == "whole"
    config.validate("verifier")
