import sys
import textwrap

import pytest

from grpo_jax.config.sandbox import CodeConfig, SandboxConfig
from grpo_jax.records import Completion, FinishReason, Problem
from grpo_jax.verifiers.base import Verifier
from grpo_jax.verifiers.code import trial
from grpo_jax.verifiers.code.trial import PROGRAMS
from grpo_jax.verifiers.code.verifier import CodeVerifier
from grpo_jax.verifiers.sandbox.contracts import SandboxError
from grpo_jax.verifiers.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox confines on Linux only")

ADD = {"style": "call", "entry": "add", "cases": [[[1, 2], 3], [[0, 0], 0], [[-5, 3], -2], [[10**12, 1], 10**12 + 1]]}
SUM = {"style": "stdin", "cases": [["3\n1 2 3\n", "6\n"], ["1\n-4\n", "-4\n"]]}
WHOLE = CodeConfig(extraction="whole")


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(SandboxConfig(), programs=PROGRAMS) as sandbox:
        yield sandbox


@pytest.fixture
def judge(sandbox):
    def judge(text: str, tests, config: CodeConfig = WHOLE):
        problem = Problem("p", "", "", {"tests": tests})
        return CodeVerifier(config, sandbox)(problem, Completion(textwrap.dedent(text), 1, FinishReason.STOP))

    return judge


def test_it_is_a_verifier(sandbox):
    assert isinstance(CodeVerifier(WHOLE, sandbox), Verifier)


@pytest.mark.parametrize(
    "text",
    [
        "def add(a, b): return a + b",
        "def add(a, b): return float(a + b)",
        "add = lambda a, b: a + b",
        "class Solution:\n    def add(self, a, b): return a + b",
        "class Solution:\n    def add(self, a, b): return a + b\nadd = Solution().add",
        "print('noise')\ndef add(a, b):\n    print('more', a)\n    return a + b",
        "import sys\ndef add(a, b):\n    sys.stderr.write('x')\n    return sum((a, b))",
        "def add(a, b): return a + b\nif __name__ == '__main__':\n    add()",
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef add(a, b): return P(a).x + b",
        "import wave, tempfile\ndef add(a, b):\n  with tempfile.TemporaryFile() as f: f.write(b'x')\n  return a + b",
        "import inspect\ndef add(a, b): return a + b if inspect.getsource(add) else 0",
        "from concurrent.futures import ThreadPoolExecutor as P\ndef add(a, b): return [*P(2).map(sum, [(a, b)])][0]",
        "import os\ndef add(a, b):\n  if os.fork() == 0: os._exit(0)\n  os.wait()\n  return a + b",
        "import asyncio\nasync def f(x): return x\ndef add(a, b): return asyncio.run(f(a)) + b",
        "import os\nos.symlink('/etc/passwd', 'out.txt')\ndef add(a, b): return a + b",
    ],
)
def test_right_functions_pass(judge, text):
    verdict = judge(text, ADD)
    assert (verdict.reward, verdict.correct, verdict.reason) == (1.0, True, "all tests passed")
    assert verdict.parsed == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def add(a, b): return a - b", "test 1 of 4 failed"),
        ("def add(a, b): return a + b if a < 10 else 0", "test 4 of 4 failed"),
        ("def add(a): return a", "test 1 of 4 failed"),
        ("def add(a, b): return str(a + b)", "test 1 of 4 failed"),
        ("def add(a, b): return (x for x in [a + b])", "test 1 of 4 failed"),
        ("def add(a, b)\n    return a", "syntax error"),
        ("return 3", "syntax error"),
        ("def plus(a, b): return a + b", "no such function"),
        ("import numpy_of_old\ndef add(a, b): return a + b", "error while loading"),
        ("import sys\nsys.exit(0)", "error while loading"),
        ("import os\nos._exit(0)", "crashed"),
        ("while True: pass", "time limit"),
        ("def add(a, b): return 'x' * 10**11", "memory limit"),
        ("x = 'x' * 10**11", "memory limit"),
        ("import os\ndef add(a, b):\n    while True: os.write(4, b'x' * 65536)", "output limit"),
        ("import os, time\ndef add(a, b):\n    os.write(4, b']\\n'); time.sleep(9)", "broken reply"),
        ("import os, time\ndef add(a, b):\n    os.write(4, b'[]\\n'); time.sleep(9)", "broken reply"),
        ("import os, time\nos.write(4, b'5\\n'); time.sleep(9)", "broken reply"),
        ("", "empty program"),
    ],
)
def test_other_functions_fail_and_the_reason_says_how(judge, text, reason):
    config = CodeConfig(extraction="whole", case_seconds=0.8, total_seconds=2.0)
    verdict = judge(text, ADD, config)
    assert (verdict.reward, verdict.correct, verdict.error, verdict.reason) == (0.0, False, False, reason)


