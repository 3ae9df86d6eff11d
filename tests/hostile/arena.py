"""Runs hostile programs through the code verifier and looks for what they left behind.

Run as ``python -m tests.hostile.arena LEVEL`` it tries all of them at one level and prints what went wrong as JSON: so
they can be tried as another user and with another interpreter.
"""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from grpo_jax.config.sandbox import CodeConfig, SandboxConfig
from grpo_jax.records import Completion, FinishReason, Problem, Verdict
from grpo_jax.verifiers.code.trial import PROGRAMS
from grpo_jax.verifiers.code.verifier import CodeVerifier
from grpo_jax.verifiers.sandbox.contracts import Level
from grpo_jax.verifiers.sandbox.sandbox import Sandbox
from tests.hostile.escapes import HOSTILE
from tests.hostile.programs import Hostile

SANDBOX = SandboxConfig(memory_mebibytes=256, file_mebibytes=4, processes=12, output_kibibytes=256)
CODE = CodeConfig(extraction="whole", case_seconds=0.7, total_seconds=1.4)


def settling(seconds: float = 1.0) -> Iterator[None]:
    """Comes again and again for some time."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        yield
        time.sleep(0.02)


class Arena:
    """A sandbox at one level, and things around it that hostile programs must not reach."""

    def __init__(self, level: Level, folder: pathlib.Path) -> None:
        """Opens the listeners and starts the sandbox, whose scratch folders lie in the folder."""
        self.scratch = folder / "scratch"
        outside = folder / "outside"
        for made in (self.scratch, outside):
            made.mkdir()
        (folder / "secret").write_text("secret")
        (folder / "owned").write_text("owned")
        self._listeners = [
            _listener(folder / "socket"),
            _listener(0),
            _listener(0, datagrams=True),
            _listener(folder / "postbox", datagrams=True),
        ]
        os.environ["GRPO_TEST_SECRET"] = "leaked"
        self._bystander = subprocess.Popen(["/bin/sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._names = {
            "SECRET": str(folder / "secret"),
            "OUTSIDE": str(outside),
            "ENVIRONMENT": "leaked",
            "OWNED": str(folder / "owned"),
            "POSTBOX": str(folder / "postbox"),
            "SOCKET": str(folder / "socket"),
            "TCP": str(self._listeners[1].getsockname()[1]),
            "UDP": str(self._listeners[2].getsockname()[1]),
            "JUDGE": str(self._bystander.pid),
            "UNIQUE": folder.name,
        }
        # The folder's name also marks the command line of the zygote, and so of every fork of it.
        try:
            with _temporary_folder(self.scratch):
                self.sandbox = Sandbox(SANDBOX, programs=PROGRAMS, levels=[level])
        except BaseException:
            self._bystander.kill()
            raise
        self.verifier = CodeVerifier(CODE, self.sandbox)
        # Jobs of the canary may still be ending: what stays are the processes that are seen all the time.
        self._zygotes = set.intersection(*(set(self._processes()) for _ in settling()))

    def text(self, hostile: Hostile) -> str:
        """The program with its capitals replaced."""
        text = hostile.text
        for name, value in self._names.items():
            text = text.replace(name, value)
        return text

    def judge(self, hostile: Hostile) -> Verdict:
        """The verdict on a program."""
        problem = Problem("hostile", "", "", {"tests": hostile.tests})
        return self.verifier(problem, Completion(self.text(hostile), 1, FinishReason.STOP))

    def faults(self, hostile: Hostile) -> list[str]:
        """Runs a program; returns what it achieved."""
        verdict = self.judge(hostile)
        found = [f"passed or broke the judge: {verdict}"] if verdict.correct or verdict.error else []
        return found + self.traces()

    def traces(self, patience_seconds: float = 15.0) -> list[str]:
        """What programs have left behind or reached."""
        gives_up = time.monotonic() + patience_seconds
        # A supervisor ends, and removes what its program piled up, after the verdict.
        while (found := self._left()) and time.monotonic() < gives_up:
            time.sleep(0.01)
        if any(map(_is_reached, self._listeners)):
            found.append("a connection")
        if self._bystander.poll() is not None:
            found.append("a killed process")
        return found

    def _left(self) -> list[str]:
        shared = [name for name in os.listdir("/dev/shm") if self._names["UNIQUE"] in name]
        files = [*os.listdir(self.scratch), *os.listdir(self._names["OUTSIDE"]), *shared]
        processes = set(self._processes()) - self._zygotes
        found = [f"processes {sorted(processes)}"] if processes else []
        return [*found, f"files {files}"] if files else found

    def close(self) -> None:
        """Ends the sandbox and what is around it."""
        self.sandbox.close()
        self._bystander.kill()
        self._bystander.wait()
        for listener in self._listeners:
            listener.close()
        del os.environ["GRPO_TEST_SECRET"]

    def _processes(self) -> list[int]:
        mark = str(self.scratch).encode()
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and mark in _command(name)]


@contextlib.contextmanager
def _temporary_folder(folder: pathlib.Path) -> Iterator[None]:
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


def _listener(place: pathlib.Path | int, datagrams: bool = False) -> socket.socket:
    family = socket.AF_INET if isinstance(place, int) else socket.AF_UNIX
    listener = socket.socket(family, socket.SOCK_DGRAM if datagrams else socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", place) if isinstance(place, int) else str(place))
    if not datagrams:
        listener.listen()
    listener.setblocking(False)
    return listener


def _is_reached(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_DGRAM:
            listener.recv(1)
        else:
            listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _command(process: str) -> bytes:
    try:
        return pathlib.Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def main() -> None:
    """Tries all programs at the level of the command line."""
    with tempfile.TemporaryDirectory(prefix="hostile-", ignore_cleanup_errors=True) as folder:
        # A job's own user must be able to reach its scratch folder, as it can in a usual temporary folder.
        os.chmod(folder, 0o755)
        arena = Arena(Level(sys.argv[1]), pathlib.Path(folder))
        try:
            faults = {name: arena.faults(hostile) for name, hostile in HOSTILE.items()}
        finally:
            arena.close()
    print(json.dumps({name: found for name, found in faults.items() if found}))


if __name__ == "__main__":
    main()
