"""The worker's handle of a zygote: start, handing over a job, end."""

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

from grpo_jax.verifiers import messages
from grpo_jax.verifiers.sandbox import system
from grpo_jax.verifiers.sandbox.bubblewrap import python_command
from grpo_jax.verifiers.sandbox.contracts import Level

_PACKAGE_ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))


class ZygoteError(Exception):
    """The zygote cannot start, or is gone."""


class Zygote:
    """The process that forks jobs."""

    def __init__(self, level: Level, programs: Sequence[str], read_paths: Sequence[str], start_seconds: float) -> None:
        """Starts it and waits until it is ready.

        Args:
            level: How it confines its jobs.
            programs: Modules with a ``main`` that jobs may run.
            read_paths: Absolute paths that external programs need.
            start_seconds: Wall time for its start.

        Raises:
            ZygoteError: if it cannot work at this level here.
        """
        if level != Level.LIMITS and not system.IS_LINUX:
            raise ZygoteError("confinement needs Linux")
        self._control, control = socket.socketpair()
        settings = {
            "level": level,
            "control": control.fileno(),
            "programs": list(programs),
            "read_paths": list(read_paths),
            "temporary": tempfile.gettempdir(),
            "package_root": _PACKAGE_ROOT,
        }
        try:
            self._process = subprocess.Popen(
                python_command("zygote", _PACKAGE_ROOT, json.dumps(settings)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[control.fileno()],
                cwd="/",
                # A fixed hash seed: a program that depends on the order of a set gets the same verdict every time.
                env={"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"},
                start_new_session=True,
            )
        except OSError as error:
            self._control.close()
            raise ZygoteError(f"the zygote cannot start: {error}") from error
        finally:
            control.close()
        self._control.settimeout(start_seconds)
        try:
            ready = _receive(self._control)
        except (OSError, ValueError) as error:
            self.kill()
            raise ZygoteError(f"the zygote cannot start: {error}") from error
        if ready != {"ready": True}:
            self.kill()
            failure = ready.get("failure") if ready else f"it ended with exit code {self._process.returncode}"
            raise ZygoteError(str(failure))

    def launch(self, descriptors: Sequence[int]) -> None:
        """Hands a job's descriptors to a fork.

        Raises:
            ZygoteError: if the zygote is gone.
        """
        try:
            socket.send_fds(self._control, [b"j"], descriptors)
        except OSError as error:
            raise ZygoteError(f"the zygote is gone: {error}") from error

    def kill(self) -> None:
        """Ends the zygote. Jobs end with their own leases."""
        self._control.close()
        self._process.kill()
        self._process.wait()


def _receive(channel: socket.socket) -> dict[str, Any] | None:
    """Reads one frame from a socket with a timeout for each read."""
    with channel.makefile("rb") as file:
        header = file.read(messages.HEADER_BYTES)
        if len(header) < messages.HEADER_BYTES:
            return None
        return json.loads(file.read(messages.body_bytes(header)))
