import sys
import textwrap

import pytest

from grpo_jax.config.sandbox import CodeConfig, SandboxConfig
from grpo_jax.records import Completion, FinishReason, Problem
from grpo_jax.verifiers.code.trial import PROGRAMS
from grpo_jax.verifiers.code.verifier import CodeVerifier
from grpo_jax.verifiers.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox confines on Linux only")

PROGRAM = """
import math
LIMIT = 10
TABLE = {"a": [1, 2]}

class Full(ValueError):
    pass

class Stack:
    kind = "lifo"
    def __init__(self, items=()):
        self.items = list(items)
    def push(self, item):
        if len(self.items) >= LIMIT:
            raise Full("full")
        self.items.append(item)
        return self
    def pop(self):
        return self.items.pop()
    def __len__(self):
        return len(self.items)
    def __getitem__(self, place):
        return self.items[place]
    def __eq__(self, other):
        return True
    @staticmethod
    def of(item):
        return Stack([item])

def add(a, b):
    return a + b

def area(radius):
    return math.pi * radius ** 2

def double(items):
    for place, item in enumerate(items):
        items[place] = 2 * item

def head(stack):
    return stack[0]

def pair():
    return 1, "x"

def loop():
    while True: pass
"""


@pytest.fixture(scope="module")
def verifier():
    config = CodeConfig(extraction="whole", stepped=True, case_seconds=0.7, total_seconds=4.0)
    with Sandbox(SandboxConfig(), programs=PROGRAMS) as sandbox:
        yield CodeVerifier(config, sandbox)


def run(verifier, code: str, program: str = PROGRAM, **further):
    tests = {"style": "asserts", "code": textwrap.dedent(code), **further}
    return verifier(Problem("p", "", "", {"tests": tests}), Completion(program, 1, FinishReason.STOP))


@pytest.mark.parametrize(
    "code",
    [
        "assert add(1, 2) == 3\nassert add(a=1, b=2) == 3\nassert add('a', 'b') == 'ab'",
        "import math\nassert math.isclose(area(1), math.pi)",
        "assert math.floor(area(1)) == 3",
        "assert LIMIT == 10 and TABLE == {'a': [1, 2]}",
        "assert pair() == (1, 'x') and pair() != [1, 'x'] and type(pair()) is tuple",
        "x = [1, 2]\nassert double(x) is None\nassert x == [2, 4]",
        "s = Stack()\ns.push(1).push(2)\nassert len(s) == 2 and s.pop() == 2 and s.items == [1] and s[0] == 1",
        "s = Stack.of(7)\nassert isinstance(s, Stack) and Stack.kind == 'lifo' and head(s) == 7 and list(s) == [7]",
        "import solution\nassert solution.add(1, 2) == 3",
        "from solution import add as plus\nassert plus(1, 2) == 3",
        "def check(candidate):\n    assert candidate(1, 2) == 3\ncheck(add)",
        "try:\n    Stack(range(10)).push(1)\nexcept Full as error:\n    text = str(error)\nassert text == 'full'",
        "import collections\nassert add(collections.deque([1]), collections.deque([2])) == collections.deque([1, 2])",
        """
        import unittest
        from solution import *
        class T(unittest.TestCase):
            def setUp(self): self.stack = Stack()
            def test_add(self):
                for a, b, c in ((1, 2, 3), (0, 0, 0)):
                    with self.subTest(a=a): self.assertEqual(add(a, b), c)
            def test_full(self):
                with self.assertRaisesRegex(Full, 'full'):
                    for x in range(11): self.stack.push(x)
            def test_builtin(self):
                with self.assertRaises(TypeError): add(1, 'a')
                with self.assertRaises(IndexError): self.stack.pop()
            @unittest.skip('never')
            def test_skipped(self): self.fail()
        if __name__ == '__main__':
            unittest.main()
        """,
        """
        import pytest
        from solution import Full, Stack, add, area
        @pytest.fixture
        def stack(): return Stack([1])
        @pytest.mark.parametrize('a, b, c', [(1, 2, 3), pytest.param(0, 0, 0, id='zero')])
        @pytest.mark.parametrize('sign', [1, -1])
        def test_add(a, b, c, sign): assert add(sign * a, sign * b) == sign * c
        def test_raises(stack):
            with pytest.raises(Full, match='ful'):
                for x in range(10): stack.push(x)
            pytest.raises(TypeError, add, 1, None)
        def test_approx(): assert area(1) == pytest.approx(3.14159, rel=1e-4) and [area(0)] == pytest.approx([0.0])
        @pytest.mark.skip
        def test_never(): assert False
        class TestStack:
            def test_pop(self, stack): assert stack.pop() == 1
        """,
    ],
)  # fmt: skip
def test_right_programs_pass_tests_in_code(verifier, code):
    verdict = run(verifier, code)
    assert (verdict.reason, verdict.reward, verdict.error) == ("all tests passed", 1.0, False)


