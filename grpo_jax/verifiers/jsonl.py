"""Files of the verifiers' tool: one JSON object per line, each turned into something, faults named by their line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from grpo_jax.config import ConfigError

Row = TypeVar("Row")


def read_rows(path: Path, flag: str, wanted: str, parse: Callable[[int, Any], Row]) -> list[Row]:
    """Reads a file.

    Args:
        path: The file.
        flag: The flag that named it, for messages.
        wanted: What a row should be, for messages: ``"case of kind 'math'"``.
        parse: Turns a line's number and value into a row. Its KeyError, TypeError or ValueError names what is wrong.

    Returns:
        The rows in order; empty lines are left out.

    Raises:
        ConfigError: naming file, line and what is wrong with it.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{flag}: {path} cannot be read: {error}. Wanted a JSONL file.") from error
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            if type(value) is not dict:
                raise TypeError(f"it is a {type(value).__name__}, wanted an object")
            rows.append(parse(number, value))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            fault = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise ConfigError(f"{flag}: line {number} of {path} is no {wanted}: {fault}.") from error
    if not rows:
        raise ConfigError(f"{flag}: {path} holds no {wanted}.")
    return rows
