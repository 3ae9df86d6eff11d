"""Tests of programming problems as data sets publish them, in the form that the verifier of programs reads."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from grpo_jax.config.data import TestsFormat


class PublishedTests(NamedTuple):
    """The tests of one row.

    Attributes:
        suite: What the column ``tests`` of docs/verifiers.md holds.
        shown: The tests as a prompt may show them.
    """

    suite: dict[str, str]
    shown: str


def _humaneval(row: Mapping[str, Any]) -> PublishedTests:
    # The test defines check(candidate); the verifier calls it with the function of that name.
    code, entry = _text(row, "test"), _text(row, "entry_point")
    return PublishedTests({"style": "asserts", "code": code, "entry": entry}, code)


def _mbpp(row: Mapping[str, Any]) -> PublishedTests:
    asserts = _texts(row, "test_list")
    setup = _texts(row, "test_imports") if "test_imports" in row else [row.get("test_setup_code") or ""]
    if not asserts:
        raise ValueError("column 'test_list': wanted at least one test")
    if not all(isinstance(line, str) for line in setup):
        raise ValueError("column 'test_setup_code': wanted text")
    code = "\n".join([line for line in (*setup, *asserts) if line.strip()])
    return PublishedTests({"style": "asserts", "code": code}, "\n".join(asserts))


_FORMATS: Mapping[TestsFormat, Callable[[Mapping[str, Any]], PublishedTests]] = {"humaneval": _humaneval, "mbpp": _mbpp}


def published_tests(row: Mapping[str, Any], tests_format: TestsFormat) -> PublishedTests:
    """Reads a row's tests.

    Args:
        row: The row.
        tests_format: ``humaneval`` (columns test and entry_point) or ``mbpp`` (test_list, and test_imports or
            test_setup_code).

    Returns:
        The tests; nothing in them is run.

    Raises:
        ValueError: naming the column and what was wanted.
    """
    return _FORMATS[tests_format](row)


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"column {name!r}: wanted text")
    return value


def _texts(row: Mapping[str, Any], name: str) -> list[str]:
    value = row.get(name)
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(line, str) for line in value):
        raise ValueError(f"column {name!r}: wanted a list of texts")
    return list(value)
