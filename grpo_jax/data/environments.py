"""Problems of environments that were written for the ``verifiers`` library."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grpo_jax.config import ConfigError
from grpo_jax.data.sources import Source
from grpo_jax.foreign import environments

JUDGED_THERE = "(the environment judges)"
"""Stands in the place of an answer where the environment has none."""


def open_environment(text: str, key: str) -> Source:
    """Loads an environment for its problems.

    Args:
        text: As for ``environments.load``.
        key: Configuration key that names it, for messages.

    Returns:
        Its rows; what its judge needs is in the column ``environments.COLUMN``.

    Raises:
        ConfigError: if it cannot be used.
    """
    try:
        loaded = environments.load(text)
    except environments.EnvironmentFault as error:
        raise ConfigError(f"config.{key}: {error}.") from error
    return Source(key, text, Path(text.partition(":")[0]).name, _rows(loaded))


def _rows(environment: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, row in enumerate(environments.rows(environment), start=1):
        prompt, answer = row["prompt"], row["answer"]
        # A chat template sees the messages themselves; a base model reads their texts one after the other.
        text = prompt if isinstance(prompt, str) else "\n\n".join(str(message["content"]) for message in prompt)
        shown = str(answer) if str(answer).strip() else JUDGED_THERE
        yield number, {**row["columns"], "problem": text, "answer": shown, environments.COLUMN: row}
