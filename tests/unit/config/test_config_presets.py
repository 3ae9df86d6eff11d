"""Rows as the data sets have them become problems whose right answers the preset's verifier accepts, and no others."""

import json
import sys

import pytest

from configs import base, own_problems
from configs.data import presets
from grpo_jax.config import RunConfig, from_nested
from grpo_jax.data.files import FileTask
from grpo_jax.data.splits import SPLITS
from grpo_jax.records import Completion, FinishReason
from grpo_jax.verifiers.composite import build

CHECK = "METADATA = {}\n\n\ndef check(candidate):\n    assert candidate([1, 2]) == 3\n    assert candidate([]) == 0\n"
SUM = "```python\nfrom typing import List\n\ndef total(numbers: List[int]) -> int:\n    return sum(numbers)\n```"
WRONG_SUM = SUM.replace("sum(numbers)", "3")

CASES = {
    "gsm8k": (
        {"question": "How many clips?", "answer": "48/2 = <<48/2=24>>24\n48+24 = 72\n#### 1,072"},
        "How many clips?",
        r"So \boxed{1072}.",
        r"So \boxed{72}.",
    ),
    "math": (
        {"problem": "Find $a$.", "level": "Level 5", "type": "Algebra", "solution": r"Thus $\boxed{\frac12}$."},
        "Find $a$.",
        r"\boxed{0.5}",
        r"\boxed{2}",
    ),
    "deepscaler": (
        {"problem": "What is $x$?", "answer": r"-\frac{2}{3}", "solution": "Long."},
        "What is $x$?",
        r"\boxed{-2/3}",
        r"\boxed{2/3}",
    ),
    "dapo_math": (
        {
            "data_source": "math_dapo",
            "prompt": [{"content": "Solve it. End with a line Answer: $Answer.", "role": "user"}],
            "ability": "MATH",
            "reward_model": {"ground_truth": "34", "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": "9a9b"},
        },
        "Solve it. End with",
        "It is so.\nAnswer: 34",
        "It is so.\nAnswer: 43",
    ),
    "humaneval": (
        {
            "task_id": "HumanEval/0",
            "prompt": 'from typing import List\n\n\ndef total(numbers):\n    """ Sum of {tests} """\n',
            "canonical_solution": "    return sum(numbers)\n",
            "test": CHECK,
            "entry_point": "total",
        },
        "Sum of {tests}",
        SUM,
        WRONG_SUM,
    ),
    "mbpp": (
        {
            "task_id": 2,
            "text": "Write a function to sum a list.",
            "code": "def total(numbers):\r\n  return sum(numbers)",
            "test_list": ["assert total([1, 2]) == THREE", "assert total([]) == 0"],
            "test_setup_code": "THREE = 3",
            "challenge_test_list": [],
        },
        "sum a list.\n\nIt has to pass these tests:\nassert total([1, 2]) == THREE\nassert total([]) == 0",
        SUM,
        WRONG_SUM,
    ),
    "mbpp_sanitized": (
        {
            "source_file": "a.ipynb",
            "task_id": 2,
            "prompt": "Write a function to sum a list.",
            "code": "def total(numbers):\n  return sum(numbers)",
            "test_imports": ["import math"],
            "test_list": ["assert math.isclose(total([1, 2]), 3)", "assert total([]) == 0"],
        },
        "these tests:\nassert math.isclose(total([1, 2]), 3)",
        SUM,
        WRONG_SUM,
    ),
}


def config_for(name, path, **data):
    config = own_problems.get_config(name)
    config.data.path = str(path)
    for key, value in data.items():
        config.data[key] = value
    made = from_nested(RunConfig, config.to_dict())
    made.validate()
    return made


def write(path, row, column):
    """The row in each split, with another text for each."""
    rows = [json.loads(json.dumps(row)) | {"split": split} for split in SPLITS]
    for index, other in enumerate(rows[1:]):
        if isinstance(other[column], list):
            other[column][0]["content"] += f" ({index})"
        else:
            other[column] += f" ({index})"
    path.write_text("".join(json.dumps(other) + "\n" for other in rows))


def test_there_is_a_case_for_each_published_format():
    assert set(CASES) | {"reasoning_gym", "environment"} == set(presets.PRESETS)


def test_problems_with_judges_of_their_own_need_names_alone():
    gym = own_problems.get_config("reasoning_gym,chat")
    gym.data.gym_tasks = ("chain_sum",)
    environment = own_problems.get_config("environment")
    environment.data.path = environment.verifier.environment = "some_module"
    for config in (gym, environment):
        config.data.tokenizer = "bytes" if not config.data.chat else "some_folder"
        from_nested(RunConfig, config.to_dict()).validate()


@pytest.mark.parametrize("name", CASES)
def test_published_rows_are_problems_and_are_judged(tmp_path, name):
    row, shown, right, wrong = CASES[name]
    column = next(key for key in ("question", "problem", "text", "prompt") if key in row)
    write(tmp_path / "p.jsonl", row, column)
    config = config_for(name, tmp_path / "p.jsonl")
    (problem,) = FileTask(config.data).problems("train")
    assert shown in problem.prompt
    judge = build(config.verifier)
    assert judge.reference_fault(problem) == ""
    if config.verifier.rewards == ("code",) and sys.platform != "linux":
        pytest.skip("the sandbox confines on Linux only")
    judge.start()
    for text, correct in ((right, True), (wrong, False)):
        verdict = judge(problem, Completion(text, 9, FinishReason.STOP))
        assert (verdict.correct, verdict.error) == (correct, False), verdict.reason


@pytest.mark.parametrize("name", CASES)
def test_a_preset_is_for_chats_too(name):
    plain, chat = base.get_config(), base.get_config()
    presets.apply(plain, name)
    presets.apply(chat, name, chat=True)
    assert (plain.data.chat, chat.data.chat) == (False, True)
    assert plain.verifier.to_dict() == chat.verifier.to_dict()
    assert own_problems.get_config(f"{name},chat").data.chat


@pytest.mark.parametrize("variant", ["gsm", "gsm8k,chats", ",chat"])
def test_other_names_are_refused(variant):
    with pytest.raises(ValueError, match=r"data preset: got 'gsm', wanted one of gsm8k|wanted ',chat' or nothing"):
        own_problems.get_config(variant)


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("humaneval", {"test": None}, r"no tests as humaneval has them \(column 'test': wanted text\)"),
        ("humaneval", {"entry_point": ""}, r"column 'entry_point': wanted text"),
        (
            "mbpp",
            {"test_list": "assert 1"},
            r"no tests as mbpp has them \(column 'test_list': wanted a list of texts\)",
        ),
        ("mbpp", {"test_list": []}, r"column 'test_list': wanted at least one test"),
        ("mbpp", {"test_setup_code": 3}, r"column 'test_setup_code': wanted text"),
        ("mbpp_sanitized", {"test_imports": [1]}, r"column 'test_imports': wanted a list of texts"),
    ],
)
def test_rows_without_tests_are_named(tmp_path, name, changes, reason):
    row = CASES[name][0]
    write(tmp_path / "p.jsonl", row | changes, "text" if "text" in row else "prompt")
    with pytest.raises(ValueError, match=reason):
        FileTask(config_for(name, tmp_path / "p.jsonl").data)


def test_a_template_shows_tests_only_where_there_are_some(tmp_path):
    with pytest.raises(
        ValueError, match=r"prompt_template: got .*, wanted no '\{tests\}', since data\.tests_format is"
    ):
        config_for("gsm8k", tmp_path / "p.jsonl", prompt_template="{problem}{tests}")
