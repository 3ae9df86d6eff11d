"""Metrics in TensorBoard, Weights & Biases and trackio. ``metrics.jsonl`` stays the record; these follow it.

What a tracker was given is kept in the run folder as the last step of each kind of row, written before the row is
sent. So a run that is stopped, killed or taken up again gives a tracker no row twice, and what it missed, because it
was chosen later or could not be reached, it gets at the next start.
"""

import dataclasses
import importlib
import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from grpo_jax.config import ConfigError
from grpo_jax.io.run_folder import RunFolder, write_json

PROJECT = "grpo-jax"
"""Name under which runs are gathered; WANDB_PROJECT and TRACKIO_PROJECT go before it."""


@runtime_checkable
class Tracker(Protocol):
    """A place where metrics go."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Takes the numbers of one row."""
        ...

    def close(self) -> None:
        """Sends what is left."""
        ...


@dataclasses.dataclass(frozen=True)
class About:
    """What a tracker is told of the run.

    Attributes:
        folder: The run folder.
        identifier: The same over all starts of the run.
        config: The resolved configuration.
    """

    folder: Path
    identifier: str
    config: Mapping[str, Any]


class TensorBoard:
    """Event files in the run folder's ``tensorboard``."""

    def __init__(self, about: About) -> None:
        """Opens a further event file."""
        module: Any = _package("tensorboardX", "tensorboard")
        # The file's own name counts seconds: a start within the same second would write over the one before.
        suffix = f".{secrets.token_hex(4)}"
        self._writer = module.SummaryWriter(logdir=str(about.folder / "tensorboard"), filename_suffix=suffix)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Takes the numbers of one row."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, global_step=step)

    def close(self) -> None:
        """Writes what is left."""
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases, online or as WANDB_MODE says."""

    def __init__(self, about: About) -> None:
        """Starts the run or goes on with it."""
        module: Any = _package("wandb", "wandb")
        self._run = module.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=about.folder.name,
            id=about.identifier,
            resume="allow",
            config=dict(about.config),
            dir=str(about.folder),
        )
        # Its own step counts calls and may never fall; evaluations and phases have steps of their own.
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Takes the numbers of one row."""
        self._run.log({**values, "step": step})

    def close(self) -> None:
        """Sends what is left."""
        self._run.finish()


class Trackio:
    """A run of trackio, kept on this machine in TRACKIO_DIR."""

    def __init__(self, about: About) -> None:
        """Starts the run or goes on with it."""
        module: Any = _package("trackio", "trackio")
        self._run = module.init(
            project=os.environ.get("TRACKIO_PROJECT", PROJECT),
            name=f"{about.folder.name}-{about.identifier}",
            resume="allow",
            config=json.loads(json.dumps(about.config)),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Takes the numbers of one row."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Sends what is left."""
        self._run.finish()


TRACKERS: dict[str, Callable[[About], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "trackio": Trackio,
}


class Follower:
    """Gives a tracker every row once."""

    def __init__(self, name: str, path: Path, note: Callable[[str], None]) -> None:
        """Reads what was given before.

        Args:
            name: The tracker's.
            path: JSON file with what was given.
            note: Shows a line to the user.
        """
        self._name, self._path, self._note = name, path, note
        known = json.loads(path.read_text()) if path.exists() else {"identifier": secrets.token_hex(4), "given": {}}
        self.identifier: str = known["identifier"]
        self._given: dict[str, int] = known["given"]
        self._tracker: Tracker | None = None

    def start(self, tracker: Tracker, rows: Sequence[Mapping[str, Any]]) -> None:
        """Begins to follow.

        Args:
            tracker: Where rows go.
            rows: What there is already; what the tracker lacks of it is given now.
        """
        self._tracker = tracker
        write_json(self._path, {"identifier": self.identifier, "given": self._given})
        for row in rows:
            self.send(row)

    def send(self, row: Mapping[str, Any]) -> None:
        """Gives a row on unless the tracker has one of its kind and step, or a later one.

        A tracker that fails is left out until the next start, with a word to the user: it must not end the training.

        Args:
            row: A row of metrics with its kind and step.
        """
        kind, step = f"{row['kind']}/{row.get('split', '')}".rstrip("/"), row["step"]
        if self._tracker is None or step <= self._given.get(kind, -1):
            return
        self._given[kind] = step
        write_json(self._path, {"identifier": self.identifier, "given": self._given})
        self._guarded(lambda tracker: tracker.log(step, numbers(row)))

    def close(self) -> None:
        """Ends following."""
        self._guarded(lambda tracker: tracker.close())
        self._tracker = None

    def _guarded(self, call: Callable[[Tracker], None]) -> None:
        if self._tracker is None:
            return
        try:
            call(self._tracker)
        except Exception as error:
            self._tracker = None
            self._note(
                f"tracker {self._name} failed and gets nothing more of this start ({type(error).__name__}: {error}); "
                "metrics.jsonl has everything, and the next start gives it what it lacks"
            )


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row under the names that trackers get.

    Args:
        row: A row of metrics.

    Returns:
        Numbers by name. Those of the test split and of the cold start have its name in front.
    """
    prefix = "cold_start/" if row["kind"] == "cold_start" else "test/" if row.get("split") == "test" else ""
    return {
        f"{prefix}{name}": float(value)
        for name, value in row.items()
        if isinstance(value, int | float) and name not in ("row", "step")
    }


def check_installed(names: Sequence[str]) -> None:
    """Makes sure that the packages are there before a run begins.

    Args:
        names: The configuration's ``trackers``.

    Raises:
        ConfigError: with the command that installs what is missing.
    """
    for name in names:
        _package("tensorboardX" if name == "tensorboard" else name, name)


def follow(
    names: Sequence[str],
    folder: RunFolder,
    config: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    note: Callable[[str], None],
) -> list[Follower]:
    """Starts the chosen trackers.

    Args:
        names: The configuration's ``trackers``.
        folder: The run's.
        config: The resolved configuration.
        rows: What the metrics file holds.
        note: Shows a line to the user.

    Returns:
        One follower each.
    """
    followers = []
    for name in names:
        follower = Follower(name, folder.path / f"tracker-{name}.json", note)
        follower.start(TRACKERS[name](About(folder.path, follower.identifier, config)), rows)
        followers.append(follower)
    return followers


def _package(module: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"config.trackers: got {name!r}, whose package {module} is not installed. Run: pip install {module}"
        ) from error
