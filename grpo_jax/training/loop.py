"""Running a phase from its newest checkpoint or from the start, so that a stopped run goes on as if it had not."""

import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

from grpo_jax.config import ConfigError, RunConfig
from grpo_jax.data.curriculum import CurriculumLoader
from grpo_jax.data.loader import DemonstrationLoader, PromptLoader
from grpo_jax.io.checkpoint import Checkpoints, NoUsableCheckpoint
from grpo_jax.io.display import Display
from grpo_jax.io.health import Monitor
from grpo_jax.io.metrics import Kind, MetricsWriter, SamplesWriter, read_metrics
from grpo_jax.io.run_folder import RunFolder
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import distributed, exchange
from grpo_jax.training import adapted, faults
from grpo_jax.training.recipe import Recipe, State, abstract_state
from grpo_jax.training.watchdog import Watchdog


class Stopped(Exception):  # noqa: N818
    """The run was asked to end; its state is saved and the same command goes on."""

    exit_status = 0


@dataclasses.dataclass
class Progress:
    """Host state that belongs to a checkpoint, JSON values only.

    Attributes:
        metrics_rows: Rows of the metrics file at this moment.
        samples_rows: Rows of the samples file.
        loader: Position of the phase's data stream.
        tokens: Tokens sampled for training so far.
        seconds: Wall seconds so far, over all starts of this run.
        nonfinite_in_a_row: Updates refused in a row.
        unjudged_in_a_row: Steps in a row without a verdict.
        results: Evaluation results for the summary; None where nothing could be judged.
        lora_scale: What adapters are multiplied by.
    """

    metrics_rows: int = 0
    samples_rows: int = 0
    loader: dict[str, Any] = dataclasses.field(default_factory=dict)
    tokens: int = 0
    seconds: float = 0.0
    nonfinite_in_a_row: int = 0
    unjudged_in_a_row: int = 0
    results: dict[str, float | None] = dataclasses.field(default_factory=dict)
    lora_scale: float | None = None


class Phase(NamedTuple):
    """A part of a run with a state, a data stream and checkpoints of its own.

    Attributes:
        name: Of its checkpoints, metrics and progress display.
        recipe: Its algorithm.
        loader: Its data stream.
        steps: Steps that it ends at.
        save_every_steps: Steps between two checkpoints.
        steps_key: The configuration's key for ``steps``, for messages.
        begin: Makes the state before the first step.
        step: Does one step, counted from 1.
    """

    name: Literal["cold_start", "grpo", "ppo"]
    recipe: Recipe
    loader: PromptLoader | CurriculumLoader | DemonstrationLoader
    steps: int
    save_every_steps: int
    steps_key: str
    begin: Callable[[], State]
    step: Callable[["Phase", State, int], State]


def require_steps_to_come(folder: Path, config: RunConfig) -> None:
    """Refuses fewer steps than a run has done already, before anything in its folder is changed.

    Args:
        folder: The run's; it need not exist.
        config: With which it shall go on.

    Raises:
        ConfigError: naming how many steps are done.
    """
    saved = (folder / "checkpoints" / config.recipe).glob("*")
    done = max((int(step.name) for step in saved if step.name.isdecimal()), default=0)
    if done > config.steps:
        raise _too_few("steps", config.steps, done)


def _too_few(key: str, got: int, done: int) -> ConfigError:
    return ConfigError(
        f"config.{key}: got {got}, wanted {done} or more: that many are done already. "
        "Choose another --workdir to start a new run."
    )


