"""Finds the tests that unittest and pytest would find in a module, and runs them."""

import contextlib
import functools
import inspect
import types
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from grpo_jax.verifiers.code.pytest_part import NotSupportedError, Skipped
from grpo_jax.verifiers.code.standins import CandidateOver

PASSED, FAILED = "passed", "failed"
_COLLECTING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_IDLE = (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)


def outcome_of(test: Callable[[], Any]) -> str:
    """Runs a test; returns ``PASSED``, ``FAILED``, or nothing if it does not want to run."""
    try:
        finished(test())
    except Skipped:
        return ""
    except (Exception, SystemExit, CandidateOver):
        return FAILED
    return PASSED


def finished(value: Any) -> Any:
    """What a test has returned, unless nothing of the test has run yet.

    Raises:
        NotSupportedError: if it is a coroutine or a generator.
    """
    if isinstance(value, _IDLE):
        raise NotSupportedError(f"a test that is a {type(value).__name__.replace('_', ' ')}")
    return value


class _Result(unittest.TestResult):
    """Keeps one outcome for each test, whatever its subtests report."""

    def __init__(self) -> None:
        super().__init__()
        self.by_test: dict[str, str] = {}

    def startTest(self, test: unittest.TestCase) -> None:
        """Notes the test, as passed until it reports otherwise."""
        self.by_test[test.id()] = PASSED

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        """Notes a failure; of a fixture of the class too."""
        if isinstance(err[1], NotSupportedError):
            raise err[1]
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


def unittest_outcomes(module: types.ModuleType) -> list[str]:
    """Runs the test cases that are defined in a module; returns an outcome for each test."""
    cases = [
        value
        for value in dict.fromkeys(part for part in vars(module).values() if isinstance(part, type))
        if issubclass(value, unittest.TestCase) and value.__module__ == module.__name__
    ]
    names = unittest.defaultTestLoader.getTestCaseNames
    result = _Result()
    unittest.TestSuite(_case(case, name) for case in cases for name in names(case)).run(result)
    return list(result.by_test.values())


def _case(case: type[unittest.TestCase], name: str) -> unittest.TestCase:
    test = case(name)
    method = getattr(test, name)
    if inspect.iscoroutinefunction(method) and isinstance(test, unittest.IsolatedAsyncioTestCase):
        return test

    @functools.wraps(method)
    def run() -> None:
        finished(method())

    setattr(test, name, run)
    return test


def pytest_tests(module: types.ModuleType) -> Iterator[Callable[[], Any]]:
    """The tests of a module that are functions or methods of plain classes, one for each row of parameters.

    Args:
        module: The tests' module, after it has run.

    Yields:
        A function that runs the test.

    Raises:
        NotSupportedError: if a test needs what is not there.
    """
    names = dict(vars(module))
    fixtures = {name: value for name, value in names.items() if _is_fixture(value)}
    for name, value in names.items():
        if name.startswith("test") and inspect.isfunction(value) and name not in fixtures:
            yield from _runs([value], functools.partial(_run_function, value, fixtures))
        elif name.startswith("Test") and isinstance(value, type) and not issubclass(value, unittest.TestCase):
            yield from _methods(value, fixtures)


def _is_fixture(value: Any) -> bool:
    return inspect.isfunction(value) and getattr(value, "is_fixture", False)


def _methods(owner: type, fixtures: Mapping[str, Callable[..., Any]]) -> Iterator[Callable[[], Any]]:
    members = [part for kind in reversed(owner.__mro__) for part in vars(kind)]
    for name in dict.fromkeys(members):
        value = getattr(owner, name, None)
        if name.startswith("Test") and isinstance(value, type):
            yield from _methods(value, fixtures)
        if not name.startswith("test") or not inspect.isroutine(value):
            continue
        if owner.__init__ is not object.__init__:
            raise NotSupportedError(f"the class of tests {owner.__name__}, which has __init__")
        yield from _runs([owner, value], functools.partial(_run_method, owner, name, fixtures))


def _runs(marked: Sequence[Any], run: Callable[[Mapping[str, Any]], Any]) -> Iterator[Callable[[], Any]]:
    if any(getattr(part, "is_skipped", False) for part in marked):
        return
    rows: list[dict[str, Any]] = [{}]
    for part in marked:
        rows = [{**ours, **theirs} for ours in rows for theirs in getattr(part, "rows", [{}])]
    for row in rows:
        yield functools.partial(run, row)


def _run_function(test: Callable[..., Any], fixtures: Mapping[str, Callable[..., Any]], row: Mapping[str, Any]) -> Any:
    with _Fixtures(fixtures, row) as made:
        return finished(test(**made.arguments(test)))


def _run_method(owner: type, name: str, fixtures: Mapping[str, Callable[..., Any]], row: Mapping[str, Any]) -> Any:
    instance = owner()
    test = getattr(instance, name)
    own = {part: getattr(instance, part) for part in dir(owner) if _is_fixture(getattr(owner, part, None))}
    with _Fixtures({**fixtures, **own}, row) as made, contextlib.ExitStack() as ends:
        ends.callback(_around, instance, "teardown_method", test)
        _around(instance, "setup_method", test)
        return finished(test(**made.arguments(test)))


def _around(instance: Any, name: str, test: Callable[..., Any]) -> None:
    method = getattr(instance, name, None)
    if method is not None:
        method(*[test] * len(inspect.signature(method).parameters))


class _Fixtures:
    """The values that one test takes as arguments."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]], row: Mapping[str, Any]) -> None:
        self._functions = functions
        self._values = dict(row)
        self._ends = contextlib.ExitStack()

    def __enter__(self) -> "_Fixtures":
        try:
            for name, function in self._functions.items():
                if function.is_for_all:  # type: ignore[attr-defined]
                    self._value(name)
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def arguments(self, function: Callable[..., Any]) -> dict[str, Any]:
        parameters = inspect.signature(function).parameters.items()
        return {name: self._value(name) for name, parameter in parameters if self._is_wanted(name, parameter)}

    def _is_wanted(self, name: str, parameter: inspect.Parameter) -> bool:
        is_free = parameter.default is parameter.empty and parameter.kind not in _COLLECTING
        return is_free or name in self._values or name in self._functions

    def _value(self, name: str) -> Any:
        if name not in self._values:
            if name not in self._functions:
                raise NotSupportedError(f"the fixture {name!r}")
            function = self._functions[name]
            value = function(**self.arguments(function))
            if inspect.isgeneratorfunction(function):
                self._ends.callback(list, value)
                value = next(value)
            self._values[name] = value if isinstance(value, types.GeneratorType) else finished(value)
        return self._values[name]
