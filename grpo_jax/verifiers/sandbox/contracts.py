"""What a sandbox is asked for and what it answers (standard library only)."""

import dataclasses
import enum
from collections.abc import Mapping


class Level(enum.StrEnum):
    """How a sandbox confines what it runs, strongest first."""

    NAMESPACES = "namespaces"
    """User, pid, ipc, mount and net namespaces on a read-only root, with Landlock, seccomp and limits."""
    BUBBLEWRAP = "bubblewrap"
    """The same, with the namespaces made by the ``bwrap`` program."""
    LANDLOCK = "landlock"
    """Landlock, seccomp and limits, where the system gives no namespaces."""
    LIMITS = "limits"
    """Resource limits alone: no confinement against a hostile program."""

    def is_at_least(self, other: "Level") -> bool:
        """Whether this level is as strong as another one."""
        order = list(Level)
        return order.index(self) <= order.index(other)


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What one execution may use.

    Attributes:
        wall_seconds: Time from its submission, start included; then everything is killed.
        cpu_seconds: CPU time of each of its processes, rounded up to whole seconds.
        memory_bytes: Address space of each process, and memory of all of them together where ``/proc`` is readable.
            An ordinary user's worker cannot give more than it may use itself.
        file_bytes: Largest size of a file, and with namespaces of all files in the scratch folder together.
        processes: Processes and threads at one time.
        output_bytes: Standard output, standard error, each collected file and each reply; more ends the execution.
    """

    wall_seconds: float = 10.0
    cpu_seconds: float = 10.0
    memory_bytes: int = 512 * 2**20
    file_bytes: int = 16 * 2**20
    processes: int = 16
    output_bytes: int = 2**20


@dataclasses.dataclass(frozen=True, slots=True)
class Execution:
    """How one execution ended; by then no process of it is left.

    Attributes:
        exit_code: As ``subprocess`` gives it (minus the signal's number if a signal ended it), or ``None`` if the
            sandbox ended it: see ``timed_out``, ``output_truncated`` and ``out_of_memory``.
        stdout: Standard output up to the limit.
        stderr: Standard error up to the limit.
        timed_out: The wall deadline came first.
        output_truncated: It wrote more than it may, and was ended for that.
        out_of_memory: Its processes together used more than they may, and were ended for that.
        seconds: Wall time from submission to the end of the last process.
        files: Content of those files asked for that were regular files within the limit when the program ended.
    """

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool
    output_truncated: bool
    out_of_memory: bool
    seconds: float
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class SandboxStatistics:
    """Counts since the sandbox was made.

    Attributes:
        executions: Executions and conversations that were begun.
        timeouts: Those that their wall deadline ended.
        restarts: Zygotes started in place of one that died or hung.
    """

    executions: int = 0
    timeouts: int = 0
    restarts: int = 0


class Ending(enum.StrEnum):
    """Why a conversation is over; each value is a stable phrase for verdicts."""

    TIME = "time limit"
    MEMORY = "memory limit"
    OUTPUT = "output limit"
    CRASHED = "crashed"
    PROTOCOL = "broken reply"
    CLOSED = "closed"


class ConversationOverError(Exception):
    """The program on the other side answers no more; ``ending`` says why."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(str(ending))
        self.ending = ending


class SandboxError(RuntimeError):
    """The sandbox itself failed, whatever the program did: a fault of the judge."""


class SandboxHungError(SandboxError):
    """A job did not end, or ended without a word; the sandbox starts a new zygote then."""
