"""The last steps of a process before it becomes the program: streams, limits, user and confinement."""

import dataclasses
import gc
import math
import os
import random
import resource
import signal
import sys

from grpo_jax.verifiers.sandbox import landlock, seccomp, system
from grpo_jax.verifiers.sandbox.contracts import Level, Limits

OPEN_FILES = 128
"""Descriptors that a program may hold."""
HIGHEST_DESCRIPTOR = 1024
"""No descriptor of a zygote or a job is as high."""
REQUESTS, REPLIES = 3, 4
"""Descriptors of a conversation in a program that has one."""
_TOUCHED_SIGNALS = (signal.SIGCHLD, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)
_FIRST_PRIVATE_USER, _FIRST_USUAL_USER, _USUAL_USERS = 0x6000_0000, 61_000, 4_000


@dataclasses.dataclass(frozen=True)
class Confinement:
    """How one program is confined.

    Attributes:
        level: The sandbox's level.
        scratch: Folder that it starts in and may write to.
        grants: What Landlock lets it open, as (path, rights).
        limits: What it may use.
        user: User and group id to change to, or ``None`` to stay.
        other_processes: Processes and threads that count towards the user's limit but are not the program's.
    """

    level: Level
    scratch: str
    grants: tuple[tuple[str, int], ...]
    limits: Limits
    user: int | None
    other_processes: int


def job_user(process_id: int) -> int | None:
    """A user id for one job alone, so that no other job shares its process limit or gets its signals.

    Args:
        process_id: The supervisor's process id, which no other process has now.

    Returns:
        The id, or ``None`` if this process is not root or has no other id to change to.
    """
    if os.geteuid() != 0:
        return None
    maps = system.identity_maps() if system.IS_LINUX else [(0, 2**32 - 1)]
    if any(first <= _FIRST_PRIVATE_USER and first + count >= 2**32 - 1 for first, count in maps):
        return _FIRST_PRIVATE_USER + process_id
    # A container with a part of the ids: two jobs may meet on one id, and then share a process limit.
    if any(first <= _FIRST_USUAL_USER and first + count >= _FIRST_USUAL_USER + _USUAL_USERS for first, count in maps):
        return _FIRST_USUAL_USER + process_id % _USUAL_USERS
    return None


def change_user(user: int) -> None:
    """Becomes an ordinary user, for good."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def tasks_of_user(user: int) -> int:
    """Counts a user's processes and threads, as the kernel's process limit does."""
    tasks = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}").st_uid == user:
                tasks += len(os.listdir(f"/proc/{name}/task"))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return tasks


def arrange_descriptors(streams: list[int], kept: int) -> int:
    """Moves the streams to 0, 1, 2 and so on, one more descriptor behind them, and closes all others.

    Args:
        streams: Descriptors to move, in their new order.
        kept: One further descriptor; a new program does not inherit it.

    Returns:
        The new number of ``kept``.
    """
    count = len(streams) + 1
    highest = max(*streams, kept, count)
    for place, descriptor in enumerate([*streams, kept]):
        os.dup2(descriptor, highest + 1 + place)
    for place in range(count):
        os.dup2(highest + 1 + place, place, inheritable=place < len(streams))
    os.closerange(count, HIGHEST_DESCRIPTOR)
    return count - 1


def reset_signals() -> None:
    """Undoes what Python and this package have done to signals, for a program that takes this process over."""
    for number in _TOUCHED_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def reset_interpreter(environment: dict[str, str]) -> None:
    """Makes this interpreter like a fresh one: signals, streams, environment, garbage collection and random seed.

    Args:
        environment: The variables.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, descriptor, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        errors = "backslashreplace" if name == "stderr" else "surrogateescape"
        stream = open(descriptor, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.environ.clear()
    os.environ.update(environment)
    random.seed(0)
    gc.enable()


def confine(confinement: Confinement) -> None:
    """Confines this process, for good.

    Args:
        confinement: What is left to it.

    Raises:
        OSError: if any step fails; the program must not run then.
    """
    os.umask(0o077)
    os.chdir(confinement.scratch)
    if confinement.user is not None:
        change_user(confinement.user)
    limit_resources(confinement)
    if confinement.level == Level.LIMITS:
        return
    system.drop_capabilities()
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    if confinement.level == Level.LANDLOCK:
        landlock.require_alone()
    landlock.restrict(confinement.grants)
    seccomp.install(alone=confinement.level != Level.LANDLOCK, process_id=os.getpid())


def limit_resources(confinement: Confinement) -> None:
    """Sets the limits that the kernel keeps for each process, and the user's number of processes."""
    limits = confinement.limits
    cpu = math.ceil(limits.cpu_seconds)
    wanted = {
        "RLIMIT_CORE": (0, 0),
        # The first limit sends a signal that can be ignored, the second kills.
        "RLIMIT_CPU": (cpu, cpu + 1),
        "RLIMIT_AS": (limits.memory_bytes, limits.memory_bytes),
        "RLIMIT_FSIZE": (limits.file_bytes, limits.file_bytes),
        "RLIMIT_NOFILE": (OPEN_FILES, OPEN_FILES),
        "RLIMIT_NPROC": (limits.processes + confinement.other_processes,) * 2,
        "RLIMIT_MEMLOCK": (0, 0),
        "RLIMIT_MSGQUEUE": (0, 0),
    }
    for name, pair in wanted.items():
        kind = getattr(resource, name, None)
        # macOS knows no limit of address space that works.
        if kind is not None and (name != "RLIMIT_AS" or system.IS_LINUX):
            most = resource.getrlimit(kind)[1]
            if most != resource.RLIM_INFINITY:
                if name == "RLIMIT_AS" and most < pair[0]:
                    raise OSError(f"a job may use {pair[0]} bytes of memory, but its worker itself only {most}")
                pair = (min(pair[0], most), min(pair[1], most))  # noqa: PLW2901
            resource.setrlimit(kind, pair)
