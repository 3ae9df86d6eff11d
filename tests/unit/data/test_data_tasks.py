import re
import subprocess
import sys
import zlib
from collections import Counter

import numpy as np
import pytest

from grpo_jax.config import ColdStartConfig, DataConfig
from grpo_jax.data.addition import AdditionTask
from grpo_jax.data.countdown import CountdownTask
from grpo_jax.data.splits import SPLITS, LazyProblems, hash_split, text_hashes
from grpo_jax.data.tasks import build_task, check_prompt_lengths
from grpo_jax.data.tokenizer import CharacterTokenizer
from grpo_jax.records import Completion, FinishReason, Problem
from grpo_jax.verifiers.countdown import CountdownVerifier
from grpo_jax.verifiers.numeric import NumericVerifier

ADDITION = DataConfig(prompt_template="{problem}=", max_prompt_tokens=9)
TWO_DIGITS = DataConfig(digits=2)
SMALL_COUNTDOWN = DataConfig(task="countdown", max_problems=20_000, max_prompt_tokens=16)


def cold_start(thinking_share=1.0, slip_probability=0.0):
    return ColdStartConfig(steps=1, thinking_share=thinking_share, slip_probability=slip_probability)


@pytest.fixture(scope="module")
def addition():
    return AdditionTask(ADDITION, cold_start())


@pytest.fixture(scope="module")
def countdown():
    return CountdownTask(SMALL_COUNTDOWN, cold_start())


def solved_share(task, verifier, count=400):
    problems = task.problems("train")
    generator = np.random.default_rng(0)
    chosen = [problems[int(i)] for i in generator.integers(len(problems), size=count)]
    texts = [task.demonstration(problem, generator) for problem in chosen]
    verdicts = [
        verifier(problem, Completion(text, 1, FinishReason.STOP)) for problem, text in zip(chosen, texts, strict=True)
    ]
    assert not any(verdict.error for verdict in verdicts)
    return np.mean([verdict.correct for verdict in verdicts]), texts


def chi_square(counts, shares):
    expected = np.asarray(shares) * np.sum(counts)
    return np.sum((counts - expected) ** 2 / expected)


@pytest.mark.parametrize("task_class", [AdditionTask, CountdownTask])
def test_the_splits_are_disjoint(task_class):
    config = DataConfig(digits=2, countdown_numbers=2, max_problems=50_000, validation_problems=300)
    task = task_class(config, cold_start())
    prompts = {split: {problem.prompt for problem in task.problems(split)} for split in SPLITS}
    assert {split: len(task.problems(split)) for split in SPLITS} == {split: len(prompts[split]) for split in SPLITS}
    assert (len(prompts["validation"]), len(prompts["test"])) == (300, 256)
    assert len(set.union(*prompts.values())) == sum(map(len, prompts.values()))


def test_nine_tenths_of_the_additions_train(addition):
    assert 0.897 * 810_000 < len(addition.problems("train")) < 0.903 * 810_000


def test_the_split_does_not_separate_last_digits_or_carries(addition):
    train = addition.problems("train")
    for split, problems in (("train", train[::200]), ("validation", addition.problems("validation"))):
        digits = Counter(int(problem.answer[-1]) for problem in problems)
        # 9 degrees of freedom: exceeded with a probability of 0.001.
        assert chi_square(np.array([digits[digit] for digit in range(10)]), np.full(10, 0.1)) < 27.9, split
        carries = sum(int(problem.answer) >= 1000 for problem in problems)
        exact = np.mean(np.add.outer(np.arange(100, 1000), np.arange(100, 1000)) >= 1000)
        assert abs(carries / len(problems) - exact) < 4 * np.sqrt(0.25 / len(problems)), split


def test_the_hash_and_the_held_out_sets_never_change(addition):
    assert text_hashes(["417+385", "3 7 8 -> 29"], 2).tolist() == [223733135, 432619729]
    assert [problem.identifier for problem in addition.problems("validation")][:2] == [
        "addition/171+266",
        "addition/172+721",
    ]
    assert [problem.identifier for problem in addition.problems("test")][:2] == [
        "addition/974+286",
        "addition/328+967",
    ]


def test_the_mirror_of_a_held_out_addition_is_never_trained_on(addition):
    train = {problem.prompt for problem in addition.problems("train")[::7]}
    for split in ("validation", "test"):
        for problem in addition.problems(split):
            left, right = problem.extra["operands"]
            assert problem.prompt.replace(f"{left}+{right}", f"{right}+{left}") not in train


