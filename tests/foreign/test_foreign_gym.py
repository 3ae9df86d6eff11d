"""Tasks of the reasoning-gym library; left out where it is not installed (pip install 'grpo-jax[reasoning-gym]')."""

import json

import pytest

reasoning_gym = pytest.importorskip("reasoning_gym", reason="needs pip install 'grpo-jax[reasoning-gym]'")

from grpo_jax.config import DataConfig, VerifierConfig  # noqa: E402
from grpo_jax.data.gym import GymTask  # noqa: E402
from grpo_jax.data.splits import SPLITS  # noqa: E402
from grpo_jax.foreign import gym  # noqa: E402
from grpo_jax.records import Completion, FinishReason  # noqa: E402
from grpo_jax.verifiers.pool import VerifierPool  # noqa: E402

SETTINGS = {
    "task": "reasoning_gym",
    "gym_tasks": ("chain_sum", "leg_counting"),
    "gym_settings": json.dumps({"chain_sum": {"max_terms": 3}}),
    "max_problems": 400,
    "validation_problems": 8,
    "test_problems": 8,
    "prompt_template": "{problem}\n",
}
EVALUATING = {
    "binary_matrix",
    "codeio",
    "countdown",
    "intermediate_integration",
    "n_queens",
    "polynomial_multiplication",
    "puzzle24",
    "simple_integration",
    "spiral_matrix",
    "string_insertion",
}


def texts(task):
    return {split: [problem.prompt for problem in task.problems(split)] for split in SPLITS}


def test_problems_are_the_same_again_and_in_one_split_alone():
    first = texts(GymTask(DataConfig(**SETTINGS)))
    assert first == texts(GymTask(DataConfig(**SETTINGS)))
    assert first != texts(GymTask(DataConfig(**SETTINGS, gym_seed=1)))
    every = [text for split in SPLITS for text in first[split]]
    assert len(set(every)) == len(every)
    assert {len(first["validation"]), len(first["test"])} == {8}
    assert {problem.extra["gym"]["task"] for problem in GymTask(DataConfig(**SETTINGS)).problems("train")} == {
        "chain_sum",
        "leg_counting",
    }


def test_their_own_scorer_judges_in_the_worker():
    problems = GymTask(DataConfig(**SETTINGS)).problems("test")
    with VerifierPool(VerifierConfig(rewards=("reasoning_gym",)), 1, 30.0) as pool:
        facts = pool.wait_until_ready()
        judged = {
            text: [
                pool.submit(problem, Completion(text.format(problem.answer), 9, FinishReason.STOP)).result()
                for problem in problems
            ]
            for text in ("<answer>{}</answer>", "<answer>no idea</answer>", "{}")
        }
    assert facts["reasoning-gym"] == reasoning_gym.__version__
    right, wrong, outside = judged.values()
    assert all(verdict.correct and verdict.reward == 1.0 and not verdict.error for verdict in right), right
    assert not any(verdict.correct or verdict.error for verdict in [*wrong, *outside])
    assert {verdict.reason for verdict in outside} == {"no answer block"}


def test_tasks_that_run_an_answer_as_a_program_are_refused(tmp_path):
    known = set(reasoning_gym.factory.DATASETS) - {"composite"}
    assert {task for task in known if gym.evaluates(task)} == EVALUATING
    for task in EVALUATING:
        with pytest.raises(gym.GymError, match=rf"scorer of '{task}' in reasoning-gym may run what a model wrote"):
            gym.generator(task, {}, 1, 0)
    # The reason why: this would make a file.
    trap = tmp_path / "trap"
    task = reasoning_gym.create_dataset("spiral_matrix", size=1, seed=0)
    task.score_answer(f"[open({str(trap)!r}, 'w')]", task[0])
    assert trap.exists()


def test_answers_of_any_form_are_judged_or_refused_by_every_other_task():
    hostile = ["", "[", "9" * 5000, "{'a': 1}", "\x00", "__import__('os')", "1/0", "a\nb" * 50]
    judge = __import__("grpo_jax.verifiers.gym", fromlist=["GymVerifier"]).GymVerifier()
    for task in ("chain_sum", "leg_counting", "basic_arithmetic", "bitwise_arithmetic", "propositional_logic", "jugs"):
        config = DataConfig(**SETTINGS | {"gym_tasks": (task,), "gym_settings": "{}", "max_problems": 400})
        problem = GymTask(config).problems("test")[0]
        for text in hostile:
            verdict = judge(problem, Completion(f"<answer>{text}</answer>", 9, FinishReason.STOP))
            assert not verdict.correct
            assert not verdict.error, (task, text, verdict.reason)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"gym_tasks": ("chain_sums",), "gym_settings": "{}"},
            r"data\.gym_tasks: reasoning-gym has no task 'chain_sums'",
        ),
        ({"gym_settings": '{"chain_sum": {"max_term": 3}}'}, r"refuses the settings .*max_term"),
        ({"gym_settings": '{"chain_sum": {"min_terms": 9}}'}, r"refuses the settings"),
        ({"test_problems": 300}, r"data\.test_problems: got 300, wanted at most \d+"),
    ],
)
def test_tasks_and_settings_that_there_are_not(changes, message):
    with pytest.raises(ValueError, match=message):
        GymTask(DataConfig(**SETTINGS | changes))
