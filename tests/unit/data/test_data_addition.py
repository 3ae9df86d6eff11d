"""Demonstrations of the addition task that check themselves: how many passes, how many slips, and whose answer."""

import dataclasses
import re
import zlib

import numpy as np
import pytest

from configs import thinking_loop
from grpo_jax.config import ColdStartConfig, ConfigError, DataConfig, RunConfig, from_nested
from grpo_jax.data.addition import AdditionTask
from grpo_jax.data.tokenizer import CharacterTokenizer

TWO_DIGITS = DataConfig(digits=2, prompt_template="{problem}=")
COUNT = 4000


def demonstrations(count=COUNT, data=TWO_DIGITS, **settings):
    task = AdditionTask(data, ColdStartConfig(steps=1, **settings))
    problems = task.problems("train")
    chosen = [problems[index % len(problems)] for index in range(count)]
    return chosen, [task.demonstration(p, np.random.default_rng((0, i))) for i, p in enumerate(chosen)]


def passes_of(text):
    return text.partition("<think>")[2].partition("</think>")[0].split(".")


@pytest.fixture(scope="module")
def rechecked():
    return demonstrations(
        thinking_share=1.0, slip_probability=0.4, max_passes=3, recheck_probability=0.6, recheck_slip_factor=0.5
    )


def test_examples_of_one_pass_never_change():
    _, texts = demonstrations(1000, DataConfig(prompt_template="{problem}="))
    assert zlib.crc32("\n".join(texts).encode()) == 3464471602


def test_passes_go_on_with_the_configured_probability_up_to_the_limit(rechecked):
    _, texts = rechecked
    counts = np.bincount([len(passes_of(text)) for text in texts], minlength=4) / COUNT
    # Four standard errors of a share of COUNT examples.
    assert np.abs(counts - [0, 0.4, 0.6 * 0.4, 0.6**2]).max() < 4 * np.sqrt(0.25 / COUNT)


def test_slips_get_rarer_with_each_pass(rechecked):
    slips = [[], [], []]
    for text in rechecked[1]:
        for index, steps in enumerate(passes_of(text)):
            columns = re.findall(r"(\d)\+(\d)\+(\d)=(\d+)", steps)
            slips[index] += [int(total) != int(a) + int(b) + int(carry) for a, b, carry, total in columns]
    for index, wanted in enumerate((0.4, 0.2, 0.1)):
        assert abs(np.mean(slips[index]) - wanted) < 4 * np.sqrt(0.25 / len(slips[index]))


def test_every_pass_works_on_the_problem_and_the_last_one_gives_the_answer(rechecked):
    for problem, text in zip(*rechecked, strict=True):
        left, right = problem.extra["operands"]
        for steps in passes_of(text):
            columns = re.findall(r"(\d)\+(\d)\+(\d)=(\d+)", steps)
            assert [(a, b) for a, b, _, _ in columns] == [(str(left)[1], str(right)[1]), (str(left)[0], str(right)[0])]
            assert [int(carry) for _, _, carry, _ in columns] == [0, int(columns[0][3]) // 10]
        assert text.endswith(f"<answer>{int(columns[1][3]) * 10 + int(columns[0][3]) % 10}</answer>")


def test_checking_again_pays(rechecked):
    right = {1: [], 3: []}
    for problem, text in zip(*rechecked, strict=True):
        if (passes := len(passes_of(text))) in right:
            right[passes].append(f"<answer>{problem.answer}</answer>" in text)
    assert np.mean(right[3]) > np.mean(right[1]) + 0.3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_passes": 0}, r"config\.cold_start\.max_passes: got 0, wanted"),
        (
            {"recheck_probability": 0.3},
            r"config\.cold_start\.recheck_probability: got 0\.3, wanted 0\.4, its default: it is only read when max_",
        ),
        ({"recheck_slip_factor": 1.0}, r"config\.cold_start\.recheck_slip_factor: got 1\.0, wanted 0\.5, its default"),
        ({"max_passes": 2, "recheck_probability": 1.5}, r"config\.cold_start\.recheck_probability: got 1\.5, wanted"),
        ({"max_passes": 2, "recheck_slip_factor": -0.1}, r"config\.cold_start\.recheck_slip_factor: got -0\.1, wanted"),
    ],
)
def test_settings_of_re_checks_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        ColdStartConfig(**settings).validate("config.cold_start")


@pytest.mark.parametrize("variant", ["", "regularised"])
def test_the_longest_examples_of_the_thinking_loop_leave_room_for_another_pass(variant):
    config = from_nested(RunConfig, thinking_loop.get_config(variant).to_dict())
    config.validate()
    settings = dataclasses.replace(config.cold_start, recheck_probability=1.0)
    task = AdditionTask(config.data, settings)
    encode = CharacterTokenizer().encode
    texts = [task.demonstration(p, np.random.default_rng(i)) for i, p in enumerate(task.problems("train")[:500])]
    longest = max(len(encode(text)) + 1 for text in texts)
    one_pass = max(len(encode(f".{passes_of(text)[0]}")) for text in texts)
    assert {len(passes_of(text)) for text in texts} == {settings.max_passes}
    assert longest + one_pass <= config.rollout.max_new_tokens < longest + 2 * one_pass


def test_an_unknown_variant_of_the_thinking_loop_is_refused():
    with pytest.raises(ValueError, match=r"thinking_loop\.py:regularized: wanted nothing or 'regularised'"):
        thinking_loop.get_config("regularized")
