"""A run's programs, and the memory that they take on each device: by rule between them, as compiled while they run."""

import functools
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from grpo_jax.config import OptimizerConfig, RunConfig
from grpo_jax.forensics import static
from grpo_jax.forensics.compiled import Compiled, compiled
from grpo_jax.forensics.hardware import Topology
from grpo_jax.forensics.sampling import LoweredSampling, lower_rollout
from grpo_jax.models import adapters, precision
from grpo_jax.training.abstract import LoweredRun, lower_run
from grpo_jax.training.recipe import TrainState

PARTS = ("parameters", "gradients", "optimizer", "reference", "caches", "batch")
"""What is added up."""

MOMENTS = ("while sampling", "while updating")
"""Sums of what exists at once: caches while sampling, gradients and batch while updating."""

LEVERS = {
    "update": ("algorithm.micro_batch_completions", "rollout.max_new_tokens", "data.max_prompt_tokens"),
    "prepare": ("algorithm.micro_batch_completions", "model.logprob_chunk_tokens", "rollout.max_new_tokens"),
    "prefill": ("rollout.batch_prompts", "data.max_prompt_tokens"),
    "decode": ("rollout.batch_prompts", "rollout.completions_per_prompt", "rollout.max_new_tokens"),
}
"""A run's programs, and the keys that decide most of what each needs on top of what is held between them."""


class Lowered(NamedTuple):
    """The programs of a run.

    Attributes:
        run: What trains on a batch.
        sampling: What draws one.
    """

    run: LoweredRun
    sampling: LoweredSampling


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
    return held_between(config, lower_programs(config, jax.devices()[:devices]))


def lower_programs(config: RunConfig, devices: Sequence[Any], micro_batches: int | None = None) -> Lowered:
    """Lowers all programs of a run.

    Args:
        config: The run.
        devices: Of its mesh.
        micro_batches: How many of a step's micro-batches an update goes through; None for all.

    Returns:
        The programs.

    Raises:
        ConfigError: for a configuration that does not fit together, or not on these devices.
    """
    run = lower_run(config, devices, micro_batches)
    with jax.set_mesh(run.mesh):
        return Lowered(run, lower_rollout(config, run.spec, run.step.state.params))


def compile_programs(lowered: Lowered, topology: Topology) -> dict[str, Compiled]:
    """Compiles all programs of a run.

    Args:
        lowered: From ``lower_programs``, for devices of the topology.
        topology: The topology.

    Returns:
        What each needs, by name (``LEVERS``).

    Raises:
        DoesNotFit: where a compiler refuses one for its size.
    """
    step, sampling = lowered.run.step, lowered.sampling
    held = static.device_bytes(step.state)
    programs = {
        "update": (step.update, held + static.device_bytes(step.batch)),
        "prepare": (step.prepare, held),
        "prefill": (sampling.start, held),
        "decode": (sampling.advance, held + static.device_bytes((sampling.prompt_cache, sampling.state))),
    }
    found = {}
    for name, (program, resident_bytes) in programs.items():
        print(f"compiling {name} for {topology.name}", file=sys.stderr)
        found[name] = compiled(program, topology, resident_bytes)
    return found


def held_between(config: RunConfig, lowered: Lowered) -> dict[str, int]:
    """Adds up what lives between a run's programs.

    Args:
        config: The run.
        lowered: From ``lower_programs``.

    Returns:
        See ``held_bytes``.
    """
    run, sampling = lowered
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
