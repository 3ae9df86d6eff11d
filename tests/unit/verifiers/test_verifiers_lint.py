import shutil
import sys

import pytest

from grpo_jax.config.sandbox import LintConfig, SandboxConfig
from grpo_jax.records import Completion, FinishReason, Problem
from grpo_jax.verifiers.base import Verifier
from grpo_jax.verifiers.code import syntax
from grpo_jax.verifiers.lint import PROGRAMS, LintVerifier
from grpo_jax.verifiers.sandbox.contracts import SandboxError
from grpo_jax.verifiers.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox confines on Linux only")

RULES = {
    "forbidden_imports": [],
    "forbidden_calls": [],
    "required_function": None,
    "required_arguments": [],
    "compile_program": True,
}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(SandboxConfig(), programs=PROGRAMS) as sandbox:
        yield sandbox


def lint(sandbox, text: str, **settings):
    config = LintConfig(**{"extraction": "whole", **settings})
    config.validate("x")
    return LintVerifier(config, sandbox)(Problem("p", "", ""), Completion(text, 1, FinishReason.STOP))


def test_a_program_that_keeps_the_rules_is_rewarded(sandbox):
    verifier = LintVerifier(LintConfig(required_function="f", forbidden_imports=("os",)), sandbox)
    assert isinstance(verifier, Verifier)
    text = "```python\nimport math\ndef f(x): return math.pi\n```"
    verdict = verifier(Problem("p", "", ""), Completion(text, 1, FinishReason.STOP))
    assert (verdict.reward, verdict.correct, verdict.reason) == (1.0, True, "rules kept")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def f(", "syntax error"),
        ("return 1", "does not compile"),
        ("(" * 100_000, "syntax error"),
        ("x = " + "-" * 90_000 + "1", "syntax error"),
        ("x = 1\0", "syntax error"),
        ("", "empty program"),
        ("x" * 100_001, "program too long"),
    ],
)
def test_a_text_that_is_no_program_is_not(sandbox, text, reason):
    verdict = lint(sandbox, text)
    assert (verdict.reward, verdict.error, verdict.reason) == (0.0, False, reason)


def test_compiling_may_be_left_out(sandbox):
    assert lint(sandbox, "return 1", compile_program=False).correct


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import os", "forbidden import"),
        ("import os.path as p", "forbidden import"),
        ("def f():\n    from os import path", "forbidden import"),
        ("__import__('os')", "forbidden import"),
        ("import importlib\nimportlib.import_module('os')", "forbidden import"),
        ("import operating", "rules kept"),
        ("eval('1')", "forbidden call"),
        ("f = eval", "forbidden call"),
        ("import builtins\nbuiltins.eval('1')", "forbidden call"),
        ("import subprocess as s\ns.run([])", "forbidden call"),
        ("from subprocess import run as go\ngo([])", "forbidden call"),
        ("import subprocess\nsubprocess.check_output([])", "rules kept"),
        ("evaluate = 1\nx.eval()", "rules kept"),
    ],
)
def test_forbidden_names_are_found_under_any_alias(source, reason):
    rules = {**RULES, "forbidden_imports": ["os"], "forbidden_calls": ["eval", "subprocess.run"]}
    assert syntax.check(source, rules) == reason


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def f(a, b): pass", "rules kept"),
        ("def f(a, /, b): pass", "rules kept"),
        ("def f(a): pass", "other arguments than required"),
        ("def f(b, a): pass", "other arguments than required"),
        ("def f(a, b): pass\ndef f(a): pass", "other arguments than required"),
        ("def g(a, b): pass", "required function missing"),
        ("class C:\n    def f(a, b): pass", "required function missing"),
    ],
)
def test_the_required_function_is_looked_for(source, reason):
    assert syntax.check(source, {**RULES, "required_function": "f", "required_arguments": ["a", "b"]}) == reason


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("compiles", [True, False])
def test_c_programs_are_compiled(sandbox, compiles):
    settings = {"language": "c", "compile_program": compiles, "seconds": 20.0}
    assert lint(sandbox, "int main(void) { return 0; }", **settings).reason == "rules kept"
    assert lint(sandbox, "int main(void) { return x; }", **settings).reason == "does not compile"
    assert lint(sandbox, '#include "/etc/passwd"\nint x;', **settings).reason == "does not compile"
    fenced = "```c\nint x;\n```"
    assert lint(sandbox, fenced, extraction="fenced", **settings).parsed == "int x;\n"


def test_a_broken_sandbox_is_an_error(sandbox, monkeypatch):
    def broken(*_, **__):
        raise SandboxError("Sandbox: broken")

    monkeypatch.setattr(sandbox, "converse", broken)
    verdict = lint(sandbox, "x = 1")
    assert (verdict.error, verdict.reason) == (True, "Sandbox: broken")
