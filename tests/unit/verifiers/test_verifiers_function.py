import importlib
import re
import sys
from pathlib import Path

import pytest

from grpo_jax.config import VerifierConfig
from grpo_jax.records import Completion, FinishReason, Problem, RewardOutOfRange, Verdict
from grpo_jax.verifiers.base import UnusableVerifierError
from grpo_jax.verifiers.function import FunctionVerifier, load_function
from grpo_jax.verifiers.pool import open_pool

_PROBLEM = Problem("p", "6*7=", "42")

_REWARDS = """
import dataclasses

from neighbour import SCALE
from grpo_jax.records import Verdict


@dataclasses.dataclass
class Point:
    x: float


def length(problem, completion):
    return SCALE * completion.length_tokens / len(problem.answer)


def exact(problem, completion):
    return completion.text == problem.answer


def whole(problem, completion):
    return Verdict(0.5, correct=True, parsed=completion.text, reason="mine")


def raises(problem, completion):
    return 1 / 0


def nothing(problem, completion):
    return None


def text(problem, completion):
    return "1.0"


def lonely(problem):
    return 1.0


not_callable = 3
"""


@pytest.fixture
def rewards(tmp_path):
    (tmp_path / "neighbour.py").write_text("SCALE = 0.25\n")
    file = tmp_path / "my_rewards.py"
    file.write_text(_REWARDS)
    return str(file)


def _completion(text: str, length_tokens: int = 1) -> Completion:
    return Completion(text, length_tokens, FinishReason.STOP)


def _judge(name: str, completion: Completion) -> Verdict:
    verifier = FunctionVerifier(name)
    assert verifier.start()["function"].startswith(f"{name}, sha256 ")
    return verifier(_PROBLEM, completion)


def test_a_number_a_bool_and_a_verdict_are_rewards(rewards):
    assert _judge(f"{rewards}:length", _completion("", 4)) == Verdict(0.5, False, None, "not full reward")
    assert _judge(f"{rewards}:length", _completion("", 8)) == Verdict(1.0, True, None, "full reward")
    assert _judge(f"{rewards}:exact", _completion("42")) == Verdict(1.0, True, None, "full reward")
    assert _judge(f"{rewards}:exact", _completion("41")) == Verdict(0.0, False, None, "not full reward")
    assert _judge(f"{rewards}:whole", _completion("x")) == Verdict(0.5, True, "x", "mine")


