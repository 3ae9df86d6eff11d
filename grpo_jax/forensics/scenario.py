"""A run that stands for a published model: enough of one to compile it, and what the model is said to be."""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from grpo_jax.config import ConfigError, RunConfig, from_nested, to_nested
from grpo_jax.forensics import static
from grpo_jax.forensics.hardware import GIGABYTE
from grpo_jax.forensics.static import Dtypes
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel.mesh import AXES

SAID = {"mixtral-8x7b": 47e9, "deepseek-v2-lite": 16e9, "deepseek-v3": 671e9}
"""Parameters of models whose name does not say how many."""

PUBLISHED_DTYPES = {
    "deepseek-v3": Dtypes(weights="float8_e4m3fn", gradients="bfloat16", reference="float8_e4m3fn"),
}
"""How models are published that are not in bfloat16."""

CLAIMED_GB = {"deepseek-v3": {"ppo": 14_800.0, "grpo": 7_800.0}}
"""Totals that an article states for mixed-precision training of these models."""

REPRODUCED_WITHIN = 0.01
"""A total that is said to be "about" so much agrees to 1%."""


def said_parameters(model: str, counted: int) -> float:
    """The round number of parameters that a model goes by.

    Args:
        model: Name of a preset.
        counted: Its real number, for a name that says none.

    Returns:
        Parameters.
    """
    size = re.search(r"-(\d+(?:\.\d+)?)([bm])(?=-|$)", model)
    if size is None:
        return SAID.get(model, float(counted))
    return float(size[1]) * {"b": 1e9, "m": 1e6}[size[2]]


def parse_mesh(text: str) -> dict[str, int]:
    """Reads a mesh.

    Args:
        text: ``AXIS=SIZE,...``; axes that it leaves out have size 1.

    Returns:
        Size of every axis.

    Raises:
        ConfigError: for anything else.
    """
    sizes: dict[str, int] = dict.fromkeys(AXES, 1)
    for part in text.split(","):
        axis, _, size = part.strip().partition("=")
        if axis not in sizes or not re.fullmatch(r"[1-9]\d*", size):
            raise ConfigError(f"--mesh: got {text!r}, wanted AXIS=SIZE,... of {', '.join(AXES)}, as fsdp=8,tensor=8.")
        sizes[axis] = int(size)
    return sizes


def scenario(model: str, algorithm: str, tokens: int, mesh: Mapping[str, int], rows: int) -> dict[str, Any]:
    """What a run of a published model is, by dotted key: the smallest step that fills every device.

    Args:
        model: Name of a preset.
        algorithm: ``grpo`` or ``ppo``.
        tokens: Of a prompt and its completion, about half each. Prompts have the length of a bucket.
        mesh: Size of every axis.
        rows: Completions of a micro-batch in each shard of a batch.

    Returns:
        Values by key.
    """
    shards = mesh["data"] * mesh["fsdp"] * mesh["expert"]
    prompt_tokens = 1 << (tokens // 2).bit_length() - 1
    return {
        "recipe": algorithm,
        "model.path": model,
        "model.compute_dtype": "bfloat16",
        "model.remat": "full",
        "data.max_prompt_tokens": prompt_tokens,
        "rollout.max_new_tokens": tokens - prompt_tokens,
        "rollout.prompts_per_step": shards,
        "rollout.completions_per_prompt": 2 * rows,
        "algorithm.micro_batch_completions": shards * rows,
        "evaluation.samples_per_problem": 1,
        "evaluation.test_samples_per_problem": 1,
        **{f"mesh.{axis}": size for axis, size in mesh.items()},
    }


def with_defaults(config: RunConfig, values: Mapping[str, Any], overrides: Mapping[str, Any]) -> RunConfig:
    """A configuration with values for all keys that were not given.

    Args:
        config: The configuration.
        values: By dotted key.
        overrides: The keys that were given.

    Returns:
        The configuration.
    """
    nested = to_nested(config)
    for key, value in values.items():
        if key not in overrides:
            *sections, name = key.split(".")
            section = nested
            for part in sections:
                section = section[part]
            section[name] = value
    return from_nested(type(config), nested)


def default_mesh(spec: ModelSpec, devices: int, devices_per_host: int) -> dict[str, int]:
    """The plain mesh of a dense model: ``tensor`` within a host as far as the heads go, ``fsdp`` over everything else.

    Args:
        spec: The model.
        devices: How many there are.
        devices_per_host: How many of them are joined closely.

    Returns:
        Size of every axis.
    """
    heads = spec.num_heads if spec.latent else spec.num_kv_heads
    tensor = math.gcd(devices_per_host, heads)
    sizes: dict[str, int] = dict.fromkeys(AXES, 1)
    return sizes | {"fsdp": devices // tensor, "tensor": tensor}


def static_figures(
    model: str, counted: int, algorithm: str, devices: int, parameters: float | None, dtypes: Dtypes
) -> dict[str, Any]:
    """Bytes by rule of a run of a published model.

    Args:
        model: Name of a preset.
        counted: Its real number of parameters.
        algorithm: ``grpo`` or ``ppo``.
        devices: How many accelerators there are.
        parameters: Number to reckon with; None for the round one that the model goes by.
        dtypes: In what each component is held.

    Returns:
        Figures by name, in gigabytes.
    """
    parameters = said_parameters(model, counted) if parameters is None else parameters
    held = static.bytes_by_rule(parameters, algorithm, dtypes)
    total_gb = static.total(held) / GIGABYTE
    claimed = CLAIMED_GB.get(model, {}).get(algorithm)
    return {
        "parameters": parameters,
        "counted_parameters": counted,
        "dtypes": dataclasses.asdict(dtypes),
        "components_gb": static.in_gigabytes(held),
        "total_gb": total_gb,
        "claim": claimed and {"total_gb": claimed, "reproduced": abs(total_gb / claimed - 1) <= REPRODUCED_WITHIN},
        "choices": static.choices(parameters, algorithm, dtypes),
        "fits_on": static.fits_on(static.total(held), devices),
    }


def dtypes_of(model: str, changes: Mapping[str, str | None]) -> Dtypes:
    """The dtypes of a model's components.

    Args:
        model: Name of a preset.
        changes: Those that were chosen.

    Returns:
        The dtypes.
    """
    chosen = {name: dtype for name, dtype in changes.items() if dtype is not None}
    return dataclasses.replace(PUBLISHED_DTYPES.get(model, Dtypes()), **chosen)
