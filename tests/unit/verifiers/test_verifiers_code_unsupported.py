import pytest

from grpo_jax.verifiers.code.suite import SuiteError, parse_suite


@pytest.mark.parametrize(
    ("code", "used"),
    [
        ("async def test_a(): pass", "the coroutine function test_a as a test"),
        ("class TestX:\n  async def test_a(self): pass", "the coroutine function test_a"),
        ("import unittest\nclass T(unittest.TestCase):\n  async def test_a(self): pass", "the coroutine function"),
        ("def test_a():\n  yield 1", "the generator function test_a as a test"),
        ("def test_a():\n  for x in ():\n    y = yield from x", "the generator function test_a"),
        ("class TestX:\n  def test_a(self):\n    yield 1", "the generator function test_a"),
        ("def test_a(capsys): pass", "the fixture 'capsys'"),
        ("class TestX:\n  def test_a(self, tmp_path): pass", "the fixture 'tmp_path'"),
        ("import pytest\n@pytest.fixture\ndef f(request): pass", "the fixture 'request'"),
        ("import pytest\n@pytest.mark.parametrize('a', [1])\ndef test_a(a, b): pass", "the fixture 'b'"),
        ("import pytest\n@pytest.fixture(params=[1])\ndef f(): pass", "'params' of pytest's fixture"),
        ("from pytest import fixture\n@fixture(name='g')\ndef f(): pass", "'name' of pytest's fixture"),
        ("import pytest\n@pytest.mark.parametrize('a', [1], indirect=True)\ndef test_a(a): pass", "'indirect' of"),
        ("import pytest\nx = [pytest.param(1, marks=pytest.mark.skip)]", "'marks' of pytest's param"),
        ("import pytest\n@pytest.mark.xfail(strict=True)\ndef test_a(): pass", "'strict' of pytest's xfail"),
        ("import pytest\n@pytest.mark.usefixtures('a')\ndef test_a(): pass", "usefixtures"),
        ("import pytest\nwith pytest.warns(Warning): pass", "pytest.warns"),
        ("from pytest import warns", "pytest.warns"),
        ("import pytest\npytestmark = pytest.mark.skip", "pytestmark"),
        ("def setup_module(): pass", "setup_module"),
        ("class TestX:\n  @classmethod\n  def setup_class(cls): pass", "setup_class"),
        ("def load_tests(a, b, c): pass", "load_tests"),
        ("from unittest import mock", "unittest.mock"),
        ("from unittest.mock import patch", "unittest.mock"),
        ("import unittest.mock", "unittest.mock"),
        ("import contextlib\nwith contextlib.redirect_stdout(None): f()", "redirect_stdout"),
        ("import io, sys\nsys.stdin = io.StringIO('1')", "sys.stdin"),
        ("import pytest\nwith pytest.raises(StopIteration): next(f())", "StopIteration"),
        ("assert make() == Point(1)", "a comparison with an object of the program's class Point"),
        (
            "import unittest\nclass T(unittest.TestCase):\n  def test_a(self): self.assertEqual(f(), Point(1))",
            "a comparison",
        ),
        ("assert f(lambda x: x) == 1", "a function as an argument of the program's f"),
        ("def g(x): return x\nassert f(key=g) == 1", "a function as an argument of the program's f"),
        ("def check(candidate):\n  assert candidate(1)", "a function check, which nothing calls"),
    ],
)
def test_what_is_not_supported_is_found_in_the_text(code, used):
    with pytest.raises(SuiteError, match=f"the tests use {used}.* is not supported") as caught:
        parse_suite({"style": "pytest", "code": code})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "used"),
    [
        ("def check(a, b): assert a == b", "a function check, which nothing calls"),
        ("from math import gcd\nassert gcd(2, 4) == 2", "another gcd than the program's"),
    ],
)
def test_tests_that_pass_the_entry_by_are_refused(code, used):
    with pytest.raises(SuiteError, match=f"the tests use {used}, which is not supported"):
        parse_suite({"style": "asserts", "code": code, "entry": "gcd"})


@pytest.mark.parametrize(
    ("code", "entry"),
    [
        ("import unittest\nclass T(unittest.IsolatedAsyncioTestCase):\n  async def test_a(self): pass", ""),
        (
            "from unittest import *\nclass B(IsolatedAsyncioTestCase): pass\n"
            "class T(B):\n  async def test_a(self): pass",
            "",
        ),
        ("def test_a():\n  def f(): yield 1\n  assert list(f())", ""),
        ("import pytest\n@pytest.fixture\ndef test_data():\n  yield 1\ndef test_a(test_data): pass", ""),
        ("import pytest\n@pytest.mark.parametrize(('a', 'b'), [(1, 2)])\ndef test_a(a, b, c=3): pass", ""),
        ("import pytest\n@pytest.mark.parametrize('a,b', [(1, 2)], ids=['x'])\ndef test_a(a, b): pass", ""),
        ("NAMES = 'a'\nimport pytest\n@pytest.mark.parametrize(NAMES, [1])\ndef test_a(a): pass", ""),
        ("import pytest\n@pytest.mark.slow\ndef test_a(): assert pytest.approx(1) == f()", ""),
        ("from collections import Counter\nassert f() == Counter('a') and sorted([1], key=lambda x: x)", ""),
        ("class P: pass\nassert f(isinstance(g(), Point)) == P()", ""),
        ("def check(candidate):\n  assert candidate(1)", "f"),
        ("def check(candidate):\n  assert candidate(1)\ncheck(f)", ""),
        ("from math import gcd\nfrom solution import gcd\nassert gcd(1, 2)", "gcd"),
        ("import pytest\n@pytest.fixture\ndef one(): return 1\ndef test_a(one): assert f(one)", ""),
        ("import sys\nprint(1, file=sys.stderr)\nassert f()", ""),
        ("class TestX:\n  @staticmethod\n  def test_a(): pass\n  def test_b(self): pass", ""),
    ],
)
def test_what_is_supported_is_read(code, entry):
    assert parse_suite({"style": "unittest", "code": code, "entry": entry}).code == code


def test_tests_that_are_no_program_are_refused_at_once():
    with pytest.raises(SuiteError, match="the tests do not compile: "):
        parse_suite({"style": "pytest", "code": "assert ("})
