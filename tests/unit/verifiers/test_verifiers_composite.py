import math
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
    assert verdict == Verdict(0.75, False, "parsed by a", "a", parts={"first": 0.5, "second": -1.0})


@pytest.mark.parametrize("broken", ["first", "second"])
def test_one_error_makes_the_whole_an_error(broken):
    verifiers = {name: _fixed(1.0, True, "boom", error=name == broken) for name in ("first", "second")}
    verdict = WeightedSum(verifiers, {"first": 1.0, "second": 1.0})(_PROBLEM, _completion(""))
    assert (verdict.reward, verdict.correct, verdict.error, verdict.reason) == (0.0, False, True, f"{broken}: boom")


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
