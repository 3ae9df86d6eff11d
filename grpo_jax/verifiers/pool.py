"""A pool of killable worker processes that run a verifier under a wall deadline."""

import concurrent.futures
import dataclasses
import logging
import queue
import threading
import time
from types import TracebackType
from typing import NamedTuple

from grpo_jax.config import VerifierConfig, to_nested
from grpo_jax.records import Completion, Problem, Verdict
from grpo_jax.verifiers import messages
from grpo_jax.verifiers.process import WorkerDiedError, WorkerProcess

START_LIMIT_SECONDS = 60.0
START_ATTEMPTS = 3
JOB_ATTEMPTS = 2

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class PoolStatistics:
    """Counts since the pool was made.

    Attributes:
        workers: Processes that are ready or at work now.
        jobs: Verdicts given.
        timeouts: Verdicts with the reason ``"timeout"``.
        errors: Verdicts with ``error`` set.
        restarts: Workers started in place of one that hung or died.
        mean_seconds: Mean of the verdicts' seconds (0 before the first).
        max_seconds: Largest of the verdicts' seconds.
    """

    workers: int = 0
    jobs: int = 0
    timeouts: int = 0
    errors: int = 0
    restarts: int = 0
    mean_seconds: float = 0.0
    max_seconds: float = 0.0


class _Job(NamedTuple):
    number: int
    frame: bytes
    future: concurrent.futures.Future[Verdict]


