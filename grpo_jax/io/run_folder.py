"""The folder of one run: who holds it, which config made it, and what it was started with."""

import datetime
import fcntl
import fnmatch
import importlib.metadata
import json
import os
import platform
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import jax

import grpo_jax
from grpo_jax.config import dotted
from grpo_jax.io import storage
from grpo_jax.io.revision import git_state

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
ABSENT = "(absent)"
"""Stands for the value of a key that a configuration lacks."""


class RunFolderInUse(RuntimeError):  # noqa: N818
    """Another process writes to this folder."""

    exit_status = 5


class RunFolderDamaged(ValueError):  # noqa: N818
    """A record of the folder cannot be read."""

    exit_status = 3


_RESTORE = "Restore it from a copy, or choose another folder to start a new run."


class ConfigChanged(ValueError):  # noqa: N818
    """The folder was made with another config.

    Attributes:
        changes: ``(in the folder, now)`` by dotted key.
    """

    exit_status = 6

    def __init__(self, folder: Path, changes: Mapping[str, tuple[Any, Any]]) -> None:
        """Builds the message from the differing keys."""
        self.changes = dict(changes)
        lines = [f"  config.{key}: {old!r} in the folder, {new!r} now" for key, (old, new) in self.changes.items()]
        remedy = "Put the old values back to go on, or choose another folder to start a new run."
        super().__init__("\n".join([f"{folder} was made with another config:", *lines, remedy]))


