"""Workers of the verifier pool on a Ray cluster: an actor holds a worker process wherever Ray finds room.

The pool itself stays here and treats such a worker like any other: one job at a time, a deadline, one retry, a fresh
worker in the place of one that hung or died.
"""

import contextlib
import importlib
from typing import Any

from grpo_jax.verifiers.base import UnusableVerifierError
from grpo_jax.verifiers.keeper import Keeper
from grpo_jax.verifiers.process import WorkerDiedError, WorkerProcess

CALL_GRACE_SECONDS = 30.0
"""What a call to an actor may take over its job's deadline before the actor itself counts as dead."""


class _Host:
    """What runs in the actor: one worker process with a keeper that ends it, and its children, with the actor."""

    def __init__(self) -> None:
        self._keeper = Keeper()
        self._worker = WorkerProcess(self._keeper)

    def exchange(self, frame: bytes, limit_seconds: float) -> tuple[str, Any]:
        """A reply, or what went wrong as plain values: Ray would wrap the exception."""
        try:
            return "reply", self._worker.exchange(frame, limit_seconds)
        except TimeoutError as error:
            return "timeout", str(error)
        except WorkerDiedError as error:
            return "died", str(error)
        except ValueError as error:
            return "protocol", str(error)

    def kill(self) -> tuple[int, str]:
        """The worker's exit code and last words."""
        exit_code = self._worker.kill()
        self._keeper.close()
        return exit_code, self._worker.stderr_tail()


class RayWorker:
    """A worker in an actor of its own, which takes one CPU of the cluster."""

    def __init__(self, keeper: Keeper) -> None:
        """Asks Ray for an actor; it may wait for room in the cluster until the first exchange.

        Args:
            keeper: Not used: Ray ends the actors of a driver that is gone, and each has a keeper of its own.
        """
        del keeper
        self._ray = _ray()
        # The pool restarts workers itself, and a job that killed its actor must not be repeated behind its back.
        self._actor: Any = self._ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(_Host).remote()
        self._stderr_tail = ""

    def exchange(self, frame: bytes, limit_seconds: float) -> Any:
        """As ``WorkerProcess.exchange``; an actor that is gone or does not answer counts as a worker that died."""
        call = self._actor.exchange.remote(frame, limit_seconds)
        try:
            kind, value = self._ray.get(call, timeout=limit_seconds + CALL_GRACE_SECONDS)
        except self._ray.exceptions.RayError as error:
            raise WorkerDiedError(f"its actor is gone: {type(error).__name__}") from error
        if kind == "reply":
            return value
        raise {"timeout": TimeoutError, "died": WorkerDiedError, "protocol": ValueError}[kind](value)

    def kill(self) -> int:
        """Ends the worker's processes, then the actor.

        Returns:
            The worker's exit code, or minus 1 where the actor was gone before.
        """
        exit_code = -1
        with contextlib.suppress(self._ray.exceptions.RayError):
            exit_code, self._stderr_tail = self._ray.get(self._actor.kill.remote(), timeout=CALL_GRACE_SECONDS)
        self._ray.kill(self._actor)
        return exit_code

    def stderr_tail(self) -> str:
        """The last lines that the worker wrote to standard error, once it was killed."""
        return self._stderr_tail


def connect() -> None:
    """Connects to the cluster that ``RAY_ADDRESS`` names, or starts Ray on this machine.

    Raises:
        UnusableVerifierError: if Ray is not installed.
    """
    ray = _ray()
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)


def _ray() -> Any:
    # By name, so that neither types nor imports of this package depend on an extra.
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UnusableVerifierError(
            "config.verifier.pool: got 'ray', but Ray is not installed. Run pip install 'grpo-jax[ray]', or set "
            "verifier.pool to 'local'."
        ) from error
