"""The part of pytest's interface that tests of single functions use, for a judge without installed packages."""

import contextlib
import importlib
import itertools
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


class Skipped(Exception):  # noqa: N818
    """A test does not want to run."""


class NotSupportedError(BaseException):
    """Tests use what this part lacks. No test can catch this by accident."""


class Caught:
    """What ``raises`` has caught.

    Attributes:
        value: The exception.
        type: Its class.
    """

    value: Any = None
    type: Any = None

    def match(self, pattern: str) -> bool:
        """Searches the exception's text for a pattern."""
        if not re.search(pattern, str(self.value)):
            raise AssertionError(f"{self.value!s} does not match {pattern!r}")
        return True


@contextlib.contextmanager
def _raising(expected: Any, match: str | None) -> Iterator[Caught]:
    caught = Caught()
    try:
        yield caught
    except expected as error:
        caught.value, caught.type = error, type(error)
        if match is not None:
            caught.match(match)
    else:
        raise AssertionError(f"{expected} was not raised")


def raises(expected: Any, function: Callable[..., Any] | None = None, *arguments: Any, **keywords: Any) -> Any:
    """Expects an exception, as a context or from a call."""
    if function is None:
        return _raising(expected, keywords.get("match"))
    with _raising(expected, None) as caught:
        function(*arguments, **keywords)
    return caught


class approx:  # noqa: N801
    """A number, or numbers in a sequence or mapping, up to a tolerance."""

    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None) -> None:
        self._expected = expected
        self._relative = 1e-6 if rel is None and abs is None else rel or 0.0
        self._absolute = 1e-12 if abs is None else abs

    def __eq__(self, actual: object) -> bool:
        return self._close(self._expected, actual)

    __hash__ = None  # type: ignore[assignment]

    def _close(self, expected: Any, actual: Any) -> bool:
        if isinstance(expected, Mapping):
            return (
                isinstance(actual, Mapping)
                and expected.keys() == actual.keys()
                and all(self._close(expected[key], actual[key]) for key in expected)
            )
        if isinstance(expected, Sequence) and not isinstance(expected, str):
            return (
                type(actual) is type(expected)
                and len(actual) == len(expected)
                and all(map(self._close, expected, actual))
            )
        if expected == actual:
            return True
        numbers = (int, float, complex)
        if not isinstance(expected, numbers) or not isinstance(actual, numbers):
            return False
        return abs(expected - actual) <= max(self._relative * abs(expected), self._absolute)


def skip(reason: str = "", **options: Any) -> None:
    """Leaves the running test out."""
    _refuse("skip", options, "reason")
    raise Skipped(reason)


def xfail(reason: str = "") -> None:
    """Leaves the running test out: it may fail."""
    raise Skipped(reason)


def fail(reason: str = "") -> None:
    """Fails the running test."""
    raise AssertionError(reason)


def importorskip(name: str) -> types.ModuleType:
    """Imports a module of the standard library; there are no others."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise NotSupportedError(f"the module {name!r}") from error


def main(*_: Any, **__: Any) -> int:
    """Does nothing: the tests are run anyway."""
    return 0


def fixture(function: Callable[..., Any] | None = None, *, autouse: bool = False, **options: Any) -> Any:
    """Marks a function whose value tests take as an argument; each test gets its own."""
    _refuse("fixture", options, "scope")

    def decorate(marked: Any) -> Any:
        marked.is_fixture, marked.is_for_all = True, autouse
        return marked

    return decorate if function is None else decorate(function)


def _refuse(name: str, options: Mapping[str, Any], *known: str) -> None:
    for other in sorted(options.keys() - set(known)):
        raise NotSupportedError(f"{other!r} of pytest.{name}")


class _Mark:
    """Marks of tests: those of which pytest itself knows no effect have none."""

    def __getattr__(self, name: str) -> Any:
        known = {"parametrize": _parametrize, "skip": _skip_mark, "skipif": _skipif_mark, "xfail": _xfail_mark}
        if name in known:
            return known[name]
        if name == "usefixtures":
            raise NotSupportedError("pytest.mark.usefixtures")

        def other(*arguments: Any, **_: Any) -> Any:
            return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else lambda function: function

        return other


def _parametrize(names: str | Sequence[str], rows: Sequence[Any], **options: Any) -> Callable[[Any], Any]:
    _refuse("mark.parametrize", options, "ids")
    split = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

    def decorate(function: Any) -> Any:
        added = [dict(zip(split, [row] if len(split) == 1 else row, strict=True)) for row in map(_plain_row, rows)]
        function.rows = [{**a, **b} for a, b in itertools.product(added, vars(function).get("rows", [{}]))]
        return function

    return decorate


class param(tuple):  # noqa: N801
    """A row of parameters; its id has no effect."""

    def __new__(cls, *row: Any, **options: Any) -> "param":
        """Keeps the values."""
        _refuse("param", options, "id")
        return super().__new__(cls, row)


def _plain_row(row: Any) -> Any:
    return row[0] if isinstance(row, param) and len(row) == 1 else row


def _left_out(function: Any) -> Any:
    function.is_skipped = True
    return function


def _skip_mark(*arguments: Any, **_: Any) -> Any:
    return _left_out(arguments[0]) if arguments and callable(arguments[0]) else _left_out


def _skipif_mark(*conditions: Any, **_: Any) -> Any:
    if any(isinstance(condition, str) for condition in conditions):
        raise NotSupportedError("a condition of pytest.mark.skipif that is a text")
    return _left_out if any(conditions) else lambda function: function


def _xfail_mark(*arguments: Any, strict: bool = False, **_: Any) -> Any:
    """A test that may fail or pass decides nothing; one that must fail could be passed by anything that is broken."""
    if strict:
        raise NotSupportedError("'strict' of pytest.mark.xfail")
    if arguments and callable(arguments[0]):
        return _left_out(arguments[0])
    return _skipif_mark(*(arguments or (True,)))


mark = _Mark()
NAMES = ("raises", "approx", "skip", "xfail", "fail", "importorskip", "main", "fixture", "param", "mark")
"""What tests may use of pytest."""


def as_module() -> types.ModuleType:
    """A module named ``pytest`` with these names."""
    module = types.ModuleType("pytest")
    for name in NAMES:
        setattr(module, name, globals()[name])
    module.__getattr__ = _missing  # type: ignore[method-assign]
    return module


def _missing(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise NotSupportedError(f"pytest.{name}")