def test_the_split_follows_the_text_alone():
    texts = [f"problem {i}" for i in range(2000)]
    forward, backward = hash_split(text_hashes(texts, 2000)), hash_split(text_hashes(texts[::-1], 2000))
    for split in SPLITS:
        assert {texts[i] for i in forward[split]} == {texts[::-1][i] for i in backward[split]}
    assert [texts[i] for i in forward["test"]] == [texts[::-1][i] for i in backward["test"]]
    assert sorted(np.concatenate(list(forward.values())).tolist()) == list(range(2000))
    assert {zlib.crc32(texts[i].encode()) % 1000 // 50 for i in forward["validation"]} == {0}
    assert {zlib.crc32(texts[i].encode()) % 1000 // 50 for i in forward["test"]} == {1}


def test_an_addition_problem_has_prompt_answer_and_name(addition):
    for problem in addition.problems("train")[:3]:
        left, right = problem.extra["operands"]
        assert problem.prompt == f"{left}+{right}="
        assert problem.identifier == f"addition/{left}+{right}"
        assert problem.answer == str(left + right)


def test_a_template_may_hold_other_braces():
    config = DataConfig(digits=2, prompt_template=r"{problem}? \boxed{}")
    assert AdditionTask(config, cold_start()).problems("train")[0].prompt == r"10+10? \boxed{}"


def test_many_pairs_are_sampled_without_repetition():
    task = AdditionTask(DataConfig(digits=5, max_problems=20_000), cold_start())
    problems = [problem for split in SPLITS for problem in task.problems(split)]
    assert len({problem.identifier for problem in problems}) == len(problems)
    assert 0.89 * 20_000 < len(task.problems("train")) < 0.91 * 20_000
    assert all(10_000 <= operand < 100_000 for problem in problems for operand in problem.extra["operands"])
    assert 0.48 < np.mean([problem.extra["operands"][0] < 55_000 for problem in problems]) < 0.52


def test_nearly_all_pairs_can_be_sampled():
    task = AdditionTask(DataConfig(digits=2, max_problems=8099), cold_start())
    assert len({problem.identifier for problem in task.problems("train")}) == len(task.problems("train")) > 7000


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (DataConfig(digits=1), r"config\.data\.validation_problems: got 256, wanted at most \d: of 81 .*data\.digits"),
        (
            DataConfig(digits=2, test_problems=5000),
            r"config\.data\.test_problems: got 5000, wanted at most \d+: of 8100",
        ),
        (DataConfig(task="countdown", max_problems=99), r"validation_problems: got 256.*raise data\.countdown_numbers"),
    ],
)
def test_too_few_held_out_problems_are_refused(config, message):
    with pytest.raises(ValueError, match=message):
        build_task(config, cold_start())


def test_a_worked_addition_reads_as_documented(addition):
    problem = Problem("p", "417+385=", "802", {"operands": (417, 385)})
    expected = "<think>7+5+0=12,1+8+1=10,4+3+1=8</think><answer>802</answer>"
    assert addition.demonstration(problem, np.random.default_rng(0)) == expected


def test_additions_without_slips_are_all_right(addition):
    share, texts = solved_share(addition, NumericVerifier())
    assert share == 1
    assert all(text.startswith("<think>") for text in texts)


def test_an_addition_slips_in_about_the_configured_share_of_columns():
    task = AdditionTask(TWO_DIGITS, cold_start(slip_probability=0.1))
    share, texts = solved_share(task, NumericVerifier(), count=1500)
    # One slip is never undone: it takes two that cancel.
    assert abs(share - 0.9**2) < 0.04
    columns = [tuple(map(int, step)) for text in texts for step in re.findall(r"(\d)\+(\d)\+(\d)=(\d+)", text)]
    errors = np.array([total - (a + b + carry) for a, b, carry, total in columns])
    assert set(errors.tolist()) == {-1, 0, 1}
    assert abs(np.mean(errors != 0) - 0.1) < 0.02


