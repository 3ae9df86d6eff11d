"""Sandbox program that runs trusted tests against stand-ins, in a process that never holds the model's program.

Its last message is the result of every test. That message, and nothing that is printed, is what passes a program.
"""

import ast
import builtins
import inspect
import re
import sys
import types
import unittest
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from grpo_jax.verifiers.code import loading, pytest_part
from grpo_jax.verifiers.code.lines import Lines
from grpo_jax.verifiers.code.standins import CandidateOver, Program

PASSED, FAILED = "passed", "failed"


def main() -> int:
    """Runs the tests of the first request; each call of the program is a request of its own to the worker."""
    lines = Lines()
    asked = lines.receive()
    if asked is None:
        return 0

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        lines.send({"request": request})
        reply = lines.receive()
        if reply is None or "over" in reply:
            raise CandidateOver
        return reply

    loading.clear_traces()
    program, outcomes = Program(ask), list[str]()
    try:
        _run(asked, program, outcomes)
        fault = ""
    except CandidateOver:
        outcomes.append(FAILED)
        fault = ""
    except loading.SyntaxFault as error:
        fault = f"the tests do not compile: {error}"
    except ModuleNotFoundError as error:
        fault = f"the tests import {error.name!r}, which is not there"
    if program.unsupported:
        fault = f"the tests pass the program {program.unsupported}, which cannot leave the judge"
    lines.send({"fault": fault} if fault else {"outcomes": [outcome == PASSED for outcome in outcomes if outcome]})
    return 0


def _run(asked: dict[str, Any], program: Program, outcomes: list[str]) -> None:
    tree = loading.check_syntax(asked["code"])
    module = types.ModuleType(asked["module"])
    sys.modules[asked["module"]] = module
    sys.modules.setdefault("pytest", pytest_part.as_module())
    mentioned = set(re.findall(r"\w+", asked["code"])) | {asked["entry"]}
    # Classes of exceptions first: asking for a value may raise one.
    described = sorted(asked["names"].items(), key=lambda item: item[1][0] != "exception")
    for name, description in described:
        if name in mentioned:
            _set(module, name, program, description)
    tests = types.ModuleType("tests")
    own = _own_names(tree, asked["module"])
    # A module of the standard library is the real one, and nothing else may have its name.
    own |= sys.stdlib_module_names - {name for name, description in described if description[0] == "module"}
    shown = [name for name in asked["names"] if hasattr(module, name) and (name == asked["entry"] or name not in own)]
    module.__all__ = shown  # type: ignore[attr-defined]
    vars(tests).update({name: getattr(module, name) for name in shown})
    if not _run_statements(tree.body, tests, outcomes):
        return
    if inspect.isfunction(vars(tests).get("check")) and asked["entry"] and not outcomes:
        outcomes.append(_outcome(lambda: tests.check(getattr(module, asked["entry"]))))
    for value in list(vars(tests).values()):
        if isinstance(value, type) and issubclass(value, unittest.TestCase) and value.__module__ == "tests":
            outcomes += _unittest_outcomes(value)
    outcomes += [_outcome(test) for test in _pytest_tests(tests)]


def _set(module: types.ModuleType, name: str, program: Program, description: list[Any]) -> None:
    try:
        setattr(module, name, program.stand_in(name, description))
    except Exception:
        # A value that cannot be had: the tests miss the name, as they would if the program lacked it.
        return


def _own_names(tree: ast.Module, module: str) -> set[str]:
    """Names that mean something to the tests already: a program must not put its own ``all`` or ``isclose`` there."""
    names = {*dir(builtins), "pytest"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module != module):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _run_statements(statements: list[ast.stmt], tests: types.ModuleType, outcomes: list[str]) -> bool:
    """Runs the tests' statements, of which an assertion and a call are tests of their own; returns whether all ran."""
    for place, statement in enumerate(statements):
        code = compile(ast.Module([statement], []), "tests.py", "exec")
        run = types.FunctionType(code, vars(tests))
        if _is_test(statement):
            outcomes.append(_outcome(run))
            continue
        try:
            run()
        except (Exception, CandidateOver) as error:
            if isinstance(error, ModuleNotFoundError) and error.name is not None:
                # By Python itself, which names the module: the program cannot make the tests import anything.
                raise
            # It works with what the program has, or with what it has returned, and what follows needs it.
            outcomes += [FAILED] * max(1, sum(map(_is_test, statements[place:])))
            return False
    return True


def _is_test(statement: ast.stmt) -> bool:
    is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return is_call or isinstance(statement, ast.Assert)


def _outcome(test: Callable[[], Any]) -> str:
    try:
        test()
    except pytest_part.Skipped:
        return ""
    except (Exception, CandidateOver):
        return FAILED
    return PASSED


class _Result(unittest.TestResult):
    """Keeps one outcome for each test, whatever its subtests report."""

    def __init__(self) -> None:
        super().__init__()
        self.by_test: dict[str, str] = {}

    def startTest(self, test: unittest.TestCase) -> None:
        """Notes the test, as passed until it reports otherwise."""
        self.by_test[test.id()] = PASSED

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: ARG002
        """Notes a failure; of a fixture of the class too."""
        self.by_test[test.id()] = FAILED

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: ARG002
        """Notes a failure."""
        self.by_test[test.id()] = FAILED

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:  # noqa: ARG002
        """Notes a failure of a part of the test."""
        if err is not None:
            self.by_test[test.id()] = FAILED

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        """Notes that a test that was to fail has passed."""
        self.by_test[test.id()] = FAILED

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: ARG002
        """Leaves the test out."""
        self.by_test[test.id()] = ""


def _unittest_outcomes(case: type[unittest.TestCase]) -> list[str]:
    result = _Result()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    return list(result.by_test.values())


def _pytest_tests(tests: types.ModuleType) -> Iterator[Callable[[], Any]]:
    names = dict(vars(tests))
    functions = {name: value for name, value in names.items() if inspect.isfunction(value)}
    fixtures = {name: value for name, value in functions.items() if getattr(value, "is_fixture", False)}
    for name, value in names.items():
        if name.startswith("test") and inspect.isfunction(value):
            yield from _rows_of(value, value, fixtures)
        elif name.startswith("Test") and isinstance(value, type) and not issubclass(value, unittest.TestCase):
            for method in [part for part in vars(value) if part.startswith("test")]:
                yield from _rows_of(vars(value)[method], getattr(value(), method), fixtures)


def _rows_of(
    marked: Any, test: Callable[..., Any], fixtures: Mapping[str, Callable[[], Any]]
) -> Iterator[Callable[[], Any]]:
    if getattr(marked, "is_skipped", False):
        return
    wanted = inspect.signature(test).parameters
    for row in getattr(marked, "rows", [{}]):

        def run(row: Mapping[str, Any] = row) -> None:
            made = {name: fixtures[name]() for name in wanted if name in fixtures and name not in row}
            test(**row, **made)

        yield run
