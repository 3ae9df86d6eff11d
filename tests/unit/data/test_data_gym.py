"""What is checked of reasoning-gym tasks without the library; tests/foreign has the rest."""

import sys

import pytest

from configs import own_problems
from grpo_jax.config import DataConfig, RunConfig, VerifierConfig, from_nested
from grpo_jax.data.gym import GymTask
from grpo_jax.records import Completion, FinishReason, Problem
from grpo_jax.verifiers.base import UnusableVerifierError
from grpo_jax.verifiers.composite import build


def test_a_missing_library_is_named_with_its_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(
        ValueError, match=r"data\.gym_tasks: reasoning-gym is not installed .*pip install 'grpo-jax\[reas"
    ):
        GymTask(DataConfig(task="reasoning_gym", gym_tasks=("chain_sum",), max_problems=10))
    with pytest.raises(UnusableVerifierError, match=r"verifier\.rewards: reasoning-gym is not installed"):
        build(VerifierConfig(rewards=("reasoning_gym",))).start()


def test_a_problem_from_elsewhere_is_an_error():
    judge = build(VerifierConfig(rewards=("reasoning_gym",)))
    for extra in ({}, {"gym": {"task": "chain_sum"}}):
        problem = Problem("p", "", "1", extra)
        assert "none of data.task 'reasoning_gym'" in judge.reference_fault(problem)
        assert judge(problem, Completion("<answer>1</answer>", 1, FinishReason.STOP)).error


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gym_tasks": ()}, r"data\.gym_tasks: got \(\), wanted names of tasks, each once"),
        ({"gym_tasks": ("a", "a")}, r"data\.gym_tasks: got \('a', 'a'\)"),
        ({"gym_settings": "{"}, r"data\.gym_settings: got '\{', wanted a JSON object"),
        ({"gym_settings": '{"b": {}}'}, r"data\.gym_settings"),
        ({"gym_settings": '{"a": 1}'}, r"data\.gym_settings"),
        ({"gym_seed": -1}, r"data\.gym_seed: got -1"),
        ({"max_problems": 1_000_000}, r"data\.max_problems: got 1000000, wanted at most 100000, since each is made"),
        ({"path": "x.jsonl"}, r"data\.path: got 'x\.jsonl', wanted None, since data\.task is 'reasoning_gym'"),
        ({"task": "addition"}, r"data\.gym_tasks: .*wanted \(\), since data\.task is 'addition'"),
    ],
)
def test_configurations_that_cannot_work(changes, message):
    config = own_problems.get_config("reasoning_gym")
    config.data.gym_tasks = ("a",)
    for key, value in changes.items():
        config.data[key] = value
    with pytest.raises(ValueError, match=message):
        from_nested(RunConfig, config.to_dict()).validate()
