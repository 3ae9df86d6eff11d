"""A conversation with one program in the sandbox."""

import json
import signal
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from grpo_jax.verifiers.sandbox.contracts import ConversationOverError, Ending, Execution
from grpo_jax.verifiers.sandbox.job import Job


class Conversation:
    """Requests to one Python program in the sandbox and its replies, each a line of JSON."""

    def __init__(self, finish: Callable[[Job], Execution], job: Job) -> None:
        """Takes over a job.

        Args:
            finish: Waits for the job's end.
            job: The job, just started.
        """
        self._finish = finish
        self._job: Job | None = job
        self._ending = Ending.CRASHED

    def ask(self, request: Any, seconds: float) -> Any:
        """Sends a request and waits for its reply.

        Args:
            request: Plain JSON values.
            seconds: Wall time for this reply.

        Returns:
            The reply's JSON, which a hostile program may have written: of any form.

        Raises:
            ConversationOverError: if the program does not answer any more.
            SandboxError: if the sandbox failed.
        """
        if self._job is None:
            raise ConversationOverError(self._ending)
        line = self._job.exchange(json.dumps(request).encode("ascii") + b"\n", time.monotonic() + seconds)
        if line is None:
            self._end(None)
            raise ConversationOverError(self._ending)
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            self._end(Ending.PROTOCOL)
            raise ConversationOverError(self._ending) from error

    def close(self) -> None:
        """Kills the program with all that it has started and waits until that is gone."""
        if self._job is not None:
            self._end(Ending.CLOSED)

    def __enter__(self) -> "Conversation":
        """Returns the conversation itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the conversation."""
        self.close()

    def _end(self, ending: Ending | None) -> None:
        job, self._job = self._job, None
        assert job is not None
        if ending is not None:
            job.cancel()
        execution = self._finish(job)
        self._ending = ending or _ending_of(execution)


def _ending_of(execution: Execution) -> Ending:
    # The kernel ends a program past its CPU limit with one of these.
    out_of_cpu = execution.exit_code in (-signal.SIGXCPU, -signal.SIGKILL)
    if execution.out_of_memory:
        return Ending.MEMORY
    if execution.output_truncated:
        return Ending.OUTPUT
    return Ending.TIME if execution.timed_out or out_of_cpu else Ending.CRASHED
