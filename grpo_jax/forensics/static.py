"""Bytes that a run holds on each device, by rule: from shapes, dtypes and where they live."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax

GIBIBYTE = 2**30


def device_bytes(tree: Any) -> int:
    """Bytes of a tree's arrays on one device of the mesh in use.

    Args:
        tree: Arrays or ``jax.ShapeDtypeStruct``; what has no sharding is whole on each device. Explicit sharding makes
            all shards alike, so each device holds as much.

    Returns:
        Their bytes.
    """
    return sum(_leaf_bytes(leaf) for leaf in jax.tree.leaves(tree))


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
