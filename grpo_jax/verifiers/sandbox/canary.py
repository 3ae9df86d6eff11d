"""A program that tries what the sandbox must refuse, and says what it could do: the level is chosen by this."""

import importlib
import json
import mmap
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from grpo_jax.verifiers.sandbox import confine
from grpo_jax.verifiers.sandbox.contracts import Level, Limits

LIMITS = Limits(wall_seconds=10.0, memory_bytes=256 * 2**20, file_bytes=2**20, processes=4)
_FORKS = LIMITS.processes + 16

_ALWAYS = {"write scratch": True, "import a module": True, "write a large file": False}
_WANTED: Mapping[str, bool] = {
    **_ALWAYS,
    "allocate past the limit": False,
    "fork past the limit": False,
    "read outside": False,
    "write outside": False,
    "see or signal the judge": False,
    "open a UDP socket": False,
    "open a unix socket": False,
    "send datagrams by path": False,
    "change a mode outside": False,
    "change times outside": False,
    "change attributes outside": False,
    "inherit descriptors": False,
}


def wanted(level: Level) -> Mapping[str, bool]:
    """What must hold at a level: whether the program can do each thing."""
    return _ALWAYS if level == Level.LIMITS else _WANTED


def request(folder: str) -> dict[str, Any]:
    """Makes what the program must not reach.

    Args:
        folder: A folder outside the sandbox.

    Returns:
        What to send to the program.
    """
    secret = os.path.join(folder, "secret")
    with open(secret, "w", encoding="ascii") as file:
        file.write("secret")
    os.chmod(folder, 0o777)
    os.chmod(secret, 0o666)
    return {"secret": secret, "written": os.path.join(folder, "written"), "judge": os.getpid()}


def main() -> int:
    """Tries everything that the request names and replies with what worked."""
    with open(confine.REQUESTS, encoding="ascii") as requests:
        asked = json.loads(requests.readline())
    attempts: dict[str, Callable[[], object]] = {
        "write scratch": _write_scratch,
        # It is in the standard library and nothing has imported it yet.
        "import a module": lambda: importlib.import_module("wave"),
        "write a large file": _write_large_file,
        "allocate past the limit": lambda: mmap.mmap(-1, LIMITS.memory_bytes + 1),
        "fork past the limit": _fork_past_limit,
        "read outside": lambda: open(asked["secret"], encoding="ascii").close(),
        "write outside": lambda: open(asked["written"], "w", encoding="ascii").close(),
        "see or signal the judge": lambda: _reach(asked["judge"]),
        "open a UDP socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "open a unix socket": lambda: socket.socket(socket.AF_UNIX),
        "send datagrams by path": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM),
        # It belongs to whoever made the sandbox, and so to this program too where that is no root.
        "change a mode outside": lambda: os.chmod(asked["secret"], 0o600),
        "change times outside": lambda: os.utime(asked["secret"]),
        "change attributes outside": lambda: _set_attribute(asked["secret"]),
        "inherit descriptors": _find_descriptor,
    }
    done = {name: _works(attempt) for name, attempt in attempts.items()}
    with open(confine.REPLIES, "w", encoding="ascii") as replies:
        replies.write(json.dumps(done) + "\n")
    return 0


def _works(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (OSError, MemoryError, ImportError):
        return False
    return True


def _write_scratch() -> None:
    with open("canary", "w", encoding="ascii") as file:
        file.write("x")


def _write_large_file() -> None:
    # Python ignores the signal that would end it, and gets an error instead.
    with open("large", "wb") as file:
        file.write(bytes(LIMITS.file_bytes + 1))


def _fork_past_limit() -> None:
    for _ in range(_FORKS):
        if os.fork() == 0:
            time.sleep(LIMITS.wall_seconds)
            os._exit(0)


def _reach(process: int) -> None:
    os.kill(process, 0)


def _set_attribute(path: str) -> None:
    if sys.platform != "linux":
        raise OSError("no call for it")
    os.setxattr(path, "user.canary", b"x")


def _find_descriptor() -> None:
    for descriptor in range(confine.REPLIES + 1, 64):
        try:
            os.fstat(descriptor)
        except OSError:
            continue
        return
    raise OSError("no further descriptor")
