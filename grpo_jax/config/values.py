"""Between frozen configuration dataclasses and nested plain values."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from grpo_jax.config.checks import ConfigError, fail

Config = TypeVar("Config")

FOREIGN_NAMES = {
    "beta": "algorithm.kl_beta",
    "epsilon_high": "algorithm.clip_epsilon_high",
    "epsilon_low": "algorithm.clip_epsilon",
    "group_size": "rollout.completions_per_prompt",
    "kl_loss_coef": "algorithm.kl_beta",
    "loss_type": "algorithm.aggregation",
    "max_completion_length": "rollout.max_new_tokens",
    "max_prompt_length": "data.max_prompt_tokens",
    "max_response_length": "rollout.max_new_tokens",
    "max_steps": "steps",
    "num_generations": "rollout.completions_per_prompt",
    "per_device_train_batch_size": "algorithm.micro_batch_completions",
    "ppo_micro_batch_size_per_gpu": "algorithm.micro_batch_completions",
    "reward_funcs": "verifier.rewards",
    "reward_weights": "verifier.weights",
    "scale_rewards": "algorithm.advantage",
    "train_batch_size": "rollout.prompts_per_step",
}
"""Keys as TRL and verl name them, and the key here that comes nearest."""


def from_nested(config_class: type[Config], values: Mapping[str, Any], path: str = "") -> Config:
    """Builds a frozen config from nested plain values; defaults fill what is missing.

    Args:
        config_class: Dataclass to build.
        values: Nested mapping with its keys.
        path: Dotted path of ``values`` inside the run's config, for messages.

    Returns:
        The config, not yet validated.

    Raises:
        ConfigError: for an unknown key (with the nearest right name) or a value of the wrong type.
    """
    hints = typing.get_type_hints(config_class)
    built = {}
    for name, value in values.items():
        where = f"{path}.{name}" if path else str(name)
        hint = _field_type(config_class, str(name), where)
        if not dataclasses.is_dataclass(hint):
            built[name] = _typed(value, hints[name], where)
        elif isinstance(value, Mapping):
            built[name] = from_nested(typing.cast(type, hint), value, where)
        else:
            fail(where, value, f"a section with the keys {', '.join(sorted(typing.get_type_hints(hint)))}")
    return config_class(**built)


def to_nested(config: Any) -> dict[str, Any]:
    """Turns a frozen config into nested plain values; ``from_nested`` is its inverse."""
    return dataclasses.asdict(config)


def require_key(config_class: type, path: str) -> None:
    """Checks that a dotted path names a key.

    Args:
        config_class: Dataclass of the whole config.
        path: Dotted path, such as ``model.num_layers``.

    Raises:
        ConfigError: with the nearest right name.
    """
    hint: Any = config_class
    walked: list[str] = []
    for name in path.split("."):
        walked.append(name)
        if not dataclasses.is_dataclass(hint):
            raise ConfigError(f"config.{'.'.join(walked)}: no such key. config.{'.'.join(walked[:-1])} is a value.")
        hint = _field_type(typing.cast(type, hint), name, ".".join(walked))


def _field_type(config_class: type, name: str, where: str) -> Any:
    hints = typing.get_type_hints(config_class)
    if name not in hints:
        known = [*_below(config_class, name), *([FOREIGN_NAMES[name]] if name in FOREIGN_NAMES else [])]
        known = known or [f"'{near}'" for near in difflib.get_close_matches(name, list(hints), n=1, cutoff=0.5)]
        question = f" Did you mean {' or '.join(known)}?" if known else ""
        raise ConfigError(f"config.{where}: no such key.{question} Keys here: {', '.join(sorted(hints))}.")
    return hints[name]


def _below(config_class: type, name: str) -> list[str]:
    """Paths of the keys of that name in the sections of a config, the shortest first."""
    found = []
    for section, hint in typing.get_type_hints(config_class).items():
        if dataclasses.is_dataclass(hint):
            keys = typing.get_type_hints(hint)
            paths = [name] if name in keys else _below(typing.cast(type, hint), name)
            found += [f"{section}.{path}" for path in paths]
    return sorted(found, key=lambda path: path.count("."))


def _typed(value: Any, hint: Any, path: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return _choice(value, arguments, path)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            fail(path, value, "a sequence such as ('a', 'b')")
        return tuple(_typed(item, arguments[0], f"{path}[{index}]") for index, item in enumerate(value))
    if origin in (typing.Union, types.UnionType):
        some_type = next(argument for argument in arguments if argument is not types.NoneType)
        return None if value is None else _typed(value, some_type, path)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        fail(path, value, f"a value of type {hint.__name__}")
    return value


def _choice(value: Any, choices: tuple[Any, ...], path: str) -> Any:
    if value not in choices:
        near = difflib.get_close_matches(str(value), [str(choice) for choice in choices], n=1)
        fail(path, value, f"one of {', '.join(map(repr, choices))}", f"Did you mean {near[0]!r}?" if near else "")
    return value


def dotted(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens nested values.

    Args:
        values: Nested values.
        prefix: In front of every name.

    Returns:
        Values by dotted key.

    >>> dotted({"a": {"b": 1}, "c": 2})
    {'a.b': 1, 'c': 2}
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= dotted(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
