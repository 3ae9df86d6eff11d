"""The worker's side of one job: its pipes, its deadline and its end."""

import base64
import contextlib
import dataclasses
import json
import os
import selectors
import socket
import time
from typing import Any

from grpo_jax.verifiers import messages
from grpo_jax.verifiers.sandbox.contracts import Execution, Limits, SandboxError, SandboxHungError
from grpo_jax.verifiers.sandbox.launcher import Zygote

END_SECONDS = 5.0
"""Patience with the kernel after everything of a job was killed."""
_READ_BYTES = 65_536
_STDIN, _STDOUT, _STDERR, _REQUESTS, _REPLIES = range(5)


class Job:
    """One program in the sandbox. Nothing that it does can hold up the caller beyond the deadline."""

    def __init__(self, zygote: Zygote, spec: dict[str, Any], limits: Limits, stdin: bytes) -> None:
        """Starts it.

        Args:
            zygote: Where it is forked.
            spec: What to run; with ``converses`` the standard streams are empty and there is a conversation instead.
            limits: What it may use.
            stdin: Its standard input.

        Raises:
            ZygoteError: if the zygote is gone.
        """
        self._limits = limits
        self._began = time.monotonic()
        self.deadline = self._began + limits.wall_seconds
        self._selector = selectors.DefaultSelector()
        self._outgoing: dict[int, memoryview] = {}
        self._incoming: dict[int, bytearray] = {}
        self._readable: set[int] = set()
        self._ours: dict[int, int] = {}
        self._truncated = False
        self._timed_out = False
        self._cancelled = False
        self._lease, lease = socket.socketpair()
        theirs = [lease.detach()]
        try:
            theirs += self._open_pipes(bool(spec["converses"]))
            zygote.launch(theirs)
        except BaseException:
            self._close()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._lease.setblocking(False)
        self._watch(self._lease.fileno())
        self._send(self._lease.fileno(), messages.encode({**spec, "limits": dataclasses.asdict(limits)}))
        if _STDIN in self._ours:
            self._send(self._ours[_STDIN], stdin)
            if not stdin:
                self._forget(self._ours[_STDIN])

    def finish(self) -> Execution:
        """Waits for the program's end or brings it about, and for the end of every process of it.

        Raises:
            SandboxError: if the sandbox failed.
        """
        try:
            while not self._is_gone():
                if not self._cancelled and (self._truncated or time.monotonic() >= self.deadline):
                    self._timed_out = not self._truncated
                    self.cancel()
                if not self._step(self.deadline) and self._cancelled:
                    raise SandboxHungError(
                        f"Sandbox: processes of a job are left {END_SECONDS} s after they were killed."
                    )
            for stream in (_STDOUT, _STDERR):
                self._drain(stream)
            return self._execution()
        finally:
            self._close()

    def cancel(self) -> None:
        """Ends the lease, so that everything of the job is killed; ``finish`` waits for that."""
        if not self._cancelled:
            self._cancelled = True
            self.deadline = time.monotonic() + END_SECONDS
            with contextlib.suppress(OSError):
                self._lease.shutdown(socket.SHUT_WR)

    def exchange(self, request: bytes, deadline: float) -> bytes | None:
        """Sends one line and waits for one.

        Args:
            request: The line, with its end.
            deadline: Monotonic time at which the wait ends.

        Returns:
            The reply without its end, or ``None`` if none comes: call ``finish``, which says why.
        """
        deadline = min(deadline, self.deadline)
        self._send(self._ours[_REQUESTS], request)
        replies = self._incoming[self._ours[_REPLIES]]
        while b"\n" not in replies:
            if self._truncated or self._is_gone() or self._ours[_REPLIES] not in self._readable:
                # It ended, or it will not answer. Its end is told in a moment; if not, it is brought about.
                self.deadline = min(self.deadline, time.monotonic() + 1.0)
                return None
            if not self._step(deadline):
                self._timed_out = True
                self.cancel()
                return None
        line, _, rest = bytes(replies).partition(b"\n")
        replies[:] = rest
        return line

    def _open_pipes(self, converses: bool) -> list[int]:
        theirs = []
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        wanted = {_REQUESTS: True, _REPLIES: False} if converses else {_STDIN: True, _STDOUT: False, _STDERR: False}
        for stream in range(_REPLIES + 1 if converses else _STDERR + 1):
            if stream not in wanted:
                theirs.append(os.dup(nothing))
                continue
            read_end, write_end = os.pipe()
            ours, other = (write_end, read_end) if wanted[stream] else (read_end, write_end)
            theirs.append(other)
            self._ours[stream] = ours
            os.set_blocking(ours, False)
            if not wanted[stream]:
                self._watch(ours)
        os.close(nothing)
        return theirs

    def _watch(self, descriptor: int) -> None:
        self._incoming[descriptor] = bytearray()
        self._readable.add(descriptor)
        self._selector.register(descriptor, selectors.EVENT_READ)

    def _send(self, descriptor: int, content: bytes) -> None:
        self._outgoing[descriptor] = memoryview(bytes(self._outgoing.get(descriptor, b"")) + content)
        self._wait_for(descriptor)

    def _wait_for(self, descriptor: int) -> None:
        """Lets the selector look for what is still to do with a descriptor."""
        events = selectors.EVENT_READ if descriptor in self._readable else 0
        events |= selectors.EVENT_WRITE if self._outgoing.get(descriptor) else 0
        registered = descriptor in self._selector.get_map()
        if registered and events:
            self._selector.modify(descriptor, events)
        elif events:
            self._selector.register(descriptor, events)
        elif registered:
            self._selector.unregister(descriptor)

    def _step(self, deadline: float) -> bool:
        """Moves what can be moved; returns whether the deadline is still to come."""
        remaining = deadline - time.monotonic()
        for key, events in self._selector.select(max(remaining, 0.0)):
            if events & selectors.EVENT_WRITE:
                self._write(key.fd)
            if events & selectors.EVENT_READ:
                self._read(key.fd)
        return remaining > 0

    def _write(self, descriptor: int) -> None:
        try:
            sent = os.write(descriptor, self._outgoing[descriptor][:_READ_BYTES])
            self._outgoing[descriptor] = self._outgoing[descriptor][sent:]
        except BlockingIOError:
            return
        except OSError:
            # The program reads no more, which is its right.
            self._outgoing[descriptor] = memoryview(b"")
        self._wait_for(descriptor)
        if not self._outgoing[descriptor] and descriptor == self._ours.get(_STDIN):
            self._forget(descriptor)

    def _read(self, descriptor: int) -> bool:
        """Reads a chunk; returns whether there may be more now."""
        try:
            chunk = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            self._readable.discard(descriptor)
            self._wait_for(descriptor)
            return False
        buffer = self._incoming[descriptor]
        buffer += chunk
        if descriptor != self._lease.fileno() and len(buffer) > self._limits.output_bytes:
            del buffer[self._limits.output_bytes :]
            self._truncated = True
        return True

    def _drain(self, stream: int) -> None:
        descriptor = self._ours.get(stream, -1)
        while descriptor in self._readable and self._read(descriptor):
            pass

    def _is_gone(self) -> bool:
        return self._lease.fileno() not in self._readable

    def _forget(self, descriptor: int) -> None:
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)
        self._ours = {stream: ours for stream, ours in self._ours.items() if ours != descriptor}
        os.close(descriptor)

    def _execution(self) -> Execution:
        report = _frame(self._incoming[self._lease.fileno()])
        if report is None and not self._cancelled:
            raise SandboxHungError("Sandbox: a job's supervisor ended without a report.")
        report = report or {"exit_code": None, "out_of_memory": False, "files": {}}
        if report.get("failure"):
            raise SandboxError(f"Sandbox: a job cannot start: {report['failure']}")
        stdout, stderr = (bytes(self._incoming.get(self._ours.get(name, -1), b"")) for name in (_STDOUT, _STDERR))
        return Execution(
            # An end that the sandbox brought about is no exit of the program, even if both met.
            exit_code=None if self._cancelled else report["exit_code"],
            stdout=stdout,
            stderr=stderr,
            timed_out=self._timed_out,
            output_truncated=self._truncated,
            out_of_memory=report["out_of_memory"],
            seconds=time.monotonic() - self._began,
            files={name: base64.b64decode(content) for name, content in report["files"].items()},
        )

    def _close(self) -> None:
        self._selector.close()
        self._lease.close()
        for descriptor in self._ours.values():
            os.close(descriptor)
        self._ours = {}


def _frame(received: bytearray) -> dict[str, Any] | None:
    if len(received) < messages.HEADER_BYTES:
        return None
    body = received[messages.HEADER_BYTES :]
    return json.loads(body) if len(body) == messages.body_bytes(received) else None
