"""One program as a child process: its start, the wait for its end, and the end of all that it has started."""

import importlib
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Literal, NoReturn

from grpo_jax.verifiers.sandbox import confine
from grpo_jax.verifiers.sandbox.confine import Confinement

Ending = Literal["ended", "lease", "memory"]
"""Why the wait for a program is over: it ended, its lease did, or its processes use too much memory together."""


def start(
    spec: dict[str, Any], confinement: Confinement, streams: list[int], wrap: Sequence[str] | None
) -> tuple[int, int]:
    """Forks a child that becomes the program.

    Args:
        spec: ``argv`` of an external program, or ``program``, a module that is already imported; ``environment``.
        confinement: How it is confined.
        streams: Its descriptors 0, 1, 2 and, for a conversation, 3 and 4.
        wrap: Command to run instead, which brings the program about.

    Returns:
        The child's process id, and a pipe that says what failed before the program began.
    """
    trouble, trouble_end = os.pipe()
    child = os.fork()
    if child == 0:
        _become(spec, confinement, streams, trouble_end, wrap)
    os.close(trouble_end)
    return child, trouble


def _become(
    spec: dict[str, Any],
    confinement: Confinement,
    streams: list[int],
    trouble: int,
    wrap: Sequence[str] | None,
) -> NoReturn:
    try:
        os.setsid()
        trouble = confine.arrange_descriptors(streams, trouble)
        if wrap is None:
            run(spec, confinement, trouble)
        if confinement.user is not None:
            confine.change_user(confinement.user)
        confine.limit_resources(confinement)
        os.set_inheritable(trouble, True)
        confine.reset_signals()
        os.execv(wrap[0], list(wrap))
    except BaseException as error:
        tell(trouble, error)
    finally:
        os._exit(127)


def run(spec: dict[str, Any], confinement: Confinement, trouble: int) -> NoReturn:
    """Confines this process and becomes the program.

    Args:
        spec: As for ``start``.
        confinement: How it is confined.
        trouble: Pipe for what fails before the program begins.

    Raises:
        OSError: if it cannot be confined, or the program is not there.
    """
    main = importlib.import_module(spec["program"]).main if "program" in spec else None
    if main is not None:
        confine.reset_interpreter(spec["environment"])
    confine.confine(confinement)
    if main is None:
        confine.reset_signals()
        os.execvpe(spec["argv"][0], spec["argv"], spec["environment"])
    # From here on the program is in charge, and may not speak in our name.
    os.close(trouble)
    try:
        code = main()
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        os._exit(code if isinstance(code, int) else 1)


def tell(trouble: int, error: BaseException) -> None:
    """Says through a trouble pipe what failed."""
    os.write(trouble, f"{type(error).__name__}: {error}"[:1000].encode("utf-8", "replace"))


def heard(trouble: int) -> str | None:
    """Reads a trouble pipe after the program's end; ``None`` if the program began."""
    os.set_blocking(trouble, False)
    try:
        return os.read(trouble, 4096).decode("utf-8", "replace") or None
    except BlockingIOError:
        return None


def attend(child: int, lease: int | None, watch_seconds: float, is_over: Callable[[], bool]) -> Ending:
    """Waits for a child, reaping orphans that come to this process meanwhile.

    Args:
        child: The child, which is left to be reaped.
        lease: Socket whose end ends the wait.
        watch_seconds: Time between two looks at the memory.
        is_over: Whether too much memory is in use.

    Returns:
        What came first.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    poll = select.poll()
    poll.register(woken, select.POLLIN)
    if lease is not None:
        poll.register(lease, select.POLLIN)
    next_look = time.monotonic() + watch_seconds
    while not _has_ended(child):
        ready = dict(poll.poll(max(0.0, next_look - time.monotonic()) * 1000))
        if lease in ready:
            return "lease"
        if woken in ready:
            os.read(woken, 512)
        if time.monotonic() >= next_look:
            if is_over():
                return "memory"
            next_look = time.monotonic() + watch_seconds
    return "ended"


def _has_ended(child: int) -> bool:
    # The child stays a zombie, which keeps its process group's id from being given to others.
    while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        if ended.si_pid == child:
            return True
        os.waitpid(ended.si_pid, 0)
    return False


def end(child: int, everyone: bool) -> int:
    """Kills the child with all that it has started and reaps all of it.

    Args:
        child: The child, not yet reaped.
        everyone: Kill all that this process sees, as the init of a pid namespace; else the child's process group.

    Returns:
        The child's exit code as ``subprocess`` gives it.
    """
    try:
        os.kill(-1 if everyone else -child, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # It has not made its group yet, or all are gone; macOS refuses for a group of zombies.
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                # What left the group, where nothing forbids it, has come to this process by now.
                _kill_children()
                time.sleep(0.001)
        except ChildProcessError:
            return code


def _kill_children() -> None:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            children = [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return
    for child in children:
        os.kill(child, signal.SIGKILL)


def memory_bytes(group: int | None) -> int:
    """Adds up the memory of processes that is not backed by files.

    Args:
        group: Process group to count, or ``None`` for all processes in sight but this one.

    Returns:
        Bytes; what several processes share counts for each.
    """
    total = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(name) == os.getpid() or (group is not None and os.getpgid(int(name)) != group):
                continue
            with open(f"/proc/{name}/status", encoding="utf-8", errors="replace") as file:
                parts = dict(line.split(":", 1) for line in file)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            # It ended in between.
            continue
        total += sum(int(parts[key].split()[0]) for key in ("RssAnon", "RssShmem") if key in parts)
    return total * 1024
