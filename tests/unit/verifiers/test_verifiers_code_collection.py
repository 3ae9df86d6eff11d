import sys
import textwrap

import pytest

from grpo_jax.config.sandbox import CodeConfig, SandboxConfig
from grpo_jax.records import Completion, FinishReason, Problem
from grpo_jax.verifiers.code.trial import PROGRAMS
from grpo_jax.verifiers.code.verifier import CodeVerifier
from grpo_jax.verifiers.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox confines on Linux only")

RIGHT, WRONG = "def add(a, b): return a + b", "def add(a, b): return 0"


@pytest.fixture(scope="module")
def verifier():
    config = CodeConfig(extraction="whole", case_seconds=0.7, total_seconds=4.0)
    with Sandbox(SandboxConfig(), programs=PROGRAMS) as sandbox:
        yield CodeVerifier(config, sandbox)


def run(verifier, code: str, program: str, **further):
    tests = {"style": "pytest", "code": textwrap.dedent(code), **further}
    return verifier(Problem("p", "", "", {"tests": tests}), Completion(program, 1, FinishReason.STOP))


CHECK = "def check(candidate):\n    assert candidate(1, 2) == 3\n"
TESTS = {
    "check after a call": CHECK + "print('start')\nlist()",
    "check after an assertion": "assert True\n" + CHECK + "assert True",
    "check beside a test": CHECK + "def test_a(): pass",
    "check as a script": CHECK + "if __name__ == '__main__':\n    check(add)",
    "check in a test": CHECK + "def test_a(): check(add)",
    "an inherited method": """
        class Base:
            def test_a(self): assert add(1, 2) == 3
        class TestX(Base):
            def test_b(self): pass
        """,
    "a method of a class in a class": """
        class TestX:
            class TestY:
                def test_a(self): assert add(1, 2) == 3
        """,
    "a static method": """
        class TestX:
            @staticmethod
            def test_a(): assert add(1, 2) == 3
        """,
    "an assertion in a loop": "for a, b, c in [(1, 2, 3)]:\n    assert add(a, b) == c",
    "an assertion in a condition": "if True:\n    assert add(1, 2) == 3",
    "an assertion that is tried": "try:\n    assert add(1, 2) == 3\nfinally:\n    pass",
    "an assertion in a context": "import contextlib\nwith contextlib.nullcontext():\n    assert add(1, 2) == 3",
    "an assertion as a script": "if __name__ == '__main__':\n    assert add(1, 2) == 3",
    "a raised error": "if add(1, 2) != 3:\n    raise ValueError",
    "calls in a loop": """
        def same(a, b, c): assert add(a, b) == c
        for row in [(1, 2, 3), (0, 1, 1)]:
            same(*row)
        """,
    "a coroutine that is run": """
        import unittest
        class T(unittest.IsolatedAsyncioTestCase):
            async def test_a(self): self.assertEqual(add(1, 2), 3)
        """,
    "a main program": """
        import unittest
        class T(unittest.TestCase):
            def test_a(self): self.assertEqual(add(1, 2), 3)
        unittest.main()
        """,
    "a main program of pytest": """
        import pytest, sys
        def test_a(): assert add(1, 2) == 3
        if __name__ == '__main__':
            sys.exit(pytest.main([__file__]))
        """.replace("__file__", "'x'"),
    "set up for each method": """
        class TestX:
            def setup_method(self, method): self.wanted, self.name = 3, method.__name__
            def test_a(self): assert add(1, 2) == self.wanted and self.name == 'test_a'
        """,
    "torn down after each method": """
        left = []
        class TestX:
            def teardown_method(self): left.append(add(1, 2))
            def test_a(self): pass
        def test_left(): assert left == [3]
        """,
    "fixtures of fixtures": """
        import pytest
        ended = []
        @pytest.fixture(scope='module')
        def one(): return 1
        @pytest.fixture
        def two(one):
            yield one + 1
            ended.append(one)
        def test_a(one, two): assert add(one, two) == 3 and not ended
        def test_b(): assert add(ended[0], 2) == 3
        """,
    "a fixture for all": """
        import pytest
        seen = []
        @pytest.fixture(autouse=True)
        def note(): seen.append(add(1, 2))
        def test_a(): assert seen == [3]
        """,
    "a fixture of a class": """
        import pytest
        class TestX:
            @pytest.fixture
            def wanted(self): return 3
            def test_a(self, wanted): assert add(1, 2) == wanted
        """,
    "conditions of skipping": """
        import pytest
        @pytest.mark.skipif(True, reason='here')
        def test_never(): assert False
        @pytest.mark.skipif(False, reason='elsewhere')
        def test_a(): assert add(1, 2) == 3
        """,
    "a test that may fail": """
        import pytest
        @pytest.mark.xfail(reason='known')
        def test_never(): assert False
        @pytest.mark.xfail(False, reason='elsewhere')
        def test_a(): assert add(1, 2) == 3
        def test_b(): pytest.xfail('known')
        """,
    "marks of a class": """
        import pytest
        @pytest.mark.parametrize('a, c', [(1, 3), (2, 4)])
        class TestX:
            @pytest.mark.parametrize('b', [2])
            def test_a(self, a, b, c): assert add(a, b) == c
        @pytest.mark.skip
        class TestY:
            def test_a(self): assert False
        """,
    "a module that is there": "import pytest\nmath = pytest.importorskip('math')\nassert math.floor(add(1, 2)) == 3",
    "a match afterwards": """
        import pytest
        def test_a():
            with pytest.raises(TypeError) as caught: add(1, None)
            assert caught.match('None')
        """,
    "names of a star": "from math import *\nfrom solution import *\nassert isclose(add(1, 2), 3)",
    "a loop": "assert all(map(lambda x: add(x, 1) == x + 1, [1, 2]))\nassert [add(x, 1) for x in (1, 2)] == [2, 3]",
}  # fmt: skip


