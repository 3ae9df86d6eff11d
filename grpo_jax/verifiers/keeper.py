"""A small process that kills what this one leaves behind, should it be killed itself."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

_PROGRAM = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
"""


class Keeper:
    """Knows process groups; the moment this process is gone, however it went, it kills them.

    A signal that the kernel sends at a parent's death reaches the child alone. What the child started would live on.
    """

    def __init__(self) -> None:
        """Starts the keeping process.

        Raises:
            OSError: if the system cannot start a process.
        """
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._process = self._started()

    def add(self, group: int) -> None:
        """Takes a process group into care."""
        with self._lock:
            self._groups.add(group)
            self._tell(f"+{group}\n")

    def remove(self, group: int) -> None:
        """Lets go of a group; call it before its leader is waited for, while the number cannot be another's."""
        with self._lock:
            self._groups.discard(group)
            self._tell(f"-{group}\n")

    def close(self) -> None:
        """Ends the keeping process, and with it the groups that are still in its care."""
        with self._lock:
            self._end(self._process)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), line.encode())
        except BrokenPipeError:
            # Somebody killed it. The set has the line's effect already.
            self._end(self._process)
            self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            # Ctrl-C in a terminal reaches a whole group; this one has to outlive it.
            start_new_session=True,
        )
        assert process.stdin is not None
        os.write(process.stdin.fileno(), "".join(f"+{group}\n" for group in self._groups).encode())
        return process

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()


def kill_group(group: int) -> None:
    """Kills a process group that may be gone already; macOS answers EPERM for one of zombies."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
