"""What a run will be, before it begins: its parts in words, bytes on each device, and how long it takes at least."""

import functools
import math
import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from grpo_jax.config import OptimizerConfig, RunConfig, dotted, to_nested
from grpo_jax.data.splits import SPLITS
from grpo_jax.forensics import static
from grpo_jax.forensics.sampling import LoweredSampling, lower_rollout
from grpo_jax.models import adapters, precision
from grpo_jax.models.adapters import init_adapters
from grpo_jax.models.parameters import count
from grpo_jax.training import setup
from grpo_jax.training.abstract import LoweredRun, lower_run
from grpo_jax.training.recipe import TrainState

PARTS = ("parameters", "gradients", "optimizer", "reference", "caches", "batch")
"""What is added up."""

MOMENTS = ("while sampling", "while updating")
"""Sums of what exists at once: caches while sampling, gradients and batch while updating."""


_MEASURED = {"cpu": 1024, "default": 8192}
"""Rows and columns of the matrices whose product shows how fast a device is."""


class Plan(NamedTuple):
    """What a run needs.

    Attributes:
        held: See ``held_bytes``.
        device_bytes: What one device has, or None where it does not say.
        step_flops: Matrix products of one training step in which every group takes part and every completion has its
            full length; of all devices together.
        flops_per_second: Of one device, measured on one matrix product.
    """

    held: dict[str, int]
    device_bytes: int | None
    step_flops: float
    flops_per_second: float

    @property
    def step_seconds(self) -> float:
        """How long the matrix products of a step take."""
        return self.step_flops / (self.flops_per_second * jax.device_count())


def models(state: Any) -> dict[str, TrainState]:
    """The models in training by name: the policy, and the critic where there is one."""
    return {"policy": state} if isinstance(state, TrainState) else {"policy": state.actor, "critic": state.critic}


def held_bytes(config: RunConfig, devices: int | None = None) -> dict[str, int]:
    """Lowers a run's programs over devices of this process and adds up what lives between them.

    Args:
        config: The run.
        devices: How many; None for all.

    Returns:
        Bytes on each device by part (``PARTS``) and at once (``MOMENTS``).

    Raises:
        ConfigError: for a configuration that does not fit together, or not on these devices.
    """
    return _held(config, *_lowered(config, devices))


def _lowered(config: RunConfig, devices: int | None = None) -> tuple[LoweredRun, LoweredSampling]:
    run = lower_run(config, jax.devices()[:devices])
    with jax.set_mesh(run.mesh):
        return run, lower_rollout(config, run.spec, run.step.state.params)


def _held(config: RunConfig, run: LoweredRun, sampling: LoweredSampling) -> dict[str, int]:
    held_models = models(run.step.state).values()
    gradients = [
        _gradients(model, optimizer)
        for model, optimizer in zip(held_models, (config.optimizer, config.ppo.critic), strict=False)
    ]
    held = {
        "parameters": sum(static.device_bytes(model.params) for model in held_models),
        "gradients": static.device_bytes(gradients),
        "optimizer": sum(static.device_bytes(model.optimizer) for model in held_models),
        "reference": sum(static.device_bytes(model.reference) for model in held_models),
        "caches": static.device_bytes((sampling.prompt_cache, sampling.state)),
        "batch": static.device_bytes(run.step.batch),
    }
    resident = held["parameters"] + held["optimizer"] + held["reference"]
    sums = (resident + held["caches"], resident + held["gradients"] + held["batch"])
    return held | dict(zip(MOMENTS, sums, strict=True))


def _gradients(model: TrainState, optimizer: OptimizerConfig) -> Any:
    """Shapes of the gradients that are added up."""
    narrowed = functools.partial(precision.narrowed, dtype=optimizer.gradient_dtype)
    trained = adapters.trained(model.params)
    return trained if optimizer.gradient_dtype == "float32" else jax.eval_shape(narrowed, trained)


def plan(config: RunConfig) -> Plan:
    """Works out what a run needs on the devices of this process.

    Args:
        config: The run.

    Returns:
        The plan.

    Raises:
        ConfigError: for a configuration that does not fit together, or not on these devices.
    """
    run, sampling = _lowered(config)
    drawn = sampling.start.flops + config.rollout.max_new_tokens * sampling.advance.flops
    trained = run.step.prepare.flops + config.algorithm.passes_per_batch * run.step.update.flops
    return Plan(
        _held(config, run, sampling),
        _device_bytes(),
        drawn + trained,
        _flops_per_second(jnp.dtype(run.spec.compute_dtype)),
    )


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
    """
    config, default = (dotted(to_nested(one)) for one in (parts.config, RunConfig()))
    for key, value in config.items():
        if value != default[key]:
            yield f"config.{key}={value!r}  (default {default[key]!r})"
    for name, line in described(parts).items():
        yield f"{name:<12} {line}"
    planned = plan(parts.config)
    peak = max(planned.held[moment] for moment in MOMENTS)
    of = f" of {planned.device_bytes / static.GIBIBYTE:.1f}" if planned.device_bytes else ""
    shares = ", ".join(f"{part} {planned.held[part] / static.GIBIBYTE:.3f}" for part in PARTS)
    yield f"{'memory':<12} {peak / static.GIBIBYTE:.3f}{of} GiB on each device between programs ({shares});"
    yield f"{'':<12} activations come on top (grpo_jax.memory --compile)"
    if planned.device_bytes and peak > planned.device_bytes:
        yield f"{'':<12} THIS DOES NOT FIT. docs/memory.md says which keys make it smaller."
    steps, seconds = parts.config.steps, planned.step_seconds
    yield (
        f"{'time':<12} {_duration(steps * seconds)} of matrix products for {steps} steps of full-length completions "
        f"({planned.step_flops:.2e} operations each; {planned.flops_per_second:.2e} per second and device, measured);"
    )
    yield f"{'':<12} judges, evaluations, a cold start and what is no matrix product come on top"


def _device_bytes() -> int | None:
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // jax.local_device_count()
    return (device.memory_stats() or {}).get("bytes_limit")


def _flops_per_second(dtype: jnp.dtype) -> float:
    device = jax.local_devices()[0]
    size = _MEASURED.get(device.platform, _MEASURED["default"])
    matrix = jax.device_put(jnp.ones((size, size), dtype), device)
    product = jax.jit(lambda left, right: left @ right)
    product(matrix, matrix).block_until_ready()
    seconds = math.inf
    for _ in range(3):
        started = time.perf_counter()
        product(matrix, matrix).block_until_ready()
        seconds = min(seconds, time.perf_counter() - started)
    return 2 * size**3 / seconds


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} seconds"