def test_a_slip_is_carried_into_the_answer():
    task = AdditionTask(TWO_DIGITS, cold_start(slip_probability=0.5))
    for text in solved_share(task, NumericVerifier())[1]:
        steps = re.findall(r"(\d)\+(\d)\+(\d)=(\d+)", text)
        assert [int(step[2]) for step in steps] == [0, *(int(step[3]) // 10 for step in steps[:-1])]
        written = steps[-1][3] + "".join(step[3][-1] for step in steps[-2::-1])
        assert text.endswith(f"<answer>{int(written)}</answer>")


@pytest.mark.parametrize("task_class", [AdditionTask, CountdownTask])
def test_the_thinking_share_is_kept_and_bare_answers_are_right(task_class):
    config = SMALL_COUNTDOWN if task_class is CountdownTask else TWO_DIGITS
    task = task_class(config, cold_start(thinking_share=0.35, slip_probability=1.0))
    verifier = CountdownVerifier() if task_class is CountdownTask else NumericVerifier()
    problems, generator = task.problems("train"), np.random.default_rng(3)
    texts = [task.demonstration(problem, generator) for problem in problems[:2000]]
    assert abs(np.mean([text.startswith("<think>") for text in texts]) - 0.35) < 0.04
    for problem, text in zip(problems[:2000], texts, strict=True):
        if not text.startswith("<think>"):
            assert verifier(problem, Completion(text, 1, FinishReason.STOP)).correct


def test_countdown_problems_are_distinct_and_solvable(countdown):
    share, texts = solved_share(countdown, CountdownVerifier())
    assert share == 1
    operators = Counter("".join(re.findall(r"<answer>(.*)</answer>", "".join(texts))))
    assert all(operators[operator] > 0 for operator in "+-*/(")
    prompts = [problem.prompt for split in SPLITS for problem in countdown.problems(split)]
    assert len(set(prompts)) == len(prompts)
    for problem in countdown.problems("validation"):
        numbers = problem.extra["numbers"]
        assert list(numbers) == sorted(numbers), "an order of its own would make the same problem look new"
        assert problem.prompt == f"{' '.join(map(str, numbers))} -> {problem.answer}"
        assert 1 <= min(numbers) <= max(numbers) <= 99
        assert 1 <= int(problem.answer) <= 999
        assert zlib.crc32(problem.prompt.encode()) % 1000 < 50


def test_a_worked_countdown_shows_steps_that_lead_to_the_target(countdown):
    for problem in countdown.problems("test")[:50]:
        text = countdown.demonstration(problem, np.random.default_rng(0))
        steps = text.removeprefix("<think>").partition("</think>")[0].split(",")
        assert len(steps) == 2
        assert steps[-1].endswith(f"={problem.answer}")
        assert steps[1].startswith(steps[0].partition("=")[2])


def test_countdown_slips_miss_the_target_at_about_the_configured_rate():
    task = CountdownTask(SMALL_COUNTDOWN, cold_start(slip_probability=0.2))
    share, texts = solved_share(task, CountdownVerifier(), count=1000)
    assert abs(share - 0.8**2) < 0.06
    for text in texts:
        for left, operator, right, result in re.findall(r"(-?\d+)([+*/-])(\d+)=(-?\d+)", text):
            a, b = int(left), int(right)
            assert int(result) == {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[operator]
            assert operator != "/" or a % b == 0


def test_countdown_problems_do_not_depend_on_the_object(countdown):
    assert CountdownTask(SMALL_COUNTDOWN, cold_start()).problems("train")[77] == countdown.problems("train")[77]


def test_lazy_problems_behave_like_a_sequence(addition):
    problems = addition.problems("train")
    assert isinstance(problems, LazyProblems)
    assert problems[-1] == problems[len(problems) - 1]
    assert problems[2:4] == [problems[2], problems[3]]
    with pytest.raises(IndexError):
        problems[len(problems)]


def test_generated_prompts_that_fit_are_kept(addition, countdown):
    tokenizer = CharacterTokenizer()
    assert check_prompt_lengths(addition, tokenizer, ADDITION) is addition
    assert check_prompt_lengths(countdown, tokenizer, SMALL_COUNTDOWN) is countdown


def test_a_generated_prompt_that_is_too_long_is_an_error_even_when_rows_may_be_skipped(addition):
    config = DataConfig(prompt_template="{problem}=", max_prompt_tokens=8, bad_rows="skip")
    with pytest.raises(
        ValueError, match=r"got 8, which cannot hold(?s:.)*addition/\d+\+\d+: 9 tokens(?s:.)*more\nRaise"
    ):
        check_prompt_lengths(addition, CharacterTokenizer(), config)


class OneLongPrompt:
    """A generated task in which one prompt of 5000 is longer than the others."""

    name = "one long prompt"

    def problems(self, split):
        return LazyProblems(
            np.arange(5000), lambda i: Problem(f"{split}{i}", "1" * (20 if i == 4321 else 3), "1"), longest=4321
        )

    def demonstration(self, problem, generator):
        return "1"


def test_the_longest_generated_prompt_is_always_measured(countdown):
    with pytest.raises(ValueError, match=r"cannot hold 3 of the prompts tried:\n  train4321: 21 tokens\n"):
        check_prompt_lengths(OneLongPrompt(), CharacterTokenizer(), DataConfig(max_prompt_tokens=16))
    problems = countdown.problems("train")
    assert isinstance(problems, LazyProblems)
    longest = max(len(problem.prompt) for problem in problems)
    assert len(problems[problems.longest].prompt) == longest


BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("jax", "jaxlib"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocker())
import importlib, pkgutil
import grpo_jax.data
for module in pkgutil.iter_modules(grpo_jax.data.__path__):
    importlib.import_module(f"grpo_jax.data.{module.name}")
from grpo_jax.data.loader import PromptLoader
loader = PromptLoader(["a", "b", "c"], 3, 0)
assert sorted(next(loader)) == ["a", "b", "c"]
assert "jax" not in sys.modules
print("loaded")
"""

UNBLOCKED = """
import sys
import grpo_jax.data.tasks, grpo_jax.data.tokenizer
assert not {"jax", "grain", "pyarrow"} & set(sys.modules), "imported too much"
print("loaded")
"""


@pytest.mark.parametrize("program", [BLOCKED, UNBLOCKED], ids=["jax blocked", "jax not blocked"])
def test_data_needs_no_jax(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "loaded", done.stderr
