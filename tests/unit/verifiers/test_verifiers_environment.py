"""Environments in the format of the ``verifiers`` library, with stand-ins for its classes."""

import json
import sys

import numpy as np
import pytest

from configs import own_problems
from grpo_jax.config import DataConfig, RunConfig, VerifierConfig, from_nested
from grpo_jax.data.chat import conversation
from grpo_jax.data.files import FileTask
from grpo_jax.data.splits import SPLITS
from grpo_jax.foreign import environments
from grpo_jax.records import Completion, FinishReason, Problem
from grpo_jax.verifiers.base import UnusableVerifierError
from grpo_jax.verifiers.composite import build
from grpo_jax.verifiers.pool import VerifierPool

MODULE = """
import json

class Parser:
    def parse_answer(self, completion):
        return completion[-1]["content"].strip()

class Rubric:
    def __init__(self, funcs, weights):
        self.funcs, self.weights, self.class_objects = funcs, weights, {"parser": Parser()}

class RubricGroup(Rubric):
    def __init__(self, rubrics):
        super().__init__([], [])
        self.rubrics = rubrics

class JudgeRubric(Rubric):
    pass

class MultiTurnEnv:
    def __init__(self, rubric, tools=None, prompt=None, rows=60):
        self.rubric, self.tool_defs, self.prompt, self.rows = rubric, tools, prompt, rows

    def get_dataset(self):
        for number in range(self.rows):
            user = {"role": "user", "content": f"{number} + {number}?"}
            yield {
                "prompt": self.prompt and self.prompt.format(number) or [{"role": "system", "content": "Add."}, user],
                "answer": str(2 * number) if number else "",
                "info": json.dumps({"number": number}),
                "level": number % 3,
                "example_id": number,
            }

class SingleTurnEnv(MultiTurnEnv):
    pass

class ToolEnv(SingleTurnEnv):
    pass

async def right(parser, completion, answer):
    return 1.0 if parser.parse_answer(completion) == answer else 0.0

def short(completion, info, state, level, **others):
    if completion[-1]["content"] == "crash":
        raise KeyError("no such thing")
    assert info["number"] == state["info"]["number"] and others["task"]["level"] == level
    return float(not state["is_truncated"])

def plain(prompt, completion, answer):
    return completion == prompt[0]

def measured(completion):
    raise AssertionError("a weight of 0 is only measured")

def several(completions):
    return [1.0 for _ in completions]

def load_environment(kind="SingleTurnEnv", funcs=("right", "short", "measured"), weights=(1.0, 0.5, 0.0), **more):
    rubric = Rubric([globals()[name] for name in funcs], list(weights))
    if more.pop("judge", False):
        rubric = JudgeRubric([right], [1.0])
    if kind == "Failing":
        raise RuntimeError("no data here")
    return globals()[kind](RubricGroup([rubric, Rubric([], [])]), **more)
"""


@pytest.fixture
def name(tmp_path):
    path = tmp_path / "sums.py"
    path.write_text(MODULE)
    return str(path)


def with_arguments(name, **arguments):
    return f"{name}:{json.dumps(arguments)}"


def verifier(name):
    judge = build(VerifierConfig(rewards=("environment",), environment=name))
    return judge, judge.start()


def completion(text, finish=FinishReason.STOP):
    return Completion(text, 3, finish)


def problem_of(name, number):
    task = FileTask(DataConfig(task="environment", path=name))
    found = [problem for split in SPLITS for problem in task.problems(split)]
    return next(problem for problem in found if problem.extra["verifiers_environment"]["info"]["number"] == number)


def test_rows_are_problems_in_splits_with_their_messages(name):
    task = FileTask(DataConfig(task="environment", path=name))
    assert task.name == "environment"
    assert len(task.problems("train")) > 40
    problem = problem_of(name, 7)
    assert (problem.prompt, problem.answer, problem.extra["level"]) == ("Add.\n\n7 + 7?", "14", 1)
    assert conversation(problem, "ignored") == [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": "7 + 7?"},
    ]
    assert problem_of(name, 0).answer == "(the environment judges)"
    with pytest.raises(ValueError, match=r"cold_start\.steps: the 'environment' task has no worked examples"):
        task.demonstration(problem, np.random.default_rng(0))


def test_the_rubric_judges_by_weight_and_its_first_reward_decides(name):
    judge, facts = verifier(name)
    assert facts["environment"].startswith(f"{name}: right, short, sha256 ")
    problem = problem_of(name, 7)
    assert judge.reference_fault(problem) == ""
    right, wrong = judge(problem, completion(" 14 ")), judge(problem, completion("15", FinishReason.LENGTH))
    assert (right.reward, right.correct, right.reason) == (1.5, True, "right 1, short 1")
    assert (wrong.reward, wrong.correct, wrong.error) == (0.0, False, False)


