"""Tasks of the reasoning-gym library: generated problems, each with the library's own scorer."""

import ast
import functools
import importlib
import inspect
import sys
from typing import Any

INSTALL = "pip install 'grpo-jax[reasoning-gym]'"

_EVALUATING = frozenset({"eval", "exec", "compile", "parse_expr", "parse_latex", "sympify", "S"})
"""Functions that run text. SymPy's parsers are among them: they hand it to Python's eval."""

EVALUATE_THEIR_OWN = frozenset({"basic_arithmetic", "bitwise_arithmetic", "number_sorting", "propositional_logic"})
"""Tasks whose modules hold such a call, read by us: only the problem's own text gets there, or a parser of its own."""


class GymError(ValueError):
    """The library or a task of it cannot be used."""


def generator(task: str, settings: dict[str, Any], size: int, seed: int) -> Any:
    """Makes the generator of a task; equal arguments give equal problems.

    Args:
        task: Its name in the library.
        settings: Values for its configuration, such as ``{"max_terms": 3}``.
        size: Problems that it can be asked for.
        seed: Decides them.

    Returns:
        The generator: ``generator[index]`` is a dict with question, answer and metadata, and
        ``generator.score_answer(answer, entry)`` is in [0, 1].

    Raises:
        GymError: if the library is missing, there is no such task, its settings are wrong, or its scorer would run what
            a model wrote.
    """
    factory = _factory()
    if task not in factory.DATASETS or task == "composite":
        known = ", ".join(sorted(set(factory.DATASETS) - {"composite"}))
        raise GymError(f"reasoning-gym has no task {task!r}, wanted one of {known}")
    if fault := evaluates(task):
        raise GymError(
            f"the scorer of {task!r} in reasoning-gym may run what a model wrote as a program ({fault}); such tasks "
            "are not used"
        )
    try:
        return factory.create_dataset(task, size=size, seed=seed, **settings)
    except (AssertionError, TypeError, ValueError) as error:
        raise GymError(f"reasoning-gym refuses the settings {settings} of {task!r}: {error}") from error


@functools.cache
def evaluates(task: str) -> str:
    """The call by which a task's module might run what a model wrote, or nothing.

    The library's modules are looked at, not a list of names: a new release may bring others.
    """
    if task in EVALUATE_THEIR_OWN:
        return ""
    module = sys.modules[_factory().DATASETS[task][0].__module__]
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Call):
            function = node.func
            # re.compile is no compile().
            plain = function.id if isinstance(function, ast.Name) else ""
            method = function.attr if isinstance(function, ast.Attribute) else ""
            if plain in _EVALUATING or method in _EVALUATING - {"compile"}:
                return f"line {node.lineno} of {module.__name__}: {ast.unparse(node)[:60]}"
    return ""


def version() -> str:
    """The library's version."""
    return str(_library().__version__)


def _library() -> Any:
    try:
        return importlib.import_module("reasoning_gym")
    except ImportError as error:
        raise GymError(f"reasoning-gym is not installed ({error}). Run `{INSTALL}`") from error


def _factory() -> Any:
    _library()
    return importlib.import_module("reasoning_gym.factory")
