"""The sandbox as verifiers see it: the strongest level that works here, external programs and conversations."""

import base64
import dataclasses
import json
import logging
import tempfile
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from grpo_jax.config.checks import ConfigError
from grpo_jax.config.sandbox import SandboxConfig
from grpo_jax.verifiers.sandbox import canary, scratch
from grpo_jax.verifiers.sandbox.contracts import (
    Execution,
    Level,
    Limits,
    SandboxError,
    SandboxHungError,
    SandboxStatistics,
)
from grpo_jax.verifiers.sandbox.conversation import Conversation
from grpo_jax.verifiers.sandbox.job import Job
from grpo_jax.verifiers.sandbox.launcher import Zygote, ZygoteError

CANARY = "grpo_jax.verifiers.sandbox.canary"
SCRATCH_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}

_logger = logging.getLogger(__name__)


class Sandbox:
    """Runs hostile programs, each in a fresh scratch folder that is gone afterwards; one for each worker process.

    Not for use by several threads at once. Two jobs may be under way at a time.

    Attributes:
        level: The level in use.
        refusals: Why each stronger level does not work here.
    """

    def __init__(
        self,
        config: SandboxConfig,
        *,
        programs: Sequence[str] = (),
        read_paths: Sequence[str] = (),
        levels: Sequence[Level] = tuple(Level),
        path: str = "verifier.sandbox",
    ) -> None:
        """Finds the strongest level at which the canary can do nothing that it must not.

        Args:
            config: The least level, and default limits.
            programs: Modules of this package, standard library only, whose ``main`` may be run as a Python program.
            read_paths: Absolute paths that external programs may read and run besides the system's folders.
            levels: The levels to try, in this order.
            path: The section's place in the run's configuration, for messages.

        Raises:
            ConfigError: if no level as strong as the minimum works on this machine.
        """
        self._config = config
        self._programs = (CANARY, *programs)
        self._read_paths = tuple(read_paths)
        self._statistics = SandboxStatistics()
        self.refusals: dict[Level, str] = {}
        self.level, self._zygote = self._choose(levels, path)
        if self.level == Level.LIMITS:
            _logger.warning(
                "SANDBOX: programs that a model wrote run WITHOUT confinement, under resource limits alone. "
                "They can read and send this user's files. config.%s.allow_unsafe asks for it.",
                path,
            )

    def limits(self, wall_seconds: float, **changes: Any) -> Limits:
        """The configuration's limits.

        Args:
            wall_seconds: Wall time, and CPU time of each process.
            **changes: Other fields of ``Limits``.

        Returns:
            The limits for one execution.
        """
        config = self._config
        values = {
            "cpu_seconds": wall_seconds,
            "memory_bytes": config.memory_mebibytes * 2**20,
            "file_bytes": config.file_mebibytes * 2**20,
            "processes": config.processes,
            "output_bytes": config.output_kibibytes * 2**10,
        }
        return Limits(wall_seconds=wall_seconds, **(values | changes))

    def run(
        self,
        argv: Sequence[str],
        *,
        limits: Limits,
        stdin: bytes = b"",
        files: Mapping[str, bytes] = {},
        collect: Sequence[str] = (),
        environment: Mapping[str, str] = {},
    ) -> Execution:
        """Runs an external program in a scratch folder that holds the given files.

        Several commands that build on one another each get a fresh folder: collect what the first one wrote and hand
        it to the next. So no program can touch what a later one reads, unless it is meant to.

        Args:
            argv: The program, found through ``PATH`` or by an absolute path, and its arguments.
            limits: What it may use.
            stdin: Its standard input.
            files: Content of files by relative name.
            collect: Names of files whose content the execution is to carry.
            environment: Variables besides ``HOME``, ``TMPDIR``, ``PATH`` and ``LANG``.

        Returns:
            How it ended.

        Raises:
            SandboxError: if the sandbox failed, or there is no such program.
            ValueError: if a name is not a plain relative path.
        """
        return self._finish(self._start({"argv": list(argv)}, limits, stdin, files, collect, environment))

    def run_python(
        self, program: str, *, limits: Limits, stdin: bytes = b"", files: Mapping[str, bytes] = {}
    ) -> Execution:
        """Runs ``main`` of one of the sandbox's Python programs in a fork, with its standard streams.

        Args:
            program: The module.
            limits: What it may use.
            stdin: Its standard input.
            files: Content of files by relative name.

        Returns:
            How it ended.

        Raises:
            SandboxError: if the sandbox failed.
        """
        return self._finish(self._start({"program": program}, limits, stdin, files, (), {}))

    def converse(self, program: str, *, limits: Limits) -> Conversation:
        """Starts a conversation with one of the sandbox's Python programs, whose standard streams are empty.

        Args:
            program: The module; it reads requests from descriptor 3 and writes replies to 4, a line of JSON each.
            limits: What it may use; the wall time is for the whole conversation.

        Returns:
            The conversation, to be closed.

        Raises:
            SandboxError: if the sandbox failed.
        """
        return Conversation(self._finish, self._start({"program": program, "converses": True}, limits, b"", {}, (), {}))

    def statistics(self) -> SandboxStatistics:
        """The counts up to now, for metrics."""
        return self._statistics

    def close(self) -> None:
        """Ends the zygote."""
        self._zygote.kill()

    def __enter__(self) -> "Sandbox":
        """Returns the sandbox itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the sandbox."""
        self.close()

    def _finish(self, job: Job) -> Execution:
        try:
            execution = job.finish()
        except SandboxHungError:
            self._restart()
            raise
        self._statistics = dataclasses.replace(
            self._statistics,
            executions=self._statistics.executions + 1,
            timeouts=self._statistics.timeouts + execution.timed_out,
        )
        return execution

    def _start(
        self,
        what: dict[str, Any],
        limits: Limits,
        stdin: bytes,
        files: Mapping[str, bytes],
        collect: Sequence[str],
        environment: Mapping[str, str],
    ) -> Job:
        spec = {
            "converses": False,
            **what,
            "files": {scratch.check_name(name): base64.b64encode(text).decode() for name, text in files.items()},
            "collect": [scratch.check_name(name) for name in collect],
            "environment": {**SCRATCH_ENVIRONMENT, **environment},
        }
        try:
            return Job(self._zygote, spec, limits, stdin)
        except ZygoteError:
            self._restart()
        try:
            return Job(self._zygote, spec, limits, stdin)
        except ZygoteError as error:
            raise SandboxError(f"Sandbox: {error}") from error

    def _restart(self) -> None:
        self._zygote.kill()
        self._statistics = dataclasses.replace(self._statistics, restarts=self._statistics.restarts + 1)
        try:
            self._zygote = Zygote(self.level, self._programs, self._read_paths, self._config.start_seconds)
        except ZygoteError as error:
            raise SandboxError(f"Sandbox: {error}") from error

    def _choose(self, levels: Sequence[Level], path: str) -> tuple[Level, Zygote]:
        minimum = Level(self._config.minimum_level)
        for level in levels:
            if not level.is_at_least(minimum):
                continue
            try:
                zygote = Zygote(level, self._programs, self._read_paths, self._config.start_seconds)
            except ZygoteError as error:
                self.refusals[level] = str(error)
                continue
            refusal = _try(zygote, level)
            if not refusal:
                return level, zygote
            zygote.kill()
            self.refusals[level] = refusal
        reasons = "; ".join(f"{level}: {reason}" for level, reason in self.refusals.items())
        raise ConfigError(
            f"config.{path}.minimum_level: got {minimum.value!r}, wanted a level that works on this machine. "
            f"{reasons}. Allow user namespaces or install bubblewrap, lower minimum_level, or, for programs that you "
            "trust, set minimum_level to 'limits' and allow_unsafe to True."
        )


def _try(zygote: Zygote, level: Level) -> str:
    """Lets the canary loose; returns what is wrong, or nothing."""
    spec = {
        "program": CANARY,
        "converses": True,
        "files": {},
        "collect": [],
        "environment": SCRATCH_ENVIRONMENT,
    }
    with tempfile.TemporaryDirectory(prefix="grpo-canary-") as folder:
        try:
            job = Job(zygote, spec, canary.LIMITS, b"")
            line = job.exchange(json.dumps(canary.request(folder)).encode() + b"\n", job.deadline)
            job.finish()
            done = json.loads(line) if line else {}
        except (ZygoteError, SandboxError, ValueError) as error:
            return str(error)
    wrong = [
        f"{'can' if done.get(name) else 'cannot'} {name}"
        for name, wanted in canary.wanted(level).items()
        if done.get(name) != wanted
    ]
    hint = " (can every user read Python's folder?)" if not done.get("import a module") else ""
    return f"the canary {', '.join(wrong)}{hint}" if wrong else ""
