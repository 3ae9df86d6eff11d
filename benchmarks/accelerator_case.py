"""One case of benchmarks/accelerator.py, measured in this process, whose device nothing else uses.

python -m benchmarks.accelerator_case CASE --part FILE.json --seconds S [--steps N] [--trace DIR]

The part is written anew whenever something more is known, so that what is known is there when time ends.
"""

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from benchmarks import accelerator_checks
from benchmarks.accelerator_device import device, live_memory, peak
from benchmarks.accelerator_runs import CASES, CHECKS, MODEL, AlternatingJudge, configured
from grpo_jax import cli, footprint, planning
from grpo_jax.config import RunConfig, dotted, to_nested
from grpo_jax.forensics import present
from grpo_jax.forensics.compiled import DoesNotFit
from grpo_jax.io.display import Display
from grpo_jax.io.metrics import read_metrics
from grpo_jax.io.resources import memory_metrics
from grpo_jax.io.run_folder import RunFolder
from grpo_jax.rollout.jax_engine import JaxEngine
from grpo_jax.training import evaluation, setup
from grpo_jax.training.published import initial_params
from grpo_jax.training.trainer import Trainer
from grpo_jax.training.watchdog import Watchdog
from grpo_jax.verifiers.pool import open_pool

PHASES = ("rollout", "verify", "prepare", "update")
"""As the metrics name them."""

COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"
"""What JAX calls the time that its compiler takes."""

KERNELS = {"cuDNN": "__cudnn$fmha", "splash": "splash"}
"""Kernels of attention, and what shows them in a lowered program; where none does, it is the blockwise form."""

SHOWN_KEYS = (
    "data.max_prompt_tokens",
    "rollout.max_new_tokens",
    "rollout.prompts_per_step",
    "rollout.completions_per_prompt",
    "algorithm.micro_batch_completions",
    "algorithm.kl_beta",
    "optimizer.gradient_dtype",
    "optimizer.moments_dtype",
    "model.remat",
)
"""Keys of the configuration that are recorded beside what was measured."""

SANITY = ("loss", "kl", "grad_norm", "nonfinite_update", "active_group_ratio", "entropy")
MISMATCH = "sampling/sampling_logp_difference"


def backend_of(text: str) -> str:
    """The form of attention over whole rows that a lowered program holds."""
    return next((name for name, mark in KERNELS.items() if mark in text), "blockwise")


class Steps:
    """Steps of a run on its own mesh, as the trainer does them."""

    def __init__(self, trainer: Trainer, parts: setup.Parts) -> None:
        """Makes the state before the first step, with the published weights where there are some."""
        self._trainer, self._phase = trainer, trainer.recipe_phase()
        params = initial_params(parts.published, evaluation.run_keys(parts.config.seed)[0], parts.spec)
        self._state = jax.jit(self._phase.recipe.init)(params)
        self.done = 0

    def do(self) -> dict[str, Any]:
        """Does one step, every phase of which ends on the host; returns its row of metrics."""
        self.done += 1
        self._state = self._phase.step(self._phase, self._state, self.done)
        jax.block_until_ready(self._state)
        return read_metrics(self._trainer.run.folder.metrics)[-1]


@contextlib.contextmanager
def steps_of(parts: setup.Parts) -> Iterator[Steps]:
    """Opens a run as ``grpo_jax.train`` does, in a folder that goes away."""
    config, tokenizer = parts.config, parts.tokenizer
    engine = JaxEngine(
        parts.spec,
        eos_ids=(parts.spec.vocab_size,),  # an id that is never drawn
        pad_id=tokenizer.pad_id,
        batch_completions=config.rollout.prompts_at_once * config.rollout.completions_per_prompt,
        chunk_tokens=config.rollout.decode_chunk_tokens,
        tokenizer=tokenizer,
    )
    with contextlib.ExitStack() as opened:
        pool = opened.enter_context(open_pool(config.verifier))
        pool.wait_until_ready()
        path = Path(opened.enter_context(tempfile.TemporaryDirectory())) / "run"
        folder = opened.enter_context(RunFolder.open(path, to_nested(config), overrides={}))
        opened.enter_context(jax.set_mesh(parts.mesh))
        display = opened.enter_context(Display(silent=True))
        watchdog = opened.enter_context(Watchdog(config.watchdog))
        trainer = Trainer(parts, folder, engine, AlternatingJudge(pool), display, watchdog)
        opened.callback(trainer.run.close)
        yield Steps(trainer, parts)


def run_steps(
    parts: setup.Parts, wanted: int, ends: float, trace: Path | None, found: dict[str, Any], write: Callable[[], None]
) -> None:
    """Does the step that compiles and so many more, as long as there is time, and adds what it measures to the row.

    Args:
        parts: The run.
        wanted: Steps after the first.
        ends: When time is over, by ``time.monotonic``.
        trace: Folder for a profile of one more step.
        found: The row; ``out_of_memory`` is in it if that ended the steps.
        write: Keeps what is known so far.
    """
    compiled: list[float] = []

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if event == COMPILE_EVENT:
            compiled.append(duration_secs)

    before = memory_metrics()["memory/host_peak_bytes"]
    rows: list[dict[str, Any]] = []
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        with steps_of(parts) as steps:
            first = steps.do()
            found |= {"compile_seconds": sum(compiled), "first_step_seconds": first["step_time"]}
            compiled.clear()
            write()
            while len(rows) < wanted and time.monotonic() + _longest(rows) < ends:
                rows.append(steps.do())
                found |= speed(rows)
                found |= {"compilations_after_the_first_step": len(compiled), "memory": live_memory(before)}
                write()
            if len(rows) < wanted:
                found["ended"] = f"there was time for {len(rows)} of {wanted} steps after the first"
            if trace is not None:
                with jax.profiler.trace(str(trace)):
                    steps.do()
                found["trace"] = str(trace)
    except Exception as error:
        if not cli.exhausted(error):
            raise
        found |= {"out_of_memory": str(error).partition("\n")[0]}
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def _longest(rows: list[dict[str, Any]]) -> float:
    return max((row["step_time"] for row in rows), default=0.0)