class VerifierPool:
    """Runs one verifier in several processes; whatever it does, a job ends with a verdict.

    - No verdict within the deadline: the process group is killed and the verdict is ``"timeout"``
      with reward 0. That is no error: it was the completion that made the verifier hang.
    - The worker dies: the job is tried once more on a fresh worker, then its verdict is an error.
    - The verifier raises: the verdict is an error with the exception's name and text.

    Each slot has a thread that owns a worker and replaces it after the first two, so the pool comes
    back to its full size. Only if a worker cannot be started at all do futures raise RuntimeError.
    """

    def __init__(self, verifier: VerifierConfig | str, workers: int, deadline_seconds: float) -> None:
        """Starts the workers without waiting for them.

        Args:
            verifier: A configuration for ``composite.build``, or ``"module:function"`` for a
                function ``(problem, completion) -> Verdict`` that the workers import.
            workers: Number of processes.
            deadline_seconds: Wall time for one job; the start of a worker does not count.

        Raises:
            ValueError: for a name of another form, or a number that is not positive.
        """
        if workers < 1:
            raise ValueError(f"VerifierPool: got workers={workers!r}, wanted a positive number of processes.")
        if not deadline_seconds > 0:
            raise ValueError(f"VerifierPool: got deadline_seconds={deadline_seconds!r}, wanted positive seconds.")
        self._start_frame = _start_frame(verifier)
        self._deadline_seconds = deadline_seconds
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._cancelled = False
        self._submitted = 0
        self._statistics = PoolStatistics()
        self._start_failure = ""
        # The kernel ends a worker with the thread that started it: a slot's thread outlives its worker.
        self._threads = [
            threading.Thread(target=self._serve, name=f"verifier-{slot}", daemon=True) for slot in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, problem: Problem, completion: Completion) -> concurrent.futures.Future[Verdict]:
        """Queues one completion.

        Args:
            problem: Its ``extra`` must hold plain JSON values.
            completion: The completion to judge.

        Returns:
            A future of the verdict. It raises RuntimeError if no worker can be started.

        Raises:
            ValueError: if the problem cannot be written as JSON.
            RuntimeError: if the pool is closed.
        """
        future: concurrent.futures.Future[Verdict] = concurrent.futures.Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("VerifierPool.submit: the pool is closed.")
            self._submitted += 1
            number = self._submitted
            try:
                frame = messages.encode(messages.job_to_message(number, problem, completion))
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"VerifierPool.submit: problem {problem.identifier!r} cannot be sent to a verifier: {error}. "
                    "Wanted plain JSON values in its extra columns; drop or convert the others."
                ) from error
            self._jobs.put(_Job(number, frame, future))
        return future

    def statistics(self) -> PoolStatistics:
        """The counts up to now, for metrics."""
        with self._lock:
            return self._statistics

    def close(self, *, cancel_pending: bool = False) -> None:
        """Waits for the submitted jobs, then ends all workers. Calling it again does no harm.

        Args:
            cancel_pending: Cancel the jobs that have not begun. Those at work still get their
                verdict, within the deadline.
        """
        with self._lock:
            self._cancelled |= cancel_pending
            if not self._closed:
                self._closed = True
                for _ in self._threads:
                    self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> "VerifierPool":
        """Returns the pool itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the pool; after an exception, jobs that have not begun are cancelled."""
        self.close(cancel_pending=kind is not None)

    def _serve(self) -> None:
        worker = self._start()
        while (job := self._jobs.get()) is not None:
            if self._cancelled:
                job.future.cancel()
            if not job.future.set_running_or_notify_cancel():
                continue
            if worker is None:
                job.future.set_exception(RuntimeError(self._start_failure))
                continue
            try:
                worker = self._run(worker, job)
            except Exception as error:
                # Nothing is expected here, but a future that never ends would hang the training.
                job.future.set_exception(error)
                worker, self._start_failure = None, f"the slot's thread failed before: {error!r}"
        if worker is not None:
            self._stop(worker)

    def _run(self, worker: WorkerProcess, job: _Job) -> WorkerProcess | None:
        """Finishes the job's future; returns the worker for the next one."""
        began = time.monotonic()
        reason = ""
        for _ in range(JOB_ATTEMPTS):
            try:
                reply = worker.exchange(job.frame, self._deadline_seconds)
                verdict = messages.verdict_from_message(reply, job.number)
            except TimeoutError:
                self._stop(worker)
                seconds = time.monotonic() - began
                self._finish(job, Verdict(0.0, correct=False, parsed=None, reason="timeout", seconds=seconds))
                return self._restart()
            except WorkerDiedError:
                reason = f"worker died: exit code {self._stop(worker)}"
            except ValueError as error:
                self._stop(worker)
                reason = f"worker broke the protocol: {error}"
            else:
                self._finish(job, verdict)
                return worker
            _logger.warning("Verifier job %d: %s\n%s", job.number, reason, worker.stderr_tail())
            replacement = self._restart()
            if replacement is None:
                job.future.set_exception(RuntimeError(self._start_failure))
                return None
            worker = replacement
        seconds = time.monotonic() - began
        self._finish(job, Verdict(0.0, correct=False, parsed=None, reason=reason, seconds=seconds, error=True))
        return worker

    def _finish(self, job: _Job, verdict: Verdict) -> None:
        with self._lock:
            old = self._statistics
            jobs = old.jobs + 1
            self._statistics = dataclasses.replace(
                old,
                jobs=jobs,
                timeouts=old.timeouts + (verdict.reason == "timeout"),
                errors=old.errors + verdict.error,
                mean_seconds=old.mean_seconds + (verdict.seconds - old.mean_seconds) / jobs,
                max_seconds=max(old.max_seconds, verdict.seconds),
            )
        job.future.set_result(verdict)

    def _start(self) -> WorkerProcess | None:
        """Returns a ready worker, or None with ``_start_failure`` set."""
        for _ in range(START_ATTEMPTS):
            try:
                worker = WorkerProcess()
            except OSError as error:
                self._start_failure = f"VerifierPool: a worker cannot start: {error}"
                continue
            self._count(workers=1)
            try:
                ready = worker.exchange(self._start_frame, START_LIMIT_SECONDS)
                if ready == {"ready": True}:
                    return worker
                failure = f"got {ready!r}, wanted that it is ready"
            except WorkerDiedError:
                failure = "it died"
            except (TimeoutError, ValueError) as error:
                failure = str(error)
            exit_code = self._stop(worker)
            self._start_failure = (
                f"VerifierPool: a worker cannot start: {failure} (exit code {exit_code}). "
                f"Check the verifier's import. The worker's last words:\n{worker.stderr_tail()}"
            )
        return None

    def _restart(self) -> WorkerProcess | None:
        self._count(restarts=1)
        return self._start()

    def _stop(self, worker: WorkerProcess) -> int:
        exit_code = worker.kill()
        self._count(workers=-1)
        return exit_code

    def _count(self, workers: int = 0, restarts: int = 0) -> None:
        with self._lock:
            old = self._statistics
            self._statistics = dataclasses.replace(old, workers=old.workers + workers, restarts=old.restarts + restarts)


def _start_frame(verifier: VerifierConfig | str) -> bytes:
    if isinstance(verifier, VerifierConfig):
        return messages.encode({"config": to_nested(verifier)})
    module, _, function = verifier.partition(":")
    if not module or not function.isidentifier():
        raise ValueError(f"VerifierPool: got verifier {verifier!r}, wanted a VerifierConfig or 'module:function'.")
    return messages.encode({"function": verifier})
