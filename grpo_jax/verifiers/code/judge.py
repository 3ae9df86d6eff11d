"""Sandbox program that runs trusted tests against stand-ins, in a process that never holds the model's program.

Its last message is the result of every test. That message, and nothing that is printed, is what passes a program.
"""

import ast
import contextlib
import importlib
import inspect
import re
import sys
import types
import unittest
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from grpo_jax.verifiers.code import collection, loading, pytest_part
from grpo_jax.verifiers.code.collection import FAILED, PASSED, outcome_of
from grpo_jax.verifiers.code.lines import Lines
from grpo_jax.verifiers.code.names import FUNCTIONS, inside, own_names, starred_modules
from grpo_jax.verifiers.code.standins import CandidateOver, Program

_TESTS = "__tests__"
_NO_TESTS = ("print", "main", "unittest.main", "pytest.main", "sys.exit", "exit", "quit")
"""Calls that say nothing about the program."""


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
    except pytest_part.NotSupportedError as error:
        fault = f"the tests use {error}, which is not supported"
    if program.unsupported:
        fault = f"the tests pass the program {program.unsupported}, which cannot leave the judge"
    lines.send({"fault": fault} if fault else {"outcomes": [outcome == PASSED for outcome in outcomes if outcome]})
    return 0


def _run(asked: dict[str, Any], program: Program, outcomes: list[str]) -> None:
    tree = loading.check_syntax(asked["code"])
    module, tests = types.ModuleType(asked["module"]), types.ModuleType(_TESTS)
    sys.modules.update({asked["module"]: module, _TESTS: tests})
    sys.modules.setdefault("pytest", pytest_part.as_module())
    # The tests are found and run in any case.
    unittest.main = pytest_part.main  # type: ignore[assignment, misc]
    _show_program(tree, asked, program, module, tests)
    statements = _Statements(tree, tests, asked["module"], asked["entry"])
    if not statements.run(outcomes):
        return
    outcomes += collection.unittest_outcomes(tests)
    outcomes += [outcome_of(test) for test in collection.pytest_tests(tests)]
    if statements.waits_for_check and asked["entry"]:
        outcomes.append(outcome_of(lambda: tests.check(getattr(module, asked["entry"]))))


def _show_program(
    tree: ast.Module, asked: dict[str, Any], program: Program, module: types.ModuleType, tests: types.ModuleType
) -> None:
    """Puts stand-ins into the program's module, and into the tests all but those whose names are the tests' own."""
    mentioned = set(re.findall(r"\w+", asked["code"])) | {asked["entry"]}
    # Classes of exceptions first: asking for a value may raise one.
    described = sorted(asked["names"].items(), key=lambda item: item[1][0] != "exception")
    for name, description in described:
        if name in mentioned:
            _set(module, name, program, description)
    own = own_names(tree, asked["module"]).union(*map(_names_of, starred_modules(tree, asked["module"])))
    # A module of the standard library is the real one, and nothing else may have its name.
    own |= sys.stdlib_module_names - {name for name, description in described if description[0] == "module"}
    shown = [name for name in asked["names"] if hasattr(module, name) and (name == asked["entry"] or name not in own)]
    module.__all__ = shown  # type: ignore[attr-defined]
    vars(tests).update({name: getattr(module, name) for name in shown})


def _set(module: types.ModuleType, name: str, program: Program, description: list[Any]) -> None:
    try:
        setattr(module, name, program.stand_in(name, description))
    except Exception:
        # A value that cannot be had: the tests miss the name, as they would if the program lacked it.
        return


def _names_of(module: str) -> Iterable[str]:
    # Whether the tests can do without it is for their own statement to say.
    with contextlib.suppress(ImportError):
        return getattr(imported := importlib.import_module(module), "__all__", vars(imported))
    return ()


class _Check:
    """A function ``check`` of the tests, which notes that it is called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.is_called = False
        self._function = function

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        self.is_called = True
        return self._function(*arguments, **keywords)


class _Statements:
    """The tests' statements, of which an assertion, a call and what holds an assertion are tests of their own."""

    def __init__(self, tree: ast.Module, tests: types.ModuleType, module: str, entry: str) -> None:
        self._statements = list(_flat(tree.body))
        self._tests, self._module = tests, module
        self._entry = {entry: vars(tests)[entry]} if entry in vars(tests) else {}
        self._functions = {node.name for node in ast.walk(tree) if isinstance(node, FUNCTIONS)}

    @property
    def waits_for_check(self) -> bool:
        """Whether the tests define a function ``check`` that they have not called."""
        check = vars(self._tests).get("check")
        return isinstance(check, _Check) and not check.is_called

    def run(self, outcomes: list[str]) -> bool:
        """Runs them, adding outcomes; returns whether all ran."""
        for place, statement in enumerate(self._statements):
            run = _compiled(statement, vars(self._tests))
            if self._is_test(statement):
                outcomes.append(outcome_of(run))
            elif not _works(run):
                # It works with what the program has, or with what it has returned, and what follows needs it.
                outcomes += [FAILED] * max(1, sum(map(self._is_test, self._statements[place:])))
                return False
            if any(starred_modules(ast.Module([statement], []), self._module)):
                # What is to be tested is not what another module calls so.
                vars(self._tests).update(self._entry)
            if inspect.isfunction(check := vars(self._tests).get("check")):
                vars(self._tests)["check"] = _Check(check)
        return True

    def _is_test(self, statement: ast.stmt) -> bool:
        if call := _call_of(statement):
            name = ast.unparse(call.func)
            return name in self._functions or name not in _NO_TESTS
        return any(
            isinstance(node, (ast.Assert, ast.Raise)) or self._is_call_of_own(node) for node in inside(statement)
        )

    def _is_call_of_own(self, node: ast.AST) -> bool:
        call = _call_of(node)
        return call is not None and isinstance(call.func, ast.Name) and call.func.id in self._functions


def _works(run: Callable[[], Any]) -> bool:
    try:
        run()
    except SystemExit as leave:
        # Only the tests themselves can raise it, at their end.
        return not leave.code
    except (Exception, CandidateOver) as error:
        if isinstance(error, ModuleNotFoundError) and error.name is not None:
            # By Python itself, which names the module: the program cannot make the tests import anything.
            raise
        return False
    return True


def _call_of(node: ast.AST) -> ast.Call | None:
    """The call that a statement is, if it is one and nothing else."""
    return node.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None


def _flat(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Takes statements out of the condition that the tests are run as a script, which is what happens here."""
    for statement in statements:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "__name__ == '__main__'":
            yield from statement.body
        else:
            yield statement


def _compiled(statement: ast.stmt, names: dict[str, Any]) -> Callable[[], Any]:
    """A function that runs a statement, and returns what it calls has returned if it is nothing but a call."""
    call = _call_of(statement)
    code = compile(ast.Expression(call), "", "eval") if call else compile(ast.Module([statement], []), "", "exec")
    return types.FunctionType(code, names)
