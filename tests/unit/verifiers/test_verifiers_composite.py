import dataclasses
import math
import re
import typing

import pytest

from grpo_jax.config import RewardName, VerifierConfig
from grpo_jax.records import Completion, FinishReason, Problem, Verdict
from grpo_jax.verifiers.composite import VERIFIERS, WeightedSum, build

_PROBLEM = Problem("p", "6*7=", "42")


def _completion(text: str) -> Completion:
    return Completion(text, 9, FinishReason.STOP)


def _fixed(reward: float, correct: bool, reason: str, error: bool = False):
    return lambda problem, completion: Verdict(reward, correct, f"parsed by {reason}", reason, error=error)


def test_rewards_are_weighted_and_the_first_verifier_decides():
    verifier = WeightedSum(
        {"first": _fixed(0.5, False, "a"), "second": _fixed(-1.0, True, "b")}, {"second": 0.25, "first": 2.0}
    )
    verdict = verifier(_PROBLEM, _completion(""))
    assert verdict.part_seconds.keys() == {"first", "second"}
    verdict = dataclasses.replace(verdict, part_seconds={})
    assert verdict == Verdict(0.75, False, "parsed by a", "a", parts={"first": 0.5, "second": -1.0})


@pytest.mark.parametrize("broken", ["first", "second"])
def test_one_error_makes_the_whole_an_error(broken):
    verifiers = {name: _fixed(1.0, True, "boom", error=name == broken) for name in ("first", "second")}
    verdict = WeightedSum(verifiers, {"first": 1.0, "second": 1.0})(_PROBLEM, _completion(""))
    assert (verdict.reward, verdict.correct, verdict.error, verdict.reason) == (0.0, False, True, f"{broken}: boom")
    assert verdict.failed_part == broken


def test_weights_must_fit_the_verifiers():
    with pytest.raises(ValueError, match="got no verifier, wanted at least one"):
        WeightedSum({}, {})
    with pytest.raises(ValueError, match=r"got weights for \['b'\], wanted one for each of \['a'\]"):
        WeightedSum({"a": _fixed(1.0, True, "a")}, {"b": 1.0})
    with pytest.raises(ValueError, match="got weight nan for 'a', wanted a finite number"):
        WeightedSum({"a": _fixed(1.0, True, "a")}, {"a": math.nan})


def test_every_name_of_the_configuration_has_a_verifier():
    assert set(VERIFIERS) == set(typing.get_args(RewardName))


@pytest.mark.parametrize(
    ("text", "reward", "correct", "parts"),
    [
        ("<think>6*7</think><answer>42</answer>", 1.1, True, {"numeric": 1.0, "format": 1.0}),
        ("<answer>42</answer>", 1.0, True, {"numeric": 1.0, "format": 0.0}),
        ("<think>6*7</think><answer>41</answer>", 0.1, False, {"numeric": 0.0, "format": 1.0}),
        ("42", 0.0, False, {"numeric": 0.0, "format": 0.0}),
    ],
)
def test_build_makes_what_the_configuration_names(text, reward, correct, parts):
    verifier = build(VerifierConfig(rewards=("numeric", "format"), weights=(1.0, 0.1)))
    verdict = verifier(_PROBLEM, _completion(text))
    assert (verdict.reward, verdict.correct, verdict.parts) == (pytest.approx(reward), correct, parts)


def test_the_order_of_the_names_chooses_the_primary_verifier():
    verifier = build(VerifierConfig(rewards=("format", "numeric"), weights=(0.1, 1.0)))
    assert verifier(_PROBLEM, _completion("<think>6*7</think><answer>41</answer>")).correct


def _never(problem, completion):
    raise AssertionError("nothing behind a closed gate is asked")