@pytest.mark.parametrize(
    ("code", "reason", "reward"),
    [
        ("assert add(1, 2) == 3\nassert add(1, 2) == 4\nassert add(2, 2) == 4", "test 2 of 3 failed", 2 / 3),
        ("assert missing(1) == 3", "test 1 of 1 failed", 0.0),
        ("from solution import missing\nassert missing(1) == 3", "test 1 of 1 failed", 0.0),
        ("x = add(1, None)\nassert x == 3", "test 1 of 1 failed", 0.0),
        ("a, b, c = pair()\nassert a", "test 1 of 1 failed", 0.0),
        ("assert add(1, 2) == 3\nassert loop()\nassert add(1, 2) == 3", "time limit", 1 / 3),
        ("def check(candidate):\n    assert candidate(1, 2) == 4\ncheck(add)", "test 1 of 1 failed", 0.0),
        ("s = Stack()\nassert s == 3\nassert s == s.of(1)\nassert s == s", "test 1 of 3 failed", 1 / 3),
        ("import math\nwhile True:\n    math.pi", "time limit", 0.0),
        (
            "import unittest\nclass T(unittest.TestCase):\n  def test_a(self): self.assertEqual(add(1, 1), 2)\n"
            "  def test_b(self):\n    for x in (1, 2):\n      with self.subTest(x): self.assertEqual(add(x, 0), 1)",
            "test 2 of 2 failed",
            0.5,
        ),
        ("def test_a(): assert add(1, 1) == 2\ndef test_b(): assert add(1, 1) == 3", "test 2 of 2 failed", 0.5),
        (
            "import pytest\ndef test_a():\n  with pytest.raises(ValueError): add(1, 1)\n"
            "def test_b():\n  with pytest.raises(TypeError, match='full'): add(1, None)\n"
            "def test_c(): assert area(1) == pytest.approx(3.0)\ndef test_d(): pytest.fail('x')",
            "test 1 of 4 failed",
            0.0,
        ),
    ],
)
def test_other_programs_fail_tests_in_code(verifier, code, reason, reward):
    verdict = run(verifier, code)
    assert (verdict.reason, verdict.error, verdict.correct) == (reason, False, False)
    assert verdict.reward == pytest.approx(reward)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("assert (", "the tests do not compile"),
        ("x = 1", "the code holds no test"),
        ("import no_such_library\nassert add(1, 2) == 3", "the tests import 'no_such_library', which is not there"),
        ("f = lambda: 1\nassert add(f, 2) == 3", "the tests pass the program an argument of type function"),
        ("import os\nos._exit(0)", "the tests' process ended: crashed"),
    ],
)
def test_unusable_tests_in_code_are_an_error(verifier, code, reason):
    verdict = run(verifier, code)
    assert (verdict.error, verdict.reward) == (True, 0.0)
    assert reason in verdict.reason


def test_a_check_function_is_called_with_the_entry(verifier):
    code = "def check(candidate):\n    assert candidate(1, 2) == 3"
    assert run(verifier, code, entry="add").correct
    assert not run(verifier, code, entry="area").correct


def test_the_program_s_module_may_have_another_name(verifier):
    assert run(verifier, "from task import add\nassert add(1, 2) == 3", module="task").correct


def test_only_the_entry_may_have_the_name_of_a_builtin(verifier):
    program = "def sum(items): return 5\ndef all(items): return True\n"
    assert run(verifier, "assert sum([1, 2]) == 5", program, entry="sum").correct
    assert not run(verifier, "assert sum([1, 2]) == 5", program).correct
    assert not run(verifier, "from solution import *\nassert all([False])", program).correct


def test_a_program_that_does_not_load_fails(verifier):
    assert run(verifier, "assert True", "def (").reason == "syntax error"
    assert run(verifier, "assert True", "raise ValueError").reason == "error while loading"


def test_a_program_cannot_put_other_exceptions_into_the_tests(verifier):
    program = "def f(): raise SystemExit\ndef g(): raise KeyboardInterrupt\ndef h(): raise ModuleNotFoundError('x')\n"
    verdict = run(verifier, "assert f()\nassert g()\nassert h()\nx = h()\nassert True", program)
    assert (verdict.reason, verdict.error) == ("test 1 of 4 failed", False)
