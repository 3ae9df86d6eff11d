"""The part of pytest's interface that tests of single functions use, for a judge without installed packages."""

import contextlib
import itertools
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


class Skipped(Exception):  # noqa: N818
    """A test does not want to run."""


@contextlib.contextmanager
def _raising(expected: Any, match: str | None) -> Iterator[types.SimpleNamespace]:
    caught = types.SimpleNamespace(value=None, type=None)
    try:
        yield caught
    except expected as error:
        caught.value, caught.type = error, type(error)
        if match is not None and not re.search(match, str(error)):
            raise AssertionError(f"{error!s} does not match {match!r}") from error
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


def skip(reason: str = "") -> None:
    """Leaves the running test out."""
    raise Skipped(reason)


def fail(reason: str = "") -> None:
    """Fails the running test."""
    raise AssertionError(reason)


def fixture(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    """Marks a function whose value tests take as an argument."""
    if function is None:
        return fixture
    function.is_fixture = True  # type: ignore[attr-defined]
    return function


class _Mark:
    """Marks of tests. ``parametrize`` and ``skip`` have an effect."""

    def __getattr__(self, name: str) -> Any:
        if name == "parametrize":
            return _parametrize
        if name == "skip":
            return _skip_mark

        def other(*arguments: Any, **_: Any) -> Any:
            return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else lambda function: function

        return other


def _parametrize(names: str | Sequence[str], rows: Sequence[Any], **_: Any) -> Callable[[Any], Any]:
    split = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

    def decorate(function: Any) -> Any:
        added = [dict(zip(split, [row] if len(split) == 1 else row, strict=True)) for row in map(_plain_row, rows)]
        function.rows = [{**a, **b} for a, b in itertools.product(added, getattr(function, "rows", [{}]))]
        return function

    return decorate


class param(tuple):  # noqa: N801
    """A row of parameters; its id and marks have no effect."""

    def __new__(cls, *row: Any, **_: Any) -> "param":
        """Keeps the values."""
        return super().__new__(cls, row)


def _plain_row(row: Any) -> Any:
    return row[0] if isinstance(row, param) and len(row) == 1 else row


def _skip_mark(*arguments: Any, **_: Any) -> Any:
    def decorate(function: Any) -> Any:
        function.is_skipped = True
        return function

    return decorate(arguments[0]) if arguments and callable(arguments[0]) else decorate


mark = _Mark()


def as_module() -> types.ModuleType:
    """A module named ``pytest`` with these names."""
    module = types.ModuleType("pytest")
    for part in (raises, approx, skip, fail, fixture, param):
        setattr(module, part.__name__, part)
    module.mark = mark  # type: ignore[attr-defined]
    return module