def speed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the steps after the first.

    Args:
        rows: Their metrics; one at least.

    Returns:
        Seconds and new tokens per second by phase and of the whole step, and what shows that training is sane.
    """
    last = rows[-1]
    tokens = last["num_tokens"] / last["step"]
    seconds = {name: [row[f"seconds/{name}"] for row in rows] for name in PHASES}
    seconds["step"] = [row["step_time"] for row in rows]
    median = {name: statistics.median(values) for name, values in seconds.items()}
    sanity = {name: last[name] for name in SANITY if name in last}
    return {
        "steps": len(rows),
        "new_tokens_per_step": tokens,
        "seconds": median,
        "seconds_of_each_step": seconds,
        "tokens_per_second": {name: tokens / median[name] for name in ("rollout", "prepare", "update", "step")},
        "sanity": sanity | {f"sampler_trainer_difference_{of}": last[f"{MISMATCH}/{of}"] for of in ("mean", "max")},
    }


def utilisation(
    seconds: Mapping[str, float], flops: Mapping[str, float], flops_per_second: float
) -> dict[str, float | None]:
    """Share of the device's arithmetic that matrix products take up.

    Args:
        seconds: By phase, and of the whole step.
        flops: Of matrix products, by phase.
        flops_per_second: What the device can do.

    Returns:
        Shares by phase and of the whole step; None where a phase has no matrix product.
    """
    counted = {**flops, "step": sum(flops.values())}
    return {
        name: count / (seconds[name] * flops_per_second) if count and seconds[name] else None
        for name, count in counted.items()
    }


def predict(config: RunConfig, found: dict[str, Any], write: Callable[[], None]) -> None:
    """Adds what the run's programs ask for to what was measured.

    Args:
        config: The run.
        found: From ``run_steps``.
        write: Keeps what is known so far.
    """
    lowered = footprint.lower_programs(config, jax.devices())
    flops = planning.phase_flops(config, lowered)
    programs = {"update": lowered.run.step.update, "prefill": lowered.sampling.start}
    found |= {
        "flops": flops,
        "attention": {name: backend_of(program.lowered.as_text()) for name, program in programs.items()},
    }
    if "seconds" in found:
        found |= {"utilisation": utilisation(found["seconds"], flops, peak(lowered.run.spec.compute_dtype)[0])}
    write()
    try:
        compiled = footprint.compile_programs(lowered, present.topology())
    except DoesNotFit as error:
        found["predicted_out_of_memory"] = str(error)
        return
    needed = {name: program.needed_bytes for name, program in compiled.items()}
    found["predicted_bytes"] = needed
    if "memory" in found:
        found["memory"]["predicted_bytes"] = max(needed.values())
        found["memory"]["live_over_predicted"] = found["memory"]["live_bytes"] / max(needed.values())
    write()


def main() -> None:
    """Measures one case."""
    parser = argparse.ArgumentParser(description="Measures one case.")
    parser.add_argument("case", choices=list(CASES))
    parser.add_argument("--part", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--trace", type=Path)
    given = parser.parse_args()
    ends = time.monotonic() + given.seconds
    dtype = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    found: dict[str, Any] = {"compute_dtype": dtype}
    part: dict[str, Any] = {"row": found}

    def write() -> None:
        # Whole or not at all: it may be read when this process has been killed.
        fresh = given.part.with_suffix(".fresh")
        fresh.write_text(json.dumps(part, indent=2) + "\n")
        fresh.replace(given.part)

    if jax.device_count() != 1:
        raise SystemExit(f"devices: got {jax.device_count()}, wanted 1: CUDA_VISIBLE_DEVICES or TPU_VISIBLE_CHIPS")
    if given.case == CHECKS:
        part["device"] = device(dtype)
        for name, outcome in accelerator_checks.outcomes():
            found.setdefault("outcomes", {})[name] = outcome
            write()
        return
    if given.case == MODEL and dtype == "float32":
        raise SystemExit(f"{MODEL}: got a processor, which would take hours; --scale small is for it")
    config = configured(given.case, dtype, present.device_bytes())
    found["config"] = {key: value for key, value in dotted(to_nested(config)).items() if key in SHOWN_KEYS}
    parts = setup.build(config)
    run_steps(parts, given.steps, ends, given.trace, found, write)
    # Only now: a large product would be among the highest memory use.
    part["device"] = device(dtype)
    write()
    if time.monotonic() < ends:
        predict(config, found, write)
    else:
        found["ended"] = f"{found.get('ended', 'all steps were done')}; none was left to compile what was predicted"
        write()


if __name__ == "__main__":
    main()
