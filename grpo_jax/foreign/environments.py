"""Environments written for the ``verifiers`` library (its releases below 0.2): single-turn ones with their rubric.

Such an environment is a module with ``load_environment(**arguments)``; it returns an object with a data set of prompts,
answers and info, and a rubric: reward functions with weights.
"""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from grpo_jax.foreign.modules import module_of

INSTALL = "pip install 'verifiers<0.2'"

COLUMN = "verifiers_environment"
"""Column of a problem that holds what the environment's data set said of it."""

KIND = "environment"
"""What its module is called for ``foreign.modules``."""

_GROUP_ARGUMENTS = frozenset({"states", "prompts", "completions", "answers", "tasks", "infos"})
"""A reward function that asks for one of these wants several completions at once."""

_OF_THE_LIBRARY = ("example_id", "task", "env_id")


class EnvironmentFault(ValueError):  # noqa: N818
    """An environment cannot be loaded, or is none of the kind that can be used here."""


class Reward(NamedTuple):
    """A reward function of a rubric.

    Attributes:
        name: The function's.
        function: Takes any of prompt, completion, answer, info, state, task and the rubric's own objects by name; may
            be asynchronous.
        weight: Its weight, which is not 0.
        objects: The rubric's own objects, such as its parser.
    """

    name: str
    function: Callable[..., Any]
    weight: float
    objects: Mapping[str, Any]


def load(name: str) -> Any:
    """Loads an environment.

    Args:
        name: A module or ``FILE.py``, and, behind a colon, a JSON object of arguments: ``my_env:{"difficulty": 3}``.

    Returns:
        The environment, which is a single-turn one without tools.

    Raises:
        EnvironmentFault: naming what is missing, or why such an environment cannot be used.
    """
    place, colon, text = name.partition(":")
    try:
        arguments = json.loads(text) if colon else {}
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise EnvironmentFault(f'{name!r} has no JSON object behind its colon, wanted NAME or NAME:{{"key": value}}')
    try:
        module = module_of(place, KIND)
    except (FileNotFoundError, ModuleNotFoundError) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        remedy = f" Run `{INSTALL}`." if missing == "verifiers" else ""
        raise EnvironmentFault(f"{place}: {error}.{remedy}") from error
    except (Exception, SystemExit) as error:
        raise EnvironmentFault(f"importing {place} fails: {type(error).__name__}: {error}") from error
    if not callable(getattr(module, "load_environment", None)):
        raise EnvironmentFault(f"{place} has no function load_environment")
    try:
        environment = module.load_environment(**arguments)
    except Exception as error:
        remedy = f" It may be written for another release of verifiers: {INSTALL}."
        raise EnvironmentFault(f"load_environment of {place}: {type(error).__name__}: {error}.{remedy}") from error
    _check_kind(environment, place)
    return environment


def _check_kind(environment: Any, place: str) -> None:
    kind = type(environment)
    lineage = {base.__name__ for base in kind.__mro__}
    if "SingleTurnEnv" not in lineage:
        raise EnvironmentFault(f"{place} is a {kind.__name__}, wanted a SingleTurnEnv: one prompt, one completion")
    if lineage & {"ToolEnv", "StatefulToolEnv", "SandboxEnv"} or getattr(environment, "tool_defs", None):
        raise EnvironmentFault(f"{place} is a {kind.__name__} with tools, wanted one without")
    rewards(environment)


def rewards(environment: Any) -> list[Reward]:
    """The reward functions that count, in the rubric's order.

    Args:
        environment: From ``load``.

    Returns:
        Those whose weight is not 0; the others are only measured.

    Raises:
        EnvironmentFault: for a rubric that asks a model, wants several completions at once, or has no such function.
    """
    found = [
        Reward(getattr(function, "__name__", "reward"), function, float(weight), dict(rubric.class_objects))
        for rubric in _rubrics(environment.rubric)
        for function, weight in zip(rubric.funcs, rubric.weights, strict=True)
        if weight != 0
    ]
    for reward in found:
        if _GROUP_ARGUMENTS & inspect.signature(reward.function).parameters.keys():
            raise EnvironmentFault(f"its reward {reward.name} judges several completions at once, wanted one at a time")
    if not found:
        raise EnvironmentFault("its rubric has no reward function with a weight")
    return found


def _rubrics(rubric: Any) -> Iterator[Any]:
    if "JudgeRubric" in {base.__name__ for base in type(rubric).__mro__}:
        raise EnvironmentFault(f"its {type(rubric).__name__} asks a model for its opinion, wanted rewards by a program")
    if hasattr(rubric, "rubrics"):
        for part in rubric.rubrics:
            yield from _rubrics(part)
    else:
        yield rubric


def rows(environment: Any) -> Iterator[dict[str, Any]]:
    """The environment's problems as rows.

    Args:
        environment: From ``load``.

    Yields:
        Rows with prompt (a text or messages), answer, info and the data set's other columns.
    """
    for row in environment.get_dataset():
        info = row.get("info")
        yield {
            "prompt": row["prompt"],
            "answer": row.get("answer", ""),
            "info": json.loads(info) if isinstance(info, str) and info else info or {},
            "columns": {
                key: value for key, value in row.items() if key not in ("prompt", "answer", "info", *_OF_THE_LIBRARY)
            },
        }
