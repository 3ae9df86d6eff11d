"""Bytes by rule: from numbers of parameters, shapes, dtypes and where they live."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax

from grpo_jax.forensics.hardware import GIGABYTE, HARDWARE

GIBIBYTE = 2**30

HOST = "pinned_host"
"""The host's memory, where devices can fetch from it."""

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float8_e4m3fn": 1, "int8": 1, "none": 0}
"""Bytes of a number; ``none`` is not held."""

Components = dict[str, dict[str, float]]
"""Bytes or gigabytes by model and component."""


@dataclasses.dataclass(frozen=True)
class Dtypes:
    """In what each component of a run is held.

    Attributes:
        weights: What is computed with.
        master: What the optimizer moves.
        moments: Both of AdamW's.
        gradients: Gradients.
        reference: The frozen reference's weights.
    """

    weights: str = "bfloat16"
    master: str = "float32"
    moments: str = "float32"
    gradients: str = "float32"
    reference: str = "bfloat16"


def bytes_by_rule(parameters: float, algorithm: str, dtypes: Dtypes) -> Components:
    """What all devices together hold of models in mixed-precision training with AdamW, activations aside.

    Args:
        parameters: Of each model.
        algorithm: ``grpo``, or ``ppo`` with a critic as large as the policy.
        dtypes: In what each component is held.

    Returns:
        Bytes by model and component.
    """
    held = lambda dtype: parameters * DTYPE_BYTES[dtype]  # noqa: E731
    trained = {
        "weights": held(dtypes.weights),
        "master": held(dtypes.master),
        "first_moment": held(dtypes.moments),
        "second_moment": held(dtypes.moments),
        "gradients": held(dtypes.gradients),
    }
    critic = {"critic": dict(trained)} if algorithm == "ppo" else {}
    return {"policy": trained} | critic | {"reference": {"weights": held(dtypes.reference)}}


def total(components: Components) -> float:
    """The sum over models and components."""
    return sum(sum(model.values()) for model in components.values())


def in_gigabytes(components: Components) -> Components:
    """Bytes as gigabytes."""
    return {model: {name: value / GIGABYTE for name, value in of.items()} for model, of in components.items()}


def choices(parameters: float, algorithm: str, dtypes: Dtypes) -> dict[str, dict[str, dict[str, float]]]:
    """What other dtypes would give, one at a time.

    Args:
        parameters: Of each model.
        algorithm: See ``bytes_by_rule``.
        dtypes: Those that the others keep.

    Returns:
        By field of ``Dtypes`` and dtype: gigabytes of one trained model, and of everything.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for field in dataclasses.fields(Dtypes):
        for dtype in DTYPE_BYTES:
            held = bytes_by_rule(parameters, algorithm, dataclasses.replace(dtypes, **{field.name: dtype}))
            trained = total({"policy": held["policy"]})
            sums = {"trained_model_gb": trained / GIGABYTE, "total_gb": total(held) / GIGABYTE}
            found.setdefault(field.name, {})[dtype] = sums
    return found


def fits_on(total_bytes: float, devices: int) -> dict[str, dict[str, Any]]:
    """How many accelerators of each kind would hold so much, activations aside.

    Args:
        total_bytes: What is held.
        devices: How many there are.

    Returns:
        By kind: ``memory_gb`` of one, ``needed`` of them, and whether ``devices`` of them hold it.
    """
    return {
        name: {
            "memory_gb": kind.memory_bytes / GIGABYTE,
            "needed": math.ceil(total_bytes / kind.memory_bytes),
            "fits": total_bytes <= devices * kind.memory_bytes,
        }
        for name, kind in HARDWARE.items()
    }


def device_bytes(tree: Any) -> int:
    """Bytes of a tree's arrays in the memory of one device of the mesh in use.

    Args:
        tree: Arrays or ``jax.ShapeDtypeStruct``; what has no sharding is whole on each device. Explicit sharding makes
            all shards alike, so each device holds as much.

    Returns:
        Their bytes, without those of arrays in the host's memory.
    """
    return sum(_leaf_bytes(leaf) for leaf in jax.tree.leaves(tree) if not _on_host(leaf))


def host_bytes(tree: Any) -> int:
    """Bytes of a tree's arrays in the host's memory, for one device; see ``device_bytes``."""
    return sum(_leaf_bytes(leaf) for leaf in jax.tree.leaves(tree) if _on_host(leaf))


def _on_host(leaf: Any) -> bool:
    return leaf.sharding is not None and leaf.sharding.memory_kind == HOST


def _leaf_bytes(leaf: Any) -> int:
    shape = leaf.shape if leaf.sharding is None else leaf.sharding.shard_shape(leaf.shape)
    return math.prod(shape) * leaf.dtype.itemsize


def markdown_table(rows: Mapping[str, Mapping[str, int]], columns: Iterable[str], heading: str) -> str:
    """A table of bytes in GiB.

    Args:
        rows: Bytes by column for each row.
        columns: Columns to show, in order.
        heading: Name of the first column.

    Returns:
        Markdown.
    """
    columns = list(columns)
    lines = [f"| {heading} | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for name, values in rows.items():
        lines.append(f"| {name} | {' | '.join(f'{values[column] / GIBIBYTE:.3f}' for column in columns)} |")
    return "\n".join(lines)
