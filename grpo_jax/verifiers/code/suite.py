"""The tests of a problem as its data gives them, checked before any program runs."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Literal

from grpo_jax.verifiers.code import loading, unsupported

CODE_STYLES = ("asserts", "unittest", "pytest")


class SuiteError(ValueError):
    """The tests cannot be used: a fault of the data, not of a program."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One case: what goes in, and what must come out.

    Attributes:
        given: Arguments (a list, or a dictionary of keyword arguments), or text for standard input.
        expected: The value, or text on standard output.
    """

    given: Any
    expected: Any


@dataclasses.dataclass(frozen=True)
class Suite:
    """The tests of one problem.

    Attributes:
        style: ``call`` calls a function, ``stdin`` runs a script, ``code`` runs tests in code.
        cases: Of the first two styles.
        entry: Name of the function, if there is one.
        code: Tests in code.
        module: What the code imports the program as.
    """

    style: Literal["call", "stdin", "code"]
    cases: tuple[Case, ...] = ()
    entry: str = ""
    code: str = ""
    module: str = "solution"


def parse_suite(tests: Any) -> Suite:
    """Reads a problem's tests.

    Args:
        tests: ``{"style": "call", "entry": name, "cases": [[arguments, result], ...]}``,
            ``{"style": "stdin", "cases": [[input, output], ...]}``, or ``{"style": "asserts" | "unittest" | "pytest",
            "code": text}`` with an optional ``module`` and ``entry``.

    Returns:
        The suite.

    Raises:
        SuiteError: saying what is missing or of another form.
    """
    if not isinstance(tests, Mapping):
        raise SuiteError(f"got tests of type {type(tests).__name__}, wanted an object with a style")
    style = tests.get("style")
    entry = tests.get("entry", "")
    if not isinstance(entry, str) or (style == "call" and not all(map(str.isidentifier, entry.split(".")))):
        raise SuiteError(f"got entry {entry!r}, wanted a function's name")
    if style in CODE_STYLES:
        return _code_suite(tests, entry)
    if style == "call":
        return Suite("call", _cases(tests, (list, dict), (object,)), entry)
    if style == "stdin":
        return Suite("stdin", _cases(tests, (str,), (str,)))
    raise SuiteError(f"got style {style!r}, wanted call, stdin, {', '.join(CODE_STYLES)}")


def _code_suite(tests: Mapping[str, Any], entry: str) -> Suite:
    code, module = tests.get("code"), tests.get("module", "solution")
    if isinstance(code, list) and all(isinstance(line, str) for line in code):
        code = "\n".join(code)
    if not isinstance(code, str) or not code.strip():
        raise SuiteError("got no code, wanted tests in code")
    if not isinstance(module, str) or not module.isidentifier():
        raise SuiteError(f"got module {module!r}, wanted a module's name")
    _check_code(code, module, entry)
    return Suite("code", (), entry, code, module)


@functools.lru_cache(maxsize=256)
def _check_code(code: str, module: str, entry: str) -> None:
    try:
        tree = loading.check_syntax(code)
    except loading.SyntaxFault as error:
        raise SuiteError(f"the tests do not compile: {error}") from error
    found = unsupported.find(tree, module, entry)
    if found:
        raise SuiteError(f"the tests use {found}, which is not supported")


def _cases(tests: Mapping[str, Any], given: tuple[type, ...], expected: tuple[type, ...]) -> tuple[Case, ...]:
    cases = tests.get("cases")
    if not isinstance(cases, (list, tuple)) or not cases:
        raise SuiteError("got no cases, wanted at least one")
    for number, case in enumerate(cases, 1):
        if (
            not isinstance(case, (list, tuple))
            or len(case) != 2
            or not isinstance(case[0], given)
            or not isinstance(case[1], expected)
        ):
            raise SuiteError(f"case {number} is no pair of what goes in and what comes out")
    return tuple(Case(*case) for case in cases)
