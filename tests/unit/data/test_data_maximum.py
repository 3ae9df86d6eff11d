"""The larger of two numbers: what a prompt shows, what it never shows, and that no shortcut pays."""

import re

import numpy as np
import pytest

from grpo_jax.config import ColdStartConfig, ConfigError, DataConfig
from grpo_jax.data.maximum import MaximumTask
from grpo_jax.data.splits import SPLITS
from grpo_jax.data.tasks import build_task, check_prompt_lengths
from grpo_jax.data.tokenizer import ByteTokenizer

CONFIG = DataConfig(task="maximum", digits=2, prompt_template="max({problem})=", max_prompt_tokens=64)
LINE = re.compile(r"max\((\d\d),(\d\d)\)=(\d\d)?")


@pytest.fixture(scope="module")
def task():
    return MaximumTask(CONFIG)


def asked(problem):
    """The two numbers of the last line."""
    return tuple(map(int, LINE.fullmatch(problem.prompt.splitlines()[-1]).groups()[:2]))


def pairs_of(task):
    return {split: [asked(problem) for problem in task.problems(split)] for split in SPLITS}


def test_every_pair_is_asked_for_at_most_once_and_its_mirror_image_in_the_same_split(task):
    pairs = pairs_of(task)
    assert [len(pairs[split]) for split in SPLITS] == [7208, 256, 256]
    for first in SPLITS:
        assert len(set(pairs[first])) == len(pairs[first])
        for second in SPLITS:
            mirrored = {(b, a) for a, b in pairs[second]}
            if first != second:
                assert not set(pairs[first]) & (set(pairs[second]) | mirrored)
    assert {(b, a) for a, b in pairs["train"]} == set(pairs["train"])


def test_examples_are_right_and_are_asked_for_nowhere(task):
    pairs = pairs_of(task)
    everything = {pair for split in SPLITS for pair in pairs[split]}
    shown = {problem.prompt.rpartition("\n")[0] for split in SPLITS for problem in task.problems(split)}
    assert len(shown) == 1
    examples = [tuple(map(int, LINE.fullmatch(line).groups())) for line in shown.pop().splitlines()]
    assert len(examples) == 2
    for left, right, answer in examples:
        assert answer == max(left, right)
        assert not {(left, right), (right, left)} & everything
    assert [left < right for left, right, _ in examples] == [True, False]


def test_answers_are_right_and_to_repeat_one_side_is_right_half_of_the_time(task):
    for split in SPLITS:
        problems = task.problems(split)
        numbers = np.array([asked(problem) for problem in problems])
        assert [problem.answer for problem in problems] == list(map(str, numbers.max(axis=1)))
        assert (numbers[:, 0] != numbers[:, 1]).all()
        left_share = (numbers[:, 0] > numbers[:, 1]).mean()
        assert abs(left_share - 0.5) < 4 * np.sqrt(0.25 / len(problems))


@pytest.mark.parametrize("examples", [0, 1, 5])
def test_the_number_of_examples(examples):
    config = DataConfig(task="maximum", digits=2, prompt_template="{problem} -> ", maximum_examples=examples)
    problem = build_task(config, ColdStartConfig()).problems("test")[0]
    assert len(problem.prompt.splitlines()) == examples + 1
    assert problem.prompt.endswith(" -> ")


def test_more_digits_and_fewer_problems():
    task = MaximumTask(DataConfig(task="maximum", digits=3, max_problems=10_000))
    total = sum(len(task.problems(split)) for split in SPLITS)
    assert 9000 < total <= 10_000
    assert all(len(problem.answer) == 3 for problem in task.problems("validation"))


def test_every_prompt_has_the_same_length(task):
    tokenizer = ByteTokenizer()
    assert check_prompt_lengths(task, tokenizer, CONFIG) is task
    lengths = {len(tokenizer.encode_prompt(problem.prompt)) for problem in task.problems("test")}
    assert len(lengths) == 1


def test_there_are_no_worked_examples(task):
    message = r"config\.cold_start\.steps: the 'maximum' task has no worked examples"
    with pytest.raises(ConfigError, match=message):
        build_task(CONFIG, ColdStartConfig(steps=1))
    with pytest.raises(ConfigError, match=message):
        task.demonstration(task.problems("train")[0], np.random.default_rng(0))