class RunFolder:
    """A run's folder, held by this process alone until ``close``, or by the first one of its run.

    Attributes:
        path: The folder.
        resumed: Whether an earlier run left its config here.
        changes: ``(before, now)`` by dotted key, for keys that may change and did.
    """

    def __init__(
        self, path: Path, lock: BinaryIO | None, resumed: bool, changes: Mapping[str, tuple[Any, Any]]
    ) -> None:
        """Use ``RunFolder.open``, or ``RunFolder.of_first_process``."""
        self.path = path
        self.resumed = resumed
        self.changes = dict(changes)
        self._lock = lock

    @classmethod
    def open(
        cls,
        path: Path,
        config: Mapping[str, Any],
        *,
        overrides: Mapping[str, Any],
        resume_allowed: bool = True,
        may_change: Sequence[str] = (),
    ) -> "RunFolder":
        """Makes or re-opens a run's folder, takes its lock, and writes ``config.json`` and ``run.json``.

        In a run of several processes only the first one calls this, the others ``of_first_process``.

        Args:
            path: The folder; it and its parents are made if need be.
            config: The resolved config as nested plain values.
            overrides: The keys that the command line changed, with their values.
            resume_allowed: Whether a folder with a config in it may be used again.
            may_change: Dotted keys that may differ from the folder's config, with ``*`` as in file names.

        Returns:
            The open folder.

        Raises:
            RunFolderInUse: if another process holds the lock; says which.
            ConfigChanged: if the folder's config differs in other keys than ``may_change``.
            FileExistsError: if the folder holds a run and ``resume_allowed`` is False.
            FolderRefused: if it cannot be made.
            StorageFailed: if the system refuses to write there.
        """
        path = Path(path)
        storage.make_folder(path, "--workdir")
        with storage.writing(path):
            lock = _take_lock(path)
        try:
            config_path = path / "config.json"
            resumed = config_path.exists()
            if resumed and not resume_allowed:
                raise FileExistsError(f"{path} holds a run already. Choose another folder, or allow to resume it.")
            changes = differences(read_json(config_path), _plain(config)) if resumed else {}
            forbidden = {key: pair for key, pair in changes.items() if not _matches(key, may_change)}
            if forbidden:
                raise ConfigChanged(path, forbidden)
            write_json(config_path, config)
            _record_start(path / "run.json", overrides, changes)
        except BaseException:
            lock.close()
            raise
        return cls(path, lock, resumed, changes)

    @classmethod
    def of_first_process(cls, path: Path) -> "RunFolder":
        """The folder as the other processes of a run see it: they write nothing to it but their parts of checkpoints.

        Args:
            path: The folder, which the first process has opened.

        Raises:
            FileNotFoundError: if this process sees another folder under this name, or none.
        """
        if not (path / "run.json").exists():
            raise FileNotFoundError(
                f"--workdir: {path} holds no run.json on host {socket.gethostname()}, though the first process wrote "
                "it. All processes need one folder: choose a file system that they share."
            )
        return cls(path, None, False, {})

    @property
    def metrics(self) -> Path:
        """Metrics, one JSON row a line."""
        return self.path / "metrics.jsonl"

    @property
    def samples(self) -> Path:
        """Sampled completions, one JSON row a line."""
        return self.path / "samples.jsonl"

    @property
    def summary(self) -> Path:
        """The run's final numbers."""
        return self.path / "summary.json"

    @property
    def curves(self) -> Path:
        """The picture of the run's metrics."""
        return self.path / "curves.png"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    def close(self) -> None:
        """Gives the folder back."""
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file in one atomic step: a reader sees the old file or the new one.

    Args:
        path: The file, replaced if it exists.
        value: JSON values; tuples become lists.

    Raises:
        ValueError: for a number that is not finite.
        TypeError: for a value that JSON does not know.
        StorageFailed: if the system refuses to write.
    """
    storage.replace_text(Path(path), json.dumps(value, indent=2, allow_nan=False) + "\n")


def _take_lock(path: Path) -> BinaryIO:
    file = (path / "run.lock").open("a+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        holder = file.read().decode() or "a process that has not written its name yet"
        file.close()
        raise RunFolderInUse(
            f"{path} is in use by {holder}. Wait for it, stop it, or choose another folder."
        ) from error
    # The file stays when the lock goes: removing it would let two processes lock two files of one name.
    file.truncate(0)
    file.write(f"process {os.getpid()} on host {socket.gethostname()}".encode())
    file.flush()
    return file


def _record_start(path: Path, overrides: Mapping[str, Any], changes: Mapping[str, tuple[Any, Any]]) -> None:
    starts = read_starts(path) if path.exists() else []
    device = jax.devices()[0]
    versions = {"python": platform.python_version(), "grpo-jax": grpo_jax.__version__}
    versions |= {name: importlib.metadata.version(name) for name in _PACKAGES}
    start = {
        "time": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "argv": list(sys.argv),
        "overrides": dict(overrides),
        "changes": {key: {"before": old, "now": new} for key, (old, new) in changes.items()},
        "git": git_state(),
        "versions": versions,
        "host": socket.gethostname(),
        "system": platform.platform(),
        "device": {"platform": device.platform, "kind": device.device_kind, "count": jax.device_count()},
        "processes": jax.process_count(),
    }
    write_json(path, {"starts": [*starts, start]})


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON file of a run folder.

    Args:
        path: The file.

    Returns:
        Its values.

    Raises:
        RunFolderDamaged: if it is no JSON object.
    """
    try:
        values = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise RunFolderDamaged(f"{path} is no JSON ({error}). {_RESTORE}") from error
    if not isinstance(values, dict):
        raise RunFolderDamaged(f"{path} holds no JSON object. {_RESTORE}")
    return values


def read_starts(path: Path) -> list[dict[str, Any]]:
    """Reads what each start of a run recorded of itself.

    Args:
        path: ``run.json``.

    Returns:
        One object for each start, the oldest first.

    Raises:
        RunFolderDamaged: if the file holds no such list.
    """
    starts = read_json(path).get("starts")
    if not isinstance(starts, list) or not all(isinstance(start, dict) for start in starts):
        raise RunFolderDamaged(f"{path} holds no list of starts. {_RESTORE}")
    return starts


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(config, allow_nan=False))


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Compares two configurations.

    Args:
        old: Nested values, as JSON has them.
        new: Other ones.

    Returns:
        ``(old, new)`` by dotted key, of the keys that differ.
    """
    before, now = dotted(old), dotted(new)
    keys = [*now, *(key for key in before if key not in now)]
    pairs = {key: (before.get(key, ABSENT), now.get(key, ABSENT)) for key in keys}
    return {key: (a, b) for key, (a, b) in pairs.items() if a != b}


def _matches(key: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)