def test_behind_a_closed_gate_nothing_is_asked():
    verifier = WeightedSum(
        {"accuracy": _never, "form": _fixed(0.25, False, "no tags")}, {"accuracy": 1.0, "form": 2.0}, gates=("form",)
    )
    verdict = verifier(_PROBLEM, _completion(""))
    assert (verdict.reward, verdict.correct, verdict.parsed, verdict.reason) == (0.5, False, None, "form: no tags")
    assert verdict.parts == {"accuracy": 0.0, "form": 0.25}
    assert verdict.part_seconds.keys() == {"form"}


def test_an_open_gate_changes_nothing():
    config = VerifierConfig(rewards=("numeric", "format"), weights=(1.0, 0.0), gates=("format",))
    verifier = build(config)
    assert verifier(_PROBLEM, _completion("<think>6*7</think><answer>42</answer>")).reward == 1.0
    bare = verifier(_PROBLEM, _completion("<answer>42</answer>"))
    assert (bare.reward, bare.correct) == (0.0, False)
    assert bare.reason == "format: not every tag exactly once"


def test_gates_must_be_verifiers():
    with pytest.raises(ValueError, match=r"got gates \['b'\], wanted some of \['a'\]"):
        WeightedSum({"a": _fixed(1.0, True, "a")}, {"a": 1.0}, gates=("b",))


def test_flags_of_all_verifiers_come_through_once():
    flagged = lambda problem, completion: Verdict(1.0, True, None, "r", flags=("approximate", "reordered"))  # noqa: E731
    verdict = WeightedSum({"a": flagged, "b": flagged}, {"a": 1.0, "b": 1.0})(_PROBLEM, _completion(""))
    assert verdict.flags == ("approximate", "reordered")


def test_a_column_chooses_each_problems_verifier():
    verifier = build(VerifierConfig(rewards=("per_problem",), column="kind"))
    number = Problem("n", "", "42", extra={"kind": "numeric"})
    countdown = Problem("c", "", "42", extra={"kind": "countdown", "numbers": [6, 7]})
    assert verifier(number, _completion("<answer>42</answer>")).correct
    assert not verifier(number, _completion("<answer>6*7</answer>")).correct
    assert verifier(countdown, _completion("<answer>6*7</answer>")).correct
    assert verifier.reference_fault(number) == ""
    assert "extra['numbers']" in verifier.reference_fault(Problem("c", "", "42", extra={"kind": "countdown"}))


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({}, "column 'verifier' of problem 'p' holds None, wanted one of numeric"),
        ({"verifier": "per_problem"}, "holds 'per_problem', wanted one of"),
        ({"verifier": ["numeric"]}, r"holds \['numeric'\], wanted one of"),
        ({"verifier": "function"}, "problem 'p' asks for 'function', but verifier.function is not set"),
    ],
)
def test_a_column_that_names_no_verifier_is_an_error(extra, message):
    verifier = build(VerifierConfig(rewards=("per_problem",)))
    verdict = verifier(Problem("p", "", "42", extra=extra), _completion("<answer>42</answer>"))
    assert verdict.error
    assert re.search(message, verdict.reason)
    assert re.search(message, verifier.reference_fault(Problem("p", "", "42", extra=extra)))


def test_references_are_checked_without_a_completion():
    verifier = build(VerifierConfig(rewards=("format", "numeric"), weights=(0.1, 1.0)))
    assert verifier.reference_fault(_PROBLEM) == ""
    fault = verifier.reference_fault(Problem("row 3", "", "forty-two"))
    assert fault == "numeric: reference answer 'forty-two' of problem 'row 3' is not an exact number"


def test_per_problem_says_which_function_its_problems_may_name(tmp_path):
    (tmp_path / "mine.py").write_text("def f(problem, completion):\n    return 1.0\n")
    name = f"{tmp_path / 'mine.py'}:f"
    assert build(VerifierConfig(rewards=("per_problem",), function=name)).start()["function"].startswith(name)
    assert build(VerifierConfig(rewards=("per_problem",))).start() == {}
