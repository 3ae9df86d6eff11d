"""Command lines: a configuration file, overrides, and errors that a person can act on."""

import dataclasses
import errno
import functools
import importlib.util
import inspect
import io
import re
import sys
import traceback
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags
from ml_collections import ConfigDict, config_dict, config_flags

from grpo_jax.config import ConfigError, RunConfig, from_nested, require_key
from grpo_jax.io.storage import explained

USAGE = 2
"""Exit status of a bad command line, configuration or file name."""

_CONFIG_FLAG = "--config"

_OUT_OF_MEMORY = (
    "What was saved goes on with the same --workdir. `python -m grpo_jax.memory --config FILE` shows what a run holds, "
    "and docs/memory.md which keys make it smaller: rollout.max_new_tokens, rollout.batch_prompts, "
    "algorithm.micro_batch_completions and model.remat first."
)


class OutOfMemory(Exception):  # noqa: N818
    """There was no memory left, and it is known what would need less."""

    exit_status = 1


class CommandLine(NamedTuple):
    """A parsed command line.

    Attributes:
        config: The resolved configuration, not yet validated.
        name: The configuration file's name without its ending, or nothing where there is none.
        overrides: Values given on the command line, by dotted key.
        flags: The other flags' values.
    """

    config: RunConfig
    name: str
    overrides: dict[str, str]
    flags: flags.FlagValues


def shows_help(text: str | None) -> bool:
    """Prints what a command does if that is all that its command line asks for.

    Args:
        text: The command's docstring.

    Returns:
        Whether it was asked for.
    """
    asked = bool({"--help", "-h", "--helpfull"} & set(sys.argv))
    if asked:
        print(text)
    return asked


def parse(
    arguments: Sequence[str],
    flag_values: flags.FlagValues,
    *,
    config_required: bool = True,
    default: RunConfig | None = None,
) -> CommandLine:
    """Reads ``--config FILE``, ``--config.a.b=value`` and the flags already defined.

    Args:
        arguments: The command line, program name first.
        flag_values: Where other flags are defined.
        config_required: Whether a file must be named; without one all keys have their defaults.
        default: What a command line without a file changes, in the place of those defaults.

    Returns:
        The parsed command line.

    Raises:
        ConfigError: for a missing or broken file, an unknown key or flag, or a value of the wrong type.
    """
    path, rest = _take_config_path(list(arguments))
    if path is None and config_required:
        named = next((argument for argument in rest[1:] if argument.partition(":")[0].endswith(".py")), None)
        remedy = f"Did you mean --config {named}?" if named else "Add --config configs/quickstart.py."
        raise ConfigError(f"--config: got none, wanted a configuration file. {remedy}")
    base = (default or RunConfig()) if path is None else from_nested(RunConfig, _load(path).to_dict())
    given: dict[str, str | None] = {}
    for argument in rest[1:]:
        # A value may also be a word of its own, and a bool needs none: --config.data.chat, --noconfig.data.chat.
        if match := re.fullmatch(r"--(?:no)?config\.([^=]*)(?:=(.*))?", argument, re.DOTALL):
            require_key(RunConfig, match[1])
            given[match[1]] = match[2]
    config_flags.DEFINE_config_dict("config", _to_config_dict(base), flag_values=flag_values, sys_argv=rest)
    try:
        unknown = flag_values(rest)[1:]
        resolved = flag_values.config.to_dict()
    except flags.UnrecognizedFlagError as error:
        is_key = error.flagname in {field.name for field in dataclasses.fields(RunConfig)}
        hint = f" Did you mean --config.{error.flagname}?" if is_key else ""
        raise ConfigError(f"command line: {error}.{hint}") from error
    except (flags.Error, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"command line: {error}") from error
    if unknown:
        raise ConfigError(f"command line: got {' '.join(unknown)!r}, wanted only flags such as --config.steps=10")
    name = "" if path is None else Path(path.partition(":")[0]).stem
    overrides = {key: str(_value(resolved, key)) if text is None else text for key, text in given.items()}
    return CommandLine(from_nested(RunConfig, resolved), name, overrides, flag_values)


def _value(nested: dict[str, Any], key: str) -> Any:
    return functools.reduce(lambda part, name: part[name], key.split("."), nested)


def check_writable(path: Path, flag: str) -> None:
    """Finds out before any work is done that a file can be written; an existing one is left as it is.

    Args:
        path: The file.
        flag: The flag that named it.

    Raises:
        ConfigError: if it cannot.
    """
    try:
        path.open("a").close()
    except OSError as error:
        raise ConfigError(f"{flag}: {path} cannot be written: {error.strerror}.") from error