def test_a_relative_path_counts_from_the_working_directory(rewards, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_function("my_rewards.py:exact")(_PROBLEM, _completion("42"))


@pytest.mark.parametrize("name", ["os.path:relpath", "os.path.relpath"])
def test_dotted_names_are_imported(name):
    assert load_function(name).__name__ == "relpath"


def test_what_is_no_reward_says_which_function_returned_it(rewards):
    with pytest.raises(TypeError, match=r"my_rewards.py:nothing returned a NoneType, wanted a Verdict, a number"):
        _judge(f"{rewards}:nothing", _completion(""))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{file}", "it names a file and no function"),
        ("{file}:", "that is no such name"),
        ("{file}:absent", r"there is no function 'absent' in it \(functions there: .*exact.*length"),
        ("{file}:not_callable", "there is no function 'not_callable' in it"),
        ("{file}:<lambda>", "that is no such name"),
        ("{file}:lonely", "it cannot be called with a problem and a completion: too many positional arguments"),
        ("absent.py:f", "importing it fails: FileNotFoundError: there is no file absent.py in"),
        ("no_such_package.module:f", "importing it fails: ModuleNotFoundError: No module named 'no_such_package'"),
        ("", "that is no such name"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_named(name, message, rewards):
    with pytest.raises(UnusableVerifierError, match=message):
        load_function(name.format(file=rewards))


def test_a_text_is_no_reward(rewards):
    with pytest.raises(TypeError, match="returned a str, wanted a Verdict, a number"):
        _judge(f"{rewards}:text", _completion(""))


def test_a_file_that_ends_the_process_says_so(tmp_path):
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(5)\n")
    with pytest.raises(UnusableVerifierError, match="importing it fails: SystemExit: 5"):
        load_function(f"{tmp_path / 'leaving.py'}:f")


def test_a_file_that_fails_says_how(tmp_path):
    (tmp_path / "broken.py").write_text("import absent_library\n")
    with pytest.raises(UnusableVerifierError, match="ModuleNotFoundError: No module named 'absent_library'"):
        load_function(f"{tmp_path / 'broken.py'}:f")


def test_it_runs_in_the_pool_like_any_other_verifier(rewards):
    config = VerifierConfig(
        rewards=("function", "format"), weights=(1.0, 0.5), function=f"{rewards}:length", deadline_seconds=20.0
    )
    with open_pool(config) as pool:
        assert pool.wait_until_ready() == FunctionVerifier(f"{rewards}:length").start()
        verdict = pool.submit(_PROBLEM, _completion("<think>a</think><answer>b</answer>", 8)).result(60)
    assert (verdict.reward, verdict.parts) == (1.5, {"function": 1.0, "format": 1.0})


def test_one_that_raises_is_an_error_and_the_run_goes_on(rewards):
    config = VerifierConfig(rewards=("function",), function=f"{rewards}:raises", deadline_seconds=20.0)
    with open_pool(config) as pool:
        verdicts = [pool.submit(_PROBLEM, _completion("")).result(60) for _ in range(2)]
        assert pool.statistics().restarts == 0
    assert all(verdict.error and verdict.reason == "ZeroDivisionError: division by zero" for verdict in verdicts)


def test_what_it_says_of_itself_changes_with_its_file_and_with_the_one_that_it_was_written_in(rewards):
    folder = Path(rewards).parent
    (folder / "outer.py").write_text("from inner_rewards import f\n")
    (folder / "inner_rewards.py").write_text("def f(problem, completion):\n    return 1\n")

    def said():
        sys.modules.pop("inner_rewards", None)
        importlib.invalidate_caches()
        return FunctionVerifier(f"{folder / 'outer.py'}:f").start()["function"]

    first = said()
    assert said() == first
    (folder / "outer.py").write_text("from inner_rewards import f\nSCALE = 2\n")
    second = said()
    (folder / "inner_rewards.py").write_text("def f(problem, completion):\n    return 1 / 2\n")
    assert len({first, second, said()}) == 3


def test_a_function_without_a_file_has_its_name_alone():
    assert FunctionVerifier("time.strftime").start() == {"function": "time.strftime"}


def test_a_worker_that_starts_with_other_code_than_those_before_it_is_reported(tmp_path, caplog):
    file = tmp_path / "dying.py"
    file.write_text("import os\n\n\ndef f(problem, completion):\n    os._exit(3)\n")
    config = VerifierConfig(rewards=("function",), function=f"{file}:f", deadline_seconds=20.0)
    with open_pool(config) as pool:
        pool.wait_until_ready()
        file.write_text("def f(problem, completion):\n    return 0.25\n")
        assert pool.submit(_PROBLEM, _completion("")).result(60).reward == 0.25
    assert re.search(r"A worker judges with .*dying\.py:f, sha256 .*, those started before it with ", caplog.text)


@pytest.mark.parametrize("returned", ["1e19", "-1e16", "float('nan')", "Verdict(1e19, True, None, 'mine')"])
def test_a_reward_too_large_for_a_group_is_an_error_with_the_functions_name(tmp_path, returned):
    file = tmp_path / "huge.py"
    file.write_text(f"from grpo_jax.records import Verdict\n\n\ndef f(problem, completion):\n    return {returned}\n")
    wanted = r"huge\.py:f: a verdict's reward must be finite and at most 1e\+15 in size, got .*Scale its rewards down"
    with pytest.raises(RewardOutOfRange, match=wanted):
        _judge(f"{file}:f", _completion(""))


def test_half_a_character_in_a_verdict_is_an_escape():
    verdict = Verdict(1.0, correct=True, parsed="\ud800", reason="good \udfff\u00e9")
    assert (verdict.parsed, verdict.reason) == ("\\ud800", "good \\udfff\u00e9")
