"""Checks of configuration values, with messages that say what to change."""

import dataclasses
import typing
from typing import Any

LARGEST = 2**31
"""No quantity of a run reaches this; infinity and NaN are refused with it."""

LONGEST = 2**24
"""No row has as many tokens, and no vocabulary; XLA aborts at some sizes that nobody means."""


class ConfigError(ValueError):
    """The user's configuration cannot be used; the message says what to change."""

    exit_status = 2


def fail(path: str, got: object, wanted: str, remedy: str = "") -> typing.NoReturn:
    """Raises a ConfigError.

    Args:
        path: Dotted path of the key.
        got: What it holds.
        wanted: What it should hold.
        remedy: A further sentence.
    """
    raise ConfigError(f"config.{path}: got {got!r}, wanted {wanted}. {remedy}".rstrip())


def require(condition: bool, path: str, got: object, wanted: str, remedy: str = "") -> None:
    """Calls ``fail`` unless the condition holds."""
    if not condition:
        fail(path, got, wanted, remedy)


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the configuration."""

    def validate(self, path: str) -> None:
        """Checks the section's values.

        Args:
            path: Dotted path of the section.

        Raises:
            ConfigError: naming key, value, what was wanted and the remedy.
        """

    def _at_least(self, path: str, minimum: int, *names: str) -> None:
        for name in names:
            value: Any = getattr(self, name)
            require(minimum <= value < LARGEST, f"{path}.{name}", value, f"{minimum} or more, and less than 2^31")

    def _of_a_row(self, path: str, *names: str) -> None:
        for name in names:
            value: Any = getattr(self, name)
            require(
                value < LONGEST, f"{path}.{name}", value, "less than 2^24: no row is as long, no vocabulary as large"
            )

    def _positive(self, path: str, *names: str) -> None:
        for name in names:
            value: Any = getattr(self, name)
            require(0 < value < LARGEST, f"{path}.{name}", value, "a positive number less than 2^31")

    def _share(self, path: str, *names: str) -> None:
        for name in names:
            value: Any = getattr(self, name)
            require(0 <= value <= 1, f"{path}.{name}", value, "a share in [0, 1]")