def exhausted(error: BaseException) -> bool:
    """Whether a device had no memory left.

    Args:
        error: What was raised.

    Returns:
        Whether that was the reason.
    """
    return "RESOURCE_EXHAUSTED" in str(error)


def run(main: Callable[[], int]) -> typing.NoReturn:
    """Runs an entry point and ends the process with the exit status that its outcome has.

    An exception with an ``exit_status`` is an outcome that the user can act on: its message is shown. Anything else is
    a fault of ours: status 1, with a traceback.

    Args:
        main: The entry point; returns an exit status.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What people and models write may hold what the terminal's encoding does not.
            stream.reconfigure(errors="backslashreplace")
    try:
        status = main()
    except KeyboardInterrupt:
        print("interrupted; what was saved goes on with the same --workdir", file=sys.stderr)
        status = 130
    except Exception as raised:
        error = explained(raised)
        given = isinstance(error, FileExistsError | PermissionError | NotADirectoryError)
        known = USAGE if given or getattr(error, "errno", None) == errno.ENAMETOOLONG else None
        status = getattr(error, "exit_status", known)
        if status is None and (isinstance(error, MemoryError) or exhausted(error)):
            print(f"error: out of memory: {str(error).splitlines()[0]}\n{_OUT_OF_MEMORY}", file=sys.stderr)
            status = 1
        elif status is None:
            traceback.print_exc()
            status = 1
        else:
            print(f"error: {error}" if status else str(error), file=sys.stderr)
    sys.exit(status)


def _take_config_path(arguments: list[str]) -> tuple[str | None, list[str]]:
    for index, argument in enumerate(arguments):
        if argument.startswith(f"{_CONFIG_FLAG}="):
            return argument.partition("=")[2], arguments[:index] + arguments[index + 1 :]
        if argument == _CONFIG_FLAG and index + 1 < len(arguments):
            return arguments[index + 1], arguments[:index] + arguments[index + 2 :]
    return None, arguments


def _load(path: str) -> ConfigDict:
    """Calls ``get_config`` of a file; ``file.py:text`` passes the text as its argument."""
    name, colon, argument = path.partition(":")
    file = Path(name)
    if not file.is_file():
        near = ", ".join(sorted(str(other) for other in file.parent.glob("*.py"))) or "none"
        raise ConfigError(f"--config: got {name}, wanted an existing file. Files in {file.parent}: {near}.")
    # Configuration files import each other as `configs.base`.
    folder = str(file.resolve().parent.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module_spec = importlib.util.spec_from_file_location(f"_config_{file.stem}", file)
    if module_spec is None or module_spec.loader is None:
        raise ConfigError(f"--config: got {name}, wanted a Python file.")
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
        if not callable(getattr(module, "get_config", None)):
            raise ConfigError(f"--config: {name} has no function get_config(), wanted one that returns a ConfigDict.")
        if colon and not inspect.signature(module.get_config).parameters:
            raise ConfigError(f"--config: got {path}, wanted {name} alone: its get_config() takes no argument.")
        config = module.get_config(argument) if colon else module.get_config()
    except ConfigError:
        raise
    except Exception as error:
        hint = ""
        if isinstance(error, ModuleNotFoundError) and error.name == "configs":
            hint = " Outside the repository, give only the keys that you change: ConfigDict({'steps': 100})."
        raise ConfigError(
            f"--config: {name} does not give a configuration: {type(error).__name__}: {error}.{hint}"
        ) from error
    if not isinstance(config, ConfigDict):
        raise ConfigError(f"--config: get_config() of {name} gave a {type(config).__name__}, wanted a ConfigDict.")
    return config


def _to_config_dict(config: Any) -> ConfigDict:
    """Every key with its type, so that overrides are parsed as what the key holds, None included."""
    hints = typing.get_type_hints(type(config))
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            values[field.name] = _to_config_dict(value)
        elif types.NoneType in typing.get_args(hints[field.name]):
            kind = next(kind for kind in typing.get_args(hints[field.name]) if kind is not types.NoneType)
            values[field.name] = config_dict.placeholder(kind)
        else:
            values[field.name] = value
    built = ConfigDict(values)
    for field in dataclasses.fields(config):
        if isinstance(values[field.name], config_dict.FieldReference) and getattr(config, field.name) is not None:
            built[field.name] = getattr(config, field.name)
    return built