@pytest.mark.parametrize("name", TESTS)
def test_every_test_is_run(verifier, name):
    further = {"entry": "add"} if "candidate" in TESTS[name] else {}
    right, wrong = (run(verifier, TESTS[name], program, **further) for program in (RIGHT, WRONG))
    assert (right.reason, right.correct) == ("all tests passed", True)
    assert (wrong.error, wrong.correct) == (False, False), wrong.reason


@pytest.mark.parametrize(
    ("code", "used"),
    [
        ("async def a(): assert False\na()", "a test that is a coroutine"),
        ("def a(): yield 1\ntest_a = a", "a test that is a generator"),
        ("def w(f): return lambda: f()\n@w\ndef a(): yield 1\ntest_b = a", "a test that is a generator"),
        (
            "import unittest\nasync def a(self): pass\nclass T(unittest.TestCase):\n  test_a = a",
            "a test that is a coroutine",
        ),
        ("import pytest\nx = 'params'\n@pytest.fixture(**{x: [1]})\ndef f(): pass", "'params' of pytest.fixture"),
        ("import pytest as p\np.warns(Warning)", "pytest.warns"),
        ("import pytest as p\np.importorskip('no_such')", "the module 'no_such'"),
        ("names = 'a'\ndef f(m): return m\n@f\ndef test_a(tmp_path): pass", "the fixture 'tmp_path'"),
        ("class TestX:\n  def __init__(self): pass\n  def test_a(self): pass", "the class of tests TestX, which has"),
        ("import pytest as p\n@p.mark.skipif('1')\ndef test_a(): pass", "a condition of pytest.mark.skipif"),
    ],
)
def test_what_shows_only_as_the_tests_run_is_an_error(verifier, code, used):
    verdict = run(verifier, code, RIGHT)
    assert verdict.error
    assert f"the tests use {used}" in verdict.reason


@pytest.mark.parametrize("code", ["print(add(1, 2))", "import unittest\nunittest.main()", "for x in [1]:\n  pass"])
def test_what_says_nothing_about_a_program_is_no_test(verifier, code):
    verdict = run(verifier, code, RIGHT)
    assert verdict.error
    assert "the code holds no test" in verdict.reason


@pytest.mark.parametrize(
    ("code", "program"),
    [
        ("assert mul(add(1, 2), 3) == 9", "class add(Exception): pass\ndef mul(a, b): return 9"),
        ("assert mul(add, 3) == 9", "class add(Exception): pass\ndef mul(a, b): return 9"),
        ("assert mul(add(1, 2).count, 3) == 9", "def add(a, b): return ''\ndef mul(a, b): return 9"),
        ("assert mul(math, 3) == 9", "import math\ndef mul(a, b): return 9"),
        ("assert all(map(lambda x: add(x, 1) == 5, [1]))", "def add(a, b): raise StopIteration"),
        ("for x in map(add, [1], [2]):\n    assert x == 3", "def add(a, b): raise StopIteration"),
        ("assert list(map(add, [1], [2])) == []", "class E(StopIteration): pass\ndef add(a, b): raise E"),
        ("assert [x for x in map(add, [1], [2])] == []", "class E(StopAsyncIteration): pass\ndef add(a, b): raise E"),
        ("assert list(map(add, [1], [2])) == []", "def add(a, b): raise GeneratorExit"),
        (
            "from math import *\nfrom solution import *\nassert isclose(add(1, 2), 3)",
            WRONG + "\ndef isclose(*a): return 1",
        ),
        ("from math import *\nassert isclose(add(1, 2), 3)", WRONG + "\nclass isclose:\n  def __init__(*a): pass"),
        ("import sys\ndef test_a(): sys.exit(0)", RIGHT),
    ],
)
def test_what_a_program_does_to_the_tests_fails_it(verifier, code, program):
    verdict = run(verifier, code, program)
    assert (verdict.reason, verdict.error, verdict.correct) == ("test 1 of 1 failed", False, False)


def test_the_next_value_of_a_generator_is_had(verifier):
    program = "def count():\n  yield 1\n  yield 2"
    assert run(verifier, "c = count()\nassert (next(c), next(c)) == (1, 2)", program).correct
    assert not run(verifier, "c = count()\nassert next(c) == 1 and next(c) == 3", program).correct


def test_a_name_that_the_tests_take_from_the_program_is_the_program_s(verifier):
    program = "def isclose(a, b): return 'own'"
    assert run(
        verifier, "from math import *\nfrom solution import isclose\nassert isclose(1, 2) == 'own'", program
    ).correct


def test_the_entry_is_the_program_s_whatever_a_star_brings(verifier):
    code = "from math import *\nassert gcd(2, 4) == 2 and isclose(1, 1)"
    assert run(verifier, code, "def gcd(a, b): return 2", entry="gcd").correct
    assert not run(verifier, code, "def gcd(a, b): return 3", entry="gcd").correct


def test_an_argument_of_the_tests_own_class_is_an_error(verifier):
    code = "import dataclasses\n@dataclasses.dataclass\nclass P:\n    x: 'int'\nassert add(P(1), 2) == 3"
    verdict = run(verifier, code, RIGHT)
    assert verdict.error
    assert "the tests pass the program an argument of type P" in verdict.reason
