"""What a run will be, before it begins: its parts in words, bytes on each device, and how long it takes at least."""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from grpo_jax.config import RunConfig, dotted, to_nested
from grpo_jax.data.splits import SPLITS
from grpo_jax.footprint import LEVERS, MOMENTS, PARTS, Lowered, compile_programs, held_between, lower_programs
from grpo_jax.forensics import present, static
from grpo_jax.forensics.compiled import DoesNotFit
from grpo_jax.models.adapters import init_adapters
from grpo_jax.models.parameters import count
from grpo_jax.training import setup


class Plan(NamedTuple):
    """What a run needs.

    Attributes:
        held: See ``footprint.held_bytes``.
        needed: Bytes on each device while each program runs, what is held beside it included, as its compiler says.
        device_bytes: What one device has, or None where it does not say.
        step_flops: Matrix products of one training step in which every group takes part and every completion has its
            full length; of all devices together.
        flops_per_second: Of one device, measured on one matrix product.
    """

    held: dict[str, int]
    needed: dict[str, int]
    device_bytes: int | None
    step_flops: float
    flops_per_second: float

    @property
    def step_seconds(self) -> float:
        """How long the matrix products of a step take."""
        return self.step_flops / (self.flops_per_second * jax.device_count())


def plan(config: RunConfig) -> Plan:
    """Works out what a run needs on the devices of this process.

    Args:
        config: The run.

    Returns:
        The plan.

    Raises:
        ConfigError: for a configuration that does not fit together, or not on these devices.
    """
    lowered = lower_programs(config, jax.devices())
    return Plan(
        held_between(config, lowered),
        _needed(lowered),
        present.device_bytes(),
        sum(phase_flops(config, lowered).values()),
        present.flops_per_second(jnp.dtype(lowered.run.spec.compute_dtype)),
    )


def phase_flops(config: RunConfig, lowered: Lowered) -> dict[str, float]:
    """Counts the matrix products of a training step in which every group takes part, at full length.

    Args:
        config: The run.
        lowered: From ``lower_programs``, with all micro-batches.

    Returns:
        Floating-point operations of all devices together, by phase as the metrics name them.
    """
    rollout, (run, sampling) = config.rollout, lowered
    batches = -(-rollout.prompts_per_step // rollout.prompts_at_once)
    return {
        "rollout": batches * (sampling.start.flops + rollout.max_new_tokens * sampling.advance.flops),
        "prepare": run.step.prepare.flops,
        "update": config.algorithm.passes_per_batch * run.step.update.flops,
    }


def _needed(lowered: Lowered) -> dict[str, int]:
    return {name: program.needed_bytes for name, program in compile_programs(lowered, present.topology()).items()}


def require_fit(config: RunConfig, needed: Mapping[str, int], device_bytes: int | None) -> None:
    """Refuses a run that the devices of this process have no room for.

    Args:
        config: The run.
        needed: See ``Plan``.
        device_bytes: What one device has; None where it does not say.

    Raises:
        DoesNotFit: if a program needs more.
    """
    over = {name: size for name, size in needed.items() if device_bytes and size > device_bytes}
    if over:
        raise DoesNotFit(f"config: too large for the devices. {_remedy(config, over)}")


def explain_exhaustion(config: RunConfig) -> str:
    """What a run that has run out of memory needs, compiled for the devices of this process.

    Args:
        config: The run.

    Returns:
        Bytes of the programs that need most, and the keys that make them smaller.
    """
    needed = _needed(lower_programs(config, jax.devices()))
    least = min(present.device_bytes() or math.inf, max(needed.values()))
    return _remedy(config, {name: size for name, size in needed.items() if size >= least})


def _remedy(config: RunConfig, large: Mapping[str, int]) -> str:
    values = dotted(to_nested(config))
    keys = dict.fromkeys(key for name in large for key in LEVERS[name])
    return (
        f"As compiled, {_gibibytes(large)} GiB are needed on each device{_there_are()}. What decides it first: "
        f"{', '.join(f'config.{key}={values[key]}' for key in keys)}. "
        "docs/memory.md has all keys that make it less, and --dry_run says what comes of them."
    )


def _gibibytes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size / static.GIBIBYTE:.3f}" for name, size in sizes.items())


def _there_are() -> str:
    size = present.device_bytes()
    return f", of {size / static.GIBIBYTE:.3f} that it has" if size else ""


def described(parts: setup.Parts) -> dict[str, str]:
    """A run's policy and problems in words.

    Args:
        parts: From ``setup.build``.

    Returns:
        A line for each.
    """
    trained = ""
    if parts.spec.lora:
        shapes = jax.eval_shape(lambda: init_adapters(jax.random.key(0), parts.spec))
        trained = f", adapters of {sum(leaf.size for leaf in jax.tree.leaves(shapes)):,} are trained"
    mesh = ", ".join(f"{axis} {size}" for axis, size in parts.mesh.shape.items() if size > 1) or "one device"
    if jax.process_count() > 1:
        mesh += f"; {jax.process_count()} processes"
    return {
        "policy": f"{count(parts.spec):,} parameters{trained} on {jax.devices()[0].device_kind} ({mesh})",
        "problems": ", ".join(f"{len(parts.task.problems(split)):,} {split}" for split in SPLITS),
    }


def lines(parts: setup.Parts) -> Iterator[str]:
    """What ``--dry_run`` prints.

    Args:
        parts: From ``setup.build``.

    Yields:
        Keys that differ from their defaults, the parts of the run, its memory and its time.

    Raises:
        DoesNotFit: at the end, if a device has no room for the run.
    """
    config, default = (dotted(to_nested(one)) for one in (parts.config, RunConfig()))
    for key, value in config.items():
        if value != default[key]:
            yield f"config.{key}={value!r}  (default {default[key]!r})"
    for name, line in described(parts).items():
        yield f"{name:<12} {line}"
    planned = plan(parts.config)
    shares, moments = ({name: planned.held[name] for name in names} for names in (PARTS, MOMENTS))
    yield f"{'memory':<12} {_gibibytes(planned.needed)} GiB on each device{_there_are()}, as compiled;"
    yield f"{'':<12} between programs {_gibibytes(moments)} ({_gibibytes(shares)})"
    steps, seconds = parts.config.steps, planned.step_seconds
    yield (
        f"{'time':<12} {_duration(steps * seconds)} of matrix products for {steps} steps of full-length completions "
        f"({planned.step_flops:.2e} operations each; {planned.flops_per_second:.2e} per second and device, measured);"
    )
    yield f"{'':<12} judges, evaluations, a cold start and what is no matrix product come on top"
    require_fit(parts.config, planned.needed, planned.device_bytes)


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} seconds"
