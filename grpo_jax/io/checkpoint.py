"""Checkpoints that are checked when they are read, with a fall-back to the next older one.

A step is one folder that appears atomically. It holds the arrays and a record: the host's state, and
path, shape, dtype and digest of every leaf. Storage notices a short file but neither a flipped bit nor
a changed dtype; the record does.
"""

import hashlib
import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from grpo_jax.io import storage
from grpo_jax.io.digest import leaf_paths, tree_digests

try:
    from orbax.checkpoint import v1 as orbax  # pyright: ignore[reportAttributeAccessIssue]
except ImportError:
    from orbax.checkpoint.experimental import v1 as orbax

_logger = logging.getLogger(__name__)
_STATE = "state"


class NoUsableCheckpoint(RuntimeError):  # noqa: N818
    """There are checkpoints, but none of them can be trusted; starting afresh would hide the loss."""

    exit_status = 3


class CheckpointMismatch(ValueError):  # noqa: N818
    """A sound checkpoint holds other leaves, shapes or dtypes than the run asks for."""

    exit_status = 6


class Restored(NamedTuple):
    """One checkpoint as it was saved.

    Attributes:
        step: The step that it was saved under.
        state: Arrays in the structure and sharding that were asked for.
        host_state: The JSON values that were saved with them.
    """

    step: int
    state: Any
    host_state: dict[str, Any]


class _DamagedError(Exception):
    """This step cannot be used; the message says why."""


def _to_be_shown(record: logging.LogRecord) -> bool:
    """Leaves out the tracebacks by which Orbax's threads tell of a refusal to write: ``wait`` raises it."""
    return "orbax" not in record.pathname or record.exc_info is None or storage.code_of(record.exc_info[1]) is None


