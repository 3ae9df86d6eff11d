"""The pool's handle of one worker process: start, one exchange under a deadline, kill."""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from typing import IO, Any, Protocol, runtime_checkable

from grpo_jax.verifiers import messages
from grpo_jax.verifiers.keeper import Keeper, kill_group

_READ_BYTES = 65_536
_STDERR_TAIL_BYTES = 4_096


class WorkerDiedError(Exception):
    """The worker is gone: its output ended."""


@runtime_checkable
class Worker(Protocol):
    """A place where a verifier runs, near or far, that can be ended whatever it does."""

    def exchange(self, frame: bytes, limit_seconds: float) -> Any:
        """Sends one frame and returns the decoded reply; see ``WorkerProcess`` for what it raises."""
        ...

    def kill(self) -> int:
        """Ends it with everything that it started; returns its exit code."""
        ...

    def stderr_tail(self) -> str:
        """The last lines that it wrote to standard error."""
        ...


class WorkerProcess:
    """One fresh interpreter in a session of its own.

    It is never a fork of this process, which may hold locks of JAX's threads. All pipes are
    non-blocking on this side, so that a stuck worker cannot hold up the caller beyond its deadline.
    """

    def __init__(self, keeper: Keeper) -> None:
        """Starts the interpreter with this process's import path.

        Args:
            keeper: Ends the worker's process group should this process be killed.

        Raises:
            OSError: if the system cannot start a process.
        """
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._process = subprocess.Popen(
            # -P: the path above is complete; -u: prints reach standard error at once.
            [sys.executable, "-P", "-u", "-m", "grpo_jax.verifiers.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        self._keeper = keeper
        keeper.add(self._process.pid)
        self._stdin, self._stdout, self._stderr = (_pipe(self._process, name) for name in ("stdin", "stdout", "stderr"))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)
        self._selector.register(self._stderr, selectors.EVENT_READ)
        self._stderr_tail = bytearray()

    def exchange(self, frame: bytes, limit_seconds: float) -> Any:
        """Sends one frame and waits for one reply.

        Args:
            frame: The encoded request.
            limit_seconds: Wall time for sending, working and receiving.

        Returns:
            The decoded reply.

        Raises:
            TimeoutError: if there is no whole reply in time.
            WorkerDiedError: if the worker's output ends.
            ValueError: if the worker breaks the protocol.
        """
        expires = time.monotonic() + limit_seconds
        unsent, received = memoryview(frame), bytearray()
        self._selector.register(self._stdin, selectors.EVENT_WRITE)
        while True:
            remaining_seconds = expires - time.monotonic()
            # One last look after the deadline: this thread may have been late, not the worker.
            for key, _ in self._selector.select(max(remaining_seconds, 0.0)):
                if key.fileobj is self._stdin:
                    unsent = self._write(unsent)
                elif key.fileobj is self._stderr:
                    self._read_stderr()
                else:
                    received += self._read_stdout()
            if _is_complete(received):
                return self._decode(received, unsent)
            if remaining_seconds <= 0:
                raise TimeoutError(f"no reply within {limit_seconds} s")

    def kill(self) -> int:
        """Kills the worker with all processes of its group; call it once, at the end.

        Returns:
            The exit code as ``subprocess`` gives it (minus the signal's number if killed).
        """
        # Nobody has waited for the worker, so its process id, and the group's, is still its own.
        kill_group(self._process.pid)
        self._keeper.remove(self._process.pid)
        exit_code = self._process.wait()
        self._read_stderr()
        self._selector.close()
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()
        return exit_code

    def stderr_tail(self) -> str:
        """The last lines that the worker wrote to standard error."""
        return self._stderr_tail.decode("utf-8", errors="replace").strip()

    def _write(self, unsent: memoryview) -> memoryview:
        try:
            unsent = unsent[os.write(self._stdin.fileno(), unsent) :]
        except BrokenPipeError:
            # The end of the worker's output says the same.
            unsent = unsent[:0]
        if not unsent:
            self._selector.unregister(self._stdin)
        return unsent

    def _read_stdout(self) -> bytes:
        chunk = os.read(self._stdout.fileno(), _READ_BYTES)
        if not chunk:
            raise WorkerDiedError("it died")
        return chunk

    def _read_stderr(self) -> None:
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(self._stderr.fileno(), _READ_BYTES)
            if not chunk and self._stderr in self._selector.get_map():
                self._selector.unregister(self._stderr)
            self._stderr_tail = (self._stderr_tail + chunk)[-_STDERR_TAIL_BYTES:]

    @staticmethod
    def _decode(received: bytearray, unsent: memoryview) -> Any:
        if unsent or len(received) != messages.HEADER_BYTES + messages.body_bytes(received):
            raise ValueError("more than one reply")
        try:
            return json.loads(received[messages.HEADER_BYTES :])
        except (ValueError, RecursionError) as error:
            raise ValueError("the reply is not JSON") from error


def _pipe(process: subprocess.Popen[bytes], name: str) -> IO[bytes]:
    pipe = getattr(process, name)
    os.set_blocking(pipe.fileno(), False)
    return pipe


def _is_complete(received: bytearray) -> bool:
    if len(received) < messages.HEADER_BYTES:
        return False
    size_bytes = messages.HEADER_BYTES + messages.body_bytes(received)
    if size_bytes > messages.MAX_REPLY_BYTES:
        raise ValueError(f"a reply of {size_bytes} bytes, wanted at most {messages.MAX_REPLY_BYTES}")
    return len(received) >= size_bytes