def test_texts_are_handed_on_as_texts(name):
    plain = with_arguments(name, prompt="{} plus?", funcs=["plain"], weights=[2.0])
    judge, _ = verifier(plain)
    problem = FileTask(DataConfig(task="environment", path=plain)).problems("train")[0]
    assert problem.prompt.endswith(" plus?")
    assert judge(problem, completion(problem.prompt[0])).reward == 2.0


def test_a_reward_that_fails_is_an_error_of_the_judge(name):
    config = VerifierConfig(rewards=("environment",), environment=name)
    with VerifierPool(config, 1, 10.0) as pool:
        verdicts = [pool.submit(problem_of(name, 7), completion(text)).result() for text in ("crash", "14")]
    assert [verdict.error for verdict in verdicts] == [True, False]
    assert "no such thing" in verdicts[0].reason
    assert verdicts[1].reward == 1.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "MultiTurnEnv"}, r"sums\.py is a MultiTurnEnv, wanted a SingleTurnEnv"),
        ({"kind": "ToolEnv"}, r"is a ToolEnv with tools"),
        ({"tools": [{"name": "search"}]}, r"is a SingleTurnEnv with tools"),
        ({"judge": True}, r"its JudgeRubric asks a model for its opinion"),
        ({"funcs": ["several"], "weights": [1.0]}, r"its reward several judges several completions at once"),
        ({"funcs": ["measured"], "weights": [0.0]}, r"no reward function with a weight"),
        ({"kind": "Failing"}, r"load_environment of .*: RuntimeError: no data here\. .*pip install 'verifiers<0\.2'"),
        ({"surprise": 1}, r"TypeError: .*surprise"),
    ],
)
def test_environments_of_other_kinds_are_refused_by_name(name, arguments, message):
    asked = with_arguments(name, **arguments)
    with pytest.raises(ValueError, match=rf"config\.data\.path: .*{message}"):
        FileTask(DataConfig(task="environment", path=asked))
    with pytest.raises(UnusableVerifierError, match=rf"config\.verifier\.environment: .*{message}"):
        verifier(asked)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("absent.py", r"absent\.py: there is no file absent\.py in "),
        ("no_such_module_here", r"No module named 'no_such_module_here'\.$"),
        ("json", r"json has no function load_environment"),
        ("sums:[1]", r"no JSON object behind its colon"),
        ("sums:{", r"no JSON object behind its colon"),
    ],
)
def test_names_of_no_environment(asked, message):
    with pytest.raises(environments.EnvironmentFault, match=message):
        environments.load(asked)


class _WithoutVerifiers:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "verifiers":
            raise ModuleNotFoundError(f"No module named {name!r}", name="verifiers")


def test_a_missing_library_is_named_with_its_command(tmp_path, monkeypatch):
    (tmp_path / "needs.py").write_text("import verifiers.parsers\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.delitem(sys.modules, "verifiers", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_WithoutVerifiers(), *sys.meta_path])
    with pytest.raises(environments.EnvironmentFault, match=r"Run `pip install 'verifiers<0\.2'`"):
        environments.load(str(tmp_path / "needs.py"))
    with pytest.raises(environments.EnvironmentFault, match=r"importing .*broken\.py fails: ZeroDivisionError"):
        environments.load(str(tmp_path / "broken.py"))


def test_a_problem_from_elsewhere_is_an_error(name):
    judge, _ = verifier(name)
    verdict = judge(Problem("p", "", ""), completion("1"))
    assert verdict.error
    assert "none of data.task 'environment'" in verdict.reason


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"verifier.environment": "other"},
            r"verifier\.environment: got 'other', wanted 'sums', which data\.path names",
        ),
        ({"data.path": None}, r"data\.path: got None, wanted a module or FILE\.py with load_environment\(\)"),
        ({"data.prompt_template": "Q: {problem}"}, r"prompt_template: .*the prompts of an environment are whole"),
        (
            {"data.answer_format": "boxed"},
            r"data\.answer_format: got 'boxed', wanted 'plain', since data\.task is 'env",
        ),
        ({"verifier.rewards": ("numeric",)}, r"verifier\.environment: got 'sums', wanted None"),
        ({"data.task": "addition", "data.path": None}, r"verifier\.rewards: .*'environment' among them if and only if"),
    ],
)
def test_configurations_that_cannot_work(changes, message):
    config = own_problems.get_config("environment")
    config.data.path = config.verifier.environment = "sums"
    for key, value in changes.items():
        section, _, field = key.partition(".")
        config[section][field] = value
    with pytest.raises(ValueError, match=message):
        from_nested(RunConfig, config.to_dict()).validate()