class Run:
    """The records of a run and its place in them."""

    def __init__(
        self, folder: RunFolder, display: Display, watchdog: Watchdog, spec: ModelSpec, config: RunConfig
    ) -> None:
        """Opens the records.

        Args:
            folder: Where they go.
            display: Shows progress.
            watchdog: Expects it.
            spec: The policy's spec.
            config: Its ``checkpoint.keep`` and ``health`` are used.
        """
        self.folder, self.display, self.watchdog = folder, display, watchdog
        writes = exchange.is_first()
        self.metrics = MetricsWriter(folder.metrics if writes else None)
        self.samples = SamplesWriter(folder.samples if writes else None)
        self.progress = Progress()
        self._spec, self._config = spec, config
        self._monitor: Monitor | None = None
        self._started = time.perf_counter()
        self._stop_requested = False
        self._stop_error: Exception | None = None

    @property
    def seconds(self) -> float:
        """Wall seconds of this run, over all its starts."""
        return time.perf_counter() - self._started

    def close(self) -> None:
        """Closes the records."""
        self.metrics.close()
        self.samples.close()

    def run(self, phase: Phase) -> State:
        """Does the steps of a phase that are not done yet.

        Args:
            phase: What to run.

        Returns:
            The state after its last step.

        Raises:
            Stopped: after a request to stop, with the state saved at a step boundary.
            NoUsableCheckpoint: if the records show more steps than could be done without a checkpoint.
            ConfigError: if more steps are done already than the phase has.
            Exception: what ``stop`` was given, with the state saved.
        """
        checkpoints = Checkpoints(self.folder.checkpoints / phase.name, self._config.checkpoint.keep)
        with contextlib.closing(checkpoints), distributed.leaving_at_once():
            step, state = self._restore(checkpoints, phase)
            if step > phase.steps:
                raise _too_few(phase.steps_key, phase.steps, step)
            if state is None:
                exchange.on_first(lambda: self._require_nothing_lost(phase))
                state = phase.begin()
                self._save(checkpoints, phase, 0, state)
            if step < phase.steps:
                self.display.phase(phase.name.replace("_", " "), phase.steps)
            while step < phase.steps:
                step += 1
                state = phase.step(phase, state, step)
                # One process may have been asked to stop, but all stop after the same step.
                stopping = exchange.any_process(self._stop_requested)
                due = step % phase.save_every_steps == 0 or step == phase.steps
                if due or stopping or self._stop_error is not None:
                    self._save(checkpoints, phase, step, state)
                if self._stop_error is not None:
                    raise self._stop_error
                if stopping:
                    raise Stopped(
                        f"stopped after step {step} of {phase.name}; the same command with "
                        f"--workdir {self.folder.path} goes on from there"
                    )
        return state

    def stop(self, error: Exception) -> None:
        """Ends the run after this step: the state is saved, then the error is raised."""
        self._stop_error = error

    def record(self, kind: Kind, step: int, row: Mapping[str, Any]) -> None:
        """Writes a row of metrics, and says what it shows to be wrong.

        Args:
            kind: The phase or the evaluation that the row belongs to.
            step: See ``MetricsWriter.write``.
            row: Metrics by name.
        """
        if not exchange.is_first():
            self.metrics.write(kind, step, row)
            return
        if self._monitor is None:
            # Only now has a resumed run dropped what was written after its checkpoint.
            self._monitor = Monitor(self._config.health, read_metrics(self.folder.metrics))
        come, gone = self._monitor.observe({"kind": kind, "step": step, **row})
        self.metrics.write(kind, step, {**row, **self._monitor.metrics()})
        for alarm in come:
            self.display.warn(f"step {step}: {alarm.words} {alarm.symptom.remedy}")
        for alarm in gone:
            self.display.note(f"step {step}: over: {alarm.symptom.title.lower()}, since step {alarm.first_step}")

    def discard_unsaved_rows(self) -> None:
        """Drops what an earlier start wrote after its last checkpoint, or before its first."""
        self.metrics.truncate(self.progress.metrics_rows)
        self.samples.truncate(self.progress.samples_rows)

    @contextlib.contextmanager
    def stopping_on_signals(self) -> Iterator[None]:
        """Turns the first SIGTERM or SIGINT into a request to stop at the next step; a second one ends at once."""

        def request(number: int, _: FrameType | None) -> None:
            if self._stop_requested:
                os._exit(128 + number)
            self._stop_requested = True
            self.display.note("stopping after this step; a second signal ends at once")

        before = {number: signal.signal(number, request) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _require_nothing_lost(self, phase: Phase) -> None:
        """A run that has gone on beyond its first checkpoint does not start afresh in silence."""
        kind = "cold_start" if phase.name == "cold_start" else "train"
        done = max((row["step"] for row in read_metrics(self.folder.metrics) if row["kind"] == kind), default=0)
        # A save may still go on while the steps after it run, so only a later one proves that it was there.
        if done > phase.save_every_steps:
            raise NoUsableCheckpoint(
                f"{self.folder.metrics} has {done} steps of {phase.name}, but "
                f"{self.folder.checkpoints / phase.name} holds no checkpoint. Restore it from a copy, or start again "
                "in a new run folder."
            )

    def _restore(self, checkpoints: Checkpoints, phase: Phase) -> tuple[int, State | None]:
        self.watchdog.beat("start")
        distributed.barrier(f"restore {phase.name}")
        restored = checkpoints.restore(abstract_state(phase.recipe, self._spec))
        if restored is None:
            return 0, None
        adapted.require_same_scale(restored, self._spec)
        self.progress = Progress(**restored.host_state)
        self.discard_unsaved_rows()
        phase.loader.set_state(self.progress.loader)
        self._started = time.perf_counter() - self.progress.seconds
        self.display.note(f"going on from step {restored.step} of {phase.name}")
        return restored.step, restored.state

    def _save(self, checkpoints: Checkpoints, phase: Phase, step: int, state: State) -> None:
        self.progress.metrics_rows, self.progress.samples_rows = self.metrics.rows, self.samples.rows
        self.progress.loader = phase.loader.get_state()
        self.progress.seconds = self.seconds
        self.progress.lora_scale = adapted.lora_scale(self._spec)
        self.watchdog.beat("save")
        distributed.barrier(f"save step {step} of {phase.name}")
        checkpoints.save(step, state, dataclasses.asdict(self.progress))
        faults.point("save", step)