class Checkpoints:
    """The checkpoints of one run.

    Every process of a run makes one and calls it at the same steps. Errors of a save that goes on in
    the background are raised by the next ``save``, ``wait`` or ``close``.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        """Opens the folder, makes it if need be, and removes what a killed save left behind.

        Args:
            folder: Where the step folders lie; used by one run at a time.
            keep: How many of the newest steps stay on disk.
        """
        self._folder = Path(folder).absolute()
        self._saving = self._folder
        logging.getLogger("absl").addFilter(_to_be_shown)
        newest = orbax.training.preservation_policies.LatestN(keep)
        with storage.writing(self._folder):
            self._checkpointer = orbax.training.Checkpointer(
                str(self._folder),
                preservation_policy=newest,  # pyright: ignore[reportArgumentType]  # its own policy misses its protocol
                cleanup_tmp_directories=True,
            )

    def save(self, step: int, state: Any, host_state: dict[str, Any]) -> bool:
        """Starts to write one step; it exists for readers only once it is whole.

        Args:
            step: Steps done so far, over all phases of the run.
            state: Tree of arrays, which may be sharded.
            host_state: JSON values that belong to the same moment (random states, data position).

        Returns:
            False if this step is on disk already and was left as it is.

        Raises:
            ValueError: for a host state that JSON would change, or a leaf that cannot be digested.
            StorageFailed: if the system refused to write this step or the one before it; older steps are untouched.
            Exception: what else Orbax raised in the save before this one.
        """
        self.wait()
        latest = self._checkpointer.latest
        if latest is not None and latest.step == step:
            return False
        assert latest is None or latest.step < step, f"step {step} is older than the saved step {latest.step}"
        record = _encode_record(step, state, host_state)
        self._saving = self._folder / str(step)
        with storage.writing(self._saving):
            self._checkpointer.save_checkpointables_async(step, {_STATE: state}, force=True, custom_metadata=record)
        return True

    def restore(self, abstract_state: Any, *, set_aside: bool = True) -> Restored | None:
        """Reads the newest step that is whole, and renames newer ones that are not to ``N.corrupt``.

        Args:
            abstract_state: Tree of ``jax.ShapeDtypeStruct`` with shardings, on any mesh.
            set_aside: False for a reader, which renames nothing and takes no older step for the newest.

        Returns:
            The checkpoint, or None if nothing was ever saved.

        Raises:
            NoUsableCheckpoint: if there are steps but each is damaged, or for a reader the newest. Nothing is renamed
                then.
            CheckpointMismatch: if a sound step holds other leaves than ``abstract_state``.
        """
        damaged: dict[int, str] = {}
        for checkpoint in reversed(self._checkpointer.checkpoints):
            try:
                restored = self._load(checkpoint.step, abstract_state)
            except _DamagedError as error:
                damaged[checkpoint.step] = str(error)
                if not set_aside:
                    break
                _logger.warning("checkpoint %d in %s cannot be used: %s", checkpoint.step, self._folder, error)
                continue
            if damaged:
                self._quarantine(list(damaged))
                _logger.warning("going on from the older checkpoint %d", restored.step)
            return restored
        quarantined = sorted(path.name for path in self._folder.iterdir() if re.fullmatch(r"\d+\.corrupt", path.name))
        reasons = [f"step {step}: {reason}" for step, reason in damaged.items()]
        if reasons and not set_aside:
            raise NoUsableCheckpoint(
                f"{self._folder}: the newest checkpoint cannot be used ({reasons[0]}). Restore the folder from a copy, "
                "or let the run go on, which sets that checkpoint aside and starts from the one before it."
            )
        reasons += [f"{name}: set aside earlier" for name in quarantined]
        if reasons:
            raise NoUsableCheckpoint(
                f"{self._folder}: none of the checkpoints can be used ({'; '.join(reasons)}). "
                "Restore the folder from a copy, or start again in a new run folder."
            )
        return None

    def wait(self) -> None:
        """Blocks until the save that goes on is on disk, and raises its error if it failed."""
        try:
            with storage.writing(self._saving):
                self._checkpointer.wait()
        except BaseException:
            self._checkpointer.reload()  # Its list of steps counts the failed one, and no longer those it replaces.
            raise

    def close(self) -> None:
        """Waits for the save that goes on and frees what the checkpointer holds."""
        try:
            self.wait()
        finally:
            self._checkpointer.close()

    def _load(self, step: int, abstract_state: Any) -> Restored:
        record = _decode_record(self._checkpointer.checkpointables_metadata(step).custom_metadata, step)
        _require_same_leaves(step, record["leaves"], abstract_state)
        state, problem = None, ""
        try:
            state = self._checkpointer.load_checkpointables(step, {_STATE: abstract_state})[_STATE]
        except (MemoryError, PermissionError, jax.errors.JaxRuntimeError):
            raise  # The machine's fault: the checkpoint may be sound.
        except Exception as error:  # The kind depends on which file is damaged and how.
            problem = f"it cannot be read: {_root_cause(error)}"
        _raise_together(problem)
        digests = tree_digests(state)
        changed = [path for path, leaf in record["leaves"].items() if digests[path] != leaf["digest"]]
        if changed:
            raise _DamagedError(f"{len(changed)} of {len(digests)} arrays differ from what was saved: {_few(changed)}")
        return Restored(step, state, record["host_state"])

    def _quarantine(self, steps: list[int]) -> None:
        if jax.process_index() == 0:
            for step in steps:
                target = self._folder / f"{step}.corrupt"
                if target.exists():
                    shutil.rmtree(target)
                (self._folder / str(step)).rename(target)
                _logger.warning("renamed checkpoint %d to %s", step, target.name)
        multihost_utils.sync_global_devices("grpo_jax.checkpoint.quarantine")
        self._checkpointer.reload()


def _encode_record(step: int, state: Any, host_state: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(host_state, allow_nan=False)
    if json.loads(text) != host_state:
        raise ValueError(f"checkpoint {step}: JSON changes the host state; use lists for tuples and text for keys.")
    digests = tree_digests(state)
    leaves = {
        path: {"shape": list(leaf.shape), "dtype": str(leaf.dtype), "digest": digests[path]}
        for path, leaf in zip(leaf_paths(state), jax.tree.leaves(state), strict=True)
    }
    text = json.dumps({"step": step, "leaves": leaves, "host_state": host_state}, allow_nan=False)
    return {"record": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _decode_record(metadata: Any, step: int) -> dict[str, Any]:
    if not metadata or "record" not in metadata or "sha256" not in metadata:
        raise _DamagedError("its record of digests is missing")
    text = metadata["record"]
    if hashlib.sha256(text.encode()).hexdigest() != metadata["sha256"]:
        raise _DamagedError("its record of digests was changed after it was saved")
    record = json.loads(text)
    if record["step"] != step:
        raise _DamagedError(f"it was saved as step {record['step']}")
    return record


def _require_same_leaves(step: int, saved: dict[str, dict[str, Any]], abstract_state: Any) -> None:
    wanted = dict(zip(leaf_paths(abstract_state), jax.tree.leaves(abstract_state), strict=True))
    unplaced = [path for path, leaf in wanted.items() if leaf.sharding is None]
    assert not unplaced, f"no sharding in abstract_state for {_few(unplaced)}"
    problems = [f"{path} is only in the checkpoint" for path in saved.keys() - wanted.keys()]
    problems += [f"{path} is not in the checkpoint" for path in wanted.keys() - saved.keys()]
    for path in saved.keys() & wanted.keys():
        holds = f"{saved[path]['dtype']}{saved[path]['shape']}"
        asked = f"{wanted[path].dtype}{list(wanted[path].shape)}"
        if holds != asked:
            problems.append(f"{path} is {holds} in the checkpoint, the run wants {asked}")
    if problems:
        raise CheckpointMismatch(
            f"checkpoint {step} does not fit the run: {_few(sorted(problems))}. "
            "Use the config that it was saved with, or a new run folder."
        )


def _raise_together(problem: str) -> None:
    """Raises on every process if any process has a problem, so that none waits for the others."""
    if jax.process_count() > 1 and np.any(multihost_utils.process_allgather(np.array(bool(problem)))):
        problem = problem or "another process cannot read it"
    if problem:
        raise _DamagedError(problem)


def _root_cause(error: BaseException) -> str:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