def test_the_program_is_taken_from_the_completion_s_last_block(judge):
    text = "<think>```python\nx\n```</think>So:\n```python\ndef add(a, b): return a + b\n```\nDone."
    assert judge(text, ADD, CodeConfig()).correct
    assert judge(text, ADD).reason == "syntax error"


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("def add(a, b): return a + b", 1.0),
        ("def add(a, b): return 3", 0.25),
        ("import os\ndef add(a, b): return a + b if a else os.abort()", 0.75),
        ("import time\ndef add(a, b): return a + b if a else time.sleep(60)", 0.75),
        ("import os\nos.abort()", 0.0),
    ],
)
def test_stepped_rewards_are_the_share_of_tests_passed(judge, text, share):
    config = CodeConfig(extraction="whole", stepped=True, case_seconds=0.5, total_seconds=4.0)
    verdict = judge(text, ADD, config)
    assert verdict.reward == pytest.approx(share)
    assert verdict.correct is (share == 1.0)


def test_the_total_time_ends_a_stepped_run(judge):
    config = CodeConfig(extraction="whole", stepped=True, case_seconds=0.4, total_seconds=0.6)
    verdict = judge("import time\ndef add(a, b): time.sleep(60)", ADD, config)
    assert (verdict.reward, verdict.reason) == (0.0, "time limit")


def test_cases_may_name_their_arguments(judge):
    tests = {"style": "call", "entry": "f", "cases": [[{"b": 2, "a": 8}, 4.0]]}
    assert judge("def f(a, b): return a / b", tests).correct


def test_an_exception_is_no_none(judge):
    tests = {"style": "call", "entry": "f", "cases": [[[1], None]]}
    assert judge("def f(x): pass", tests).correct
    assert not judge("def f(x): raise ValueError", tests).correct


@pytest.mark.parametrize(
    "text",
    [
        "n = int(input())\nprint(sum(map(int, input().split())))",
        "import sys\nd = sys.stdin.read().split()\nsys.stdout.write(str(sum(map(int, d[1:]))))",
        "import sys\nprint(sum(map(int, sys.stdin.buffer.readlines()[1].split())))\nsys.exit()",
        "input()\nprint(sum(map(int, input().split())))\nexit()",
        "def main():\n    input()\n    print(sum(map(int, input().split())))\nif __name__ == '__main__':\n    main()",
        "import atexit\natexit.register(lambda: print(sum(x)))\ninput()\nx = list(map(int, input().split()))",
        "import threading\nthreading.Thread(target=lambda: (input(), print(sum(map(int, input().split()))))).start()",
    ],
)
def test_right_scripts_pass(judge, text):
    assert judge(text, SUM).reason == "all tests passed"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("print(6)", "test 2 of 2 failed"),
        ("import sys\ninput()\nprint(sum(map(int, input().split())))\nsys.exit(1)", "crashed"),
        ("input()\nprint(sum(map(int, input().split())))\nexit('failed')", "crashed"),
        ("input()\nprint(sum(map(int, input().split())))\nraise ValueError", "crashed"),
        ("print(", "syntax error"),
        ("import time\ntime.sleep(60)", "time limit"),
        ("while True: print('x' * 10**6)", "output limit"),
        ("x = 'x' * 10**11", "memory limit"),
        ("import os\nos.abort()", "crashed"),
    ],
)
def test_other_scripts_fail(judge, text, reason):
    config = CodeConfig(extraction="whole", case_seconds=0.8, total_seconds=2.0)
    verdict = judge(text, SUM, config)
    assert (verdict.reward, verdict.error, verdict.reason) == (0.0, False, reason)


@pytest.mark.parametrize("tests", [None, {"style": "call"}, {"style": "asserts", "code": "assert ("}])
def test_unusable_tests_are_an_error(judge, tests):
    verdict = judge("def add(a, b): return a + b", tests)
    assert (verdict.error, verdict.reward, verdict.correct) == (True, 0.0, False)
    assert verdict.reason.startswith("problem 'p': ")


def test_a_broken_sandbox_is_an_error(judge, monkeypatch):
    def broken(self):
        raise SandboxError("Sandbox: broken")

    monkeypatch.setattr(trial.Trial, "outcomes", broken)
    verdict = judge("def add(a, b): return a + b", ADD)
    assert (verdict.error, verdict.reason) == (True, "problem 'p': Sandbox: broken")
