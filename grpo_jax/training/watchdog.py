"""Ends a process that is stuck, since nothing else would: the others of its run wait for it without a limit."""

import concurrent.futures
import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

import jax

from grpo_jax.config import WatchdogConfig
from grpo_jax.records import Completion, Problem, Verdict
from grpo_jax.rollout.engine import Engine, FinishedGroup, SamplingParams
from grpo_jax.training.collect import Judge

STUCK = 74
"""Exit status of a process in which nothing happened for too long."""

Phase = Literal["start", "rollout", "update", "save"]


class Watchdog:
    """A thread that expects news within the limits of ``config.watchdog``; in use as a context manager."""

    def __init__(self, config: WatchdogConfig, end: Callable[[int], Any] = os._exit) -> None:
        """Waits for ``start`` from now on.

        Args:
            config: The limits.
            end: Ends the process with an exit status.
        """
        self._limits = {
            "start": config.start_seconds,
            "rollout": config.rollout_seconds,
            "update": config.update_seconds,
            "save": config.save_seconds,
        }
        self._end = end
        self._news: tuple[Phase, float] = ("start", time.monotonic())
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def beat(self, phase: Phase) -> None:
        """Says that all is well, and what comes next."""
        self._news = phase, time.monotonic()

    def __enter__(self) -> "Watchdog":
        self._watched = threading.get_ident()
        self.beat("start")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(min(1.0, *(limit / 4 for limit in self._limits.values()))):
            phase, since = self._news
            if time.monotonic() - since <= self._limits[phase]:
                continue
            print(
                f"error: nothing happened for {self._limits[phase]} seconds (config.watchdog.{phase}_seconds) in "
                f"process {jax.process_index()}, which is stuck here:",
                file=sys.stderr,
                flush=True,
            )
            # The real descriptor: whoever replaced sys.stderr may be what is stuck. The watched thread comes first:
            # faulthandler shows a hundred threads at most, and this one, the oldest, would be left out.
            stack = traceback.format_stack(sys._current_frames()[self._watched])
            os.write(2, "".join([*stack, "all threads, up to a hundred:\n"]).encode(errors="backslashreplace"))
            faulthandler.dump_traceback(2, all_threads=True)
            self._end(STUCK)
            return


class WatchedEngine:
    """An engine whose groups are news."""

    def __init__(self, engine: Engine, watchdog: Watchdog) -> None:
        """Wraps an engine."""
        self._engine, self._watchdog = engine, watchdog

    def sync(self, params: Any, version: int) -> None:
        """Takes new parameters."""
        self._engine.sync(params, version)

    def generate(
        self, prompts: Sequence[Sequence[int]], *, sampling: SamplingParams, key: jax.Array
    ) -> Iterator[FinishedGroup]:
        """Samples every prompt; see ``Engine.generate``."""
        self._watchdog.beat("rollout")
        for group in self._engine.generate(prompts, sampling=sampling, key=key):
            self._watchdog.beat("rollout")
            yield group
        self._watchdog.beat("rollout")


class WatchedJudge:
    """A judge whose verdicts are news."""

    def __init__(self, judge: Judge, watchdog: Watchdog) -> None:
        """Wraps a judge."""
        self._judge, self._watchdog = judge, watchdog

    def submit(self, problem: Problem, completion: Completion) -> concurrent.futures.Future[Verdict]:
        """Queues one completion."""
        future = self._judge.submit(problem, completion)
        future.add_done_callback(lambda _: self._watchdog.beat("rollout"))
        return future

    def metrics(self) -> Mapping[str, float]:
        """What is logged of the judge itself."""
        return self._judge.metrics()
