"""A pool of killable worker processes that run a verifier under a wall deadline."""

import concurrent.futures
import dataclasses
import logging
import queue
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import NamedTuple

from grpo_jax.config import VerifierConfig
from grpo_jax.records import Completion, Problem, Verdict
from grpo_jax.verifiers import messages
from grpo_jax.verifiers.base import UnusableVerifierError
from grpo_jax.verifiers.keeper import Keeper
from grpo_jax.verifiers.process import Worker, WorkerDiedError, WorkerProcess
from grpo_jax.verifiers.start import Starter, StartWorker
from grpo_jax.verifiers.statistics import PoolStatistics

JOB_ATTEMPTS = 2

_logger = logging.getLogger(__name__)


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

    def __init__(
        self,
        verifier: VerifierConfig | str,
        workers: int,
        deadline_seconds: float,
        *,
        start_worker: StartWorker = WorkerProcess,
    ) -> None:
        """Starts the workers without waiting for them.

        Args:
            verifier: A configuration for ``composite.build``, or the name of a function for
                ``function.load_function``.
            workers: Number of processes.
            deadline_seconds: Wall time for one job; the start of a worker does not count.
            start_worker: Makes a worker; ``ray_pool`` has one for other machines.

        Raises:
            ValueError: for a number that is not positive.
        """
        if workers < 1:
            raise ValueError(f"VerifierPool: got workers={workers!r}, wanted a positive number of processes.")
        if not deadline_seconds > 0:
            raise ValueError(f"VerifierPool: got deadline_seconds={deadline_seconds!r}, wanted positive seconds.")
        self._deadline_seconds = deadline_seconds
        self._keeper = Keeper()
        self._starter = Starter(verifier, start_worker, self._keeper)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._cancelled = False
        self._submitted = 0
        self._statistics = PoolStatistics()
        self._start_failure: Exception | None = None
        self._started = threading.Semaphore(0)
        self._threads = [
            threading.Thread(target=self._serve, name=f"verifier-{slot}", daemon=True) for slot in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def wait_until_ready(self) -> Mapping[str, str]:
        """Waits until every worker has started or failed to; call it at most once.

        Returns:
            What the verifiers say of themselves.

        Raises:
            UnusableVerifierError: if the verifier cannot work here.
            RuntimeError: if no worker can be started for another reason.
        """
        for _ in self._threads:
            self._started.acquire()
        statistics = self.statistics()
        if self._start_failure is not None and statistics.workers == 0:
            raise self._start_failure
        return statistics.facts

    def submit(self, problem: Problem, completion: Completion) -> concurrent.futures.Future[Verdict]:
        """Queues one completion.

        Args:
            problem: Its ``extra`` must hold plain JSON values.
            completion: The completion to judge.

        Returns:
            A future of the verdict. It raises RuntimeError or UnusableVerifierError if no worker can be started.

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

    def metrics(self) -> dict[str, float]:
        """What is logged with every step of training."""
        return self.statistics().metrics()

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
        self._keeper.close()

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
        self._started.release()
        while (job := self._jobs.get()) is not None:
            if self._cancelled:
                job.future.cancel()
            if not job.future.set_running_or_notify_cancel():
                continue
            if worker is None:
                job.future.set_exception(self._failure())
                continue
            try:
                worker = self._run(worker, job)
            except Exception as error:
                # Nothing is expected here, but a future that never ends would hang the training.
                job.future.set_exception(error)
                worker, self._start_failure = None, RuntimeError(f"the slot's thread failed before: {error!r}")
        if worker is not None:
            self._stop(worker)

    def _run(self, worker: Worker, job: _Job) -> Worker | None:
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
                job.future.set_exception(self._failure())
                return None
            worker = replacement
        seconds = time.monotonic() - began
        self._finish(job, Verdict(0.0, correct=False, parsed=None, reason=reason, seconds=seconds, error=True))
        return worker

    def _finish(self, job: _Job, verdict: Verdict) -> None:
        with self._lock:
            old = self._statistics
            self._statistics = dataclasses.replace(
                old,
                jobs=old.jobs + 1,
                timeouts=old.timeouts + (verdict.reason == "timeout"),
                errors=old.errors + verdict.error,
            )
        job.future.set_result(verdict)

    def _start(self) -> Worker | None:
        """Returns a ready worker, or None with ``_start_failure`` set."""
        try:
            worker, facts = self._starter.start()
        except UnusableVerifierError as error:
            self._start_failure = error
            return None
        except Exception as error:
            # Whatever it is, a slot that ends without a word would leave its futures open for ever.
            self._start_failure = RuntimeError(f"VerifierPool: a worker cannot start: {type(error).__name__}: {error}")
            return None
        with self._lock:
            old = self._statistics
            self._statistics = dataclasses.replace(old, workers=old.workers + 1, facts=facts)
        if old.facts and old.facts != facts:
            _logger.warning("A worker judges with %s, those started before it with %s", dict(facts), dict(old.facts))
        return worker

    def _failure(self) -> Exception:
        assert self._start_failure is not None
        # A copy: raising one exception in several threads would mix their tracebacks.
        return type(self._start_failure)(*self._start_failure.args)

    def _restart(self) -> Worker | None:
        with self._lock:
            self._statistics = dataclasses.replace(self._statistics, restarts=self._statistics.restarts + 1)
        return self._start()

    def _stop(self, worker: Worker) -> int:
        exit_code = worker.kill()
        with self._lock:
            self._statistics = dataclasses.replace(self._statistics, workers=self._statistics.workers - 1)
        return exit_code


def open_pool(config: VerifierConfig) -> VerifierPool:
    """Opens the pool that a configuration asks for, on this machine or on a Ray cluster.

    Args:
        config: The verifier's section.

    Returns:
        The pool; its workers are starting.

    Raises:
        UnusableVerifierError: if ``pool`` is ``"ray"`` and Ray is not installed.
    """
    start_worker: StartWorker = WorkerProcess
    if config.pool == "ray":
        from grpo_jax.verifiers import ray_pool

        ray_pool.connect()
        start_worker = ray_pool.RayWorker
    return VerifierPool(config, config.workers, config.deadline_seconds, start_worker=start_worker)
