"""From logical axis names to mesh axes: the one table, and the functions that apply it.

Models and training name what an axis *is* (``"batch"``, ``"heads"``); this table says where it lives. Without a
mesh (``jax.set_mesh`` was not called) every function here leaves arrays as they are.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint

BATCH = "batch"
"""Rows of a batch: completions, prompts, or worked examples."""

POSITIONS = "positions"
"""Positions of a row inside a layer."""

RESIDUAL = "residual"
"""Positions of a row between layers: norms and sums are computed, and inputs of layers kept, in parts."""

RULES: dict[str, str | tuple[str, ...] | None] = {
    BATCH: ("data", "fsdp", "expert"),
    "layers": None,
    POSITIONS: "context",
    RESIDUAL: ("context", "tensor"),
    "embed": ("fsdp", "context", "expert"),
    "expert_embed": ("fsdp", "context"),
    "heads": "tensor",
    "mlp": "tensor",
    "vocab": "tensor",
    "expert": "expert",
}
"""Mesh axes of each logical axis."""

GATHERED = frozenset({"embed", "expert_embed"})
"""The model axis of parameters, which are gathered along it before use: of all, and of those that have experts too."""

LogicalAxes = Sequence[str | None]


def has_mesh() -> bool:
    """Whether a mesh is in use."""
    return not jax.sharding.get_abstract_mesh().empty


def platform() -> str:
    """The platform of the mesh in use, whose devices may be described only; without a mesh, the default backend's."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return jax.default_backend() if device is None else device.platform


def partition(axes: LogicalAxes) -> jax.P:
    """The partition of an array with these logical axes; None stands for an axis that is not sharded."""
    return jax.P(*(None if axis is None else RULES[axis] for axis in axes))


def sharding(*axes: str | None) -> jax.P | None:
    """The ``out_sharding`` of an operation whose result has these logical axes; None without a mesh."""
    return partition(axes) if has_mesh() else None


def shard(array: jax.Array, *axes: str | None) -> jax.Array:
    """Moves an array to the partition of these logical axes; its cotangent moves back."""
    return jax.sharding.reshard(array, partition(axes)) if has_mesh() else array


def in_parts(array: jax.Array, axis: int = 1) -> jax.Array:
    """Spreads the positions of rows over the mesh in use, filled up with zeros (padding) until they divide.

    Args:
        array: Rows in front of their positions.
        axis: That of the positions.

    Returns:
        The array, which may have more positions.
    """
    missing = -array.shape[axis] % shards(RESIDUAL)
    if missing:
        array = jnp.pad(array, [(0, missing if at == axis else 0) for at in range(array.ndim)])
    names = {axis - 1: BATCH, axis: POSITIONS}
    return shard(array, *(names.get(at) for at in range(array.ndim)))


def mesh_axes(place: jax.P) -> tuple[str, ...]:
    """The mesh axes over which an array of this partition is cut."""
    entries = (entry for entry in place if entry is not None)
    return tuple(axis for entry in entries for axis in ((entry,) if isinstance(entry, str) else entry))


def whole(array: jax.Array, axis: int) -> jax.Array:
    """Gathers one axis of an array, and leaves the others where they are."""
    if not has_mesh():
        return array
    spec = jax.typeof(array).sharding.spec
    return jax.sharding.reshard(array, jax.P(*(None if at == axis else name for at, name in enumerate(spec))))


def replicate(array: jax.Array) -> jax.Array:
    """Gathers an array onto every device."""
    return shard(array, *(None,) * array.ndim)


def batch_shards() -> int:
    """Into how many parts a batch is cut on the mesh in use."""
    return shards(BATCH)


def shards(name: str) -> int:
    """Into how many parts a logical axis is cut on the mesh in use."""
    return _parts(partition((name,)))


def _parts(place: jax.P) -> int:
    sizes = jax.sharding.get_abstract_mesh().shape
    return math.prod(sizes.get(axis, 1) for axis in mesh_axes(place))


def on_device(tree: Any) -> Any:
    """Brings arrays out of the host's memory; those that are on the device are themselves."""
    return _in_memory(tree, jax.memory.Space.Device)


def on_host(tree: Any) -> Any:
    """Moves arrays into the host's (pinned) memory, where devices can fetch them from."""
    return _in_memory(tree, jax.memory.Space.Host)


def _in_memory(tree: Any, space: Any) -> Any:
    return jax.tree.map(
        lambda array: array if jax.typeof(array).memory_space == space else jax.device_put(array, space), tree
    )


def gather_parameters(parameters: Any, axes: Any) -> Any:
    """Gathers parameters along their model axis for use, keeping other shards; gradients are scattered back.

    Args:
        parameters: Nested dict of arrays.
        axes: Nested dict of the same structure with logical axes.

    Returns:
        The parameters with their model axes whole.
    """
    if not has_mesh():
        return parameters
    return jax.tree.map(_gathered, parameters, axes)


def _gathered(array: jax.Array, axes: LogicalAxes) -> jax.Array:
    place = jax.typeof(array).sharding.spec
    if _parts(jax.P(*(cut for name, cut in zip(axes[1:], place[1:], strict=True) if name in GATHERED))) > 1:
        # XLA gathers along the outermost axis. Left alone, it brings whole stacks of layers into that order, in copies
        # that lie there while they are gone through; held in its own order, one layer at a time is turned.
        order = Layout(tuple(range(array.ndim)))
        hold = jax.shard_map(lambda part: with_layout_constraint(part, order), in_specs=place, out_specs=place)
        array = hold(array)
    return shard(array, *(None if name in GATHERED else name for name in axes))


def validate_divisible(shapes: Any, axes: Any) -> None:
    """Checks that every parameter can be cut over the mesh in use.

    Args:
        shapes: Nested dict of arrays or shape structs.
        axes: Nested dict of the same structure with logical axes.

    Raises:
        ValueError: as ``check_cut`` does.
    """
    jax.tree_util.tree_map_with_path(
        lambda path, leaf, names: check_cut(f"parameter {jax.tree_util.keystr(path)}", leaf.shape, names), shapes, axes
    )


def check_cut(what: str, shape: Sequence[int], axes: LogicalAxes) -> None:
    """Checks that an array's axes divide over the mesh in use, and that none of the mesh's axes cuts two of them.

    Args:
        what: The array, for the message.
        shape: Its sizes.
        axes: Its logical axes.

    Raises:
        ValueError: naming array, shape, axis, size and the mesh axes that it should divide by, or that are used twice.
    """
    cut_by: dict[str, int] = {}
    for position, (size, name) in enumerate(zip(shape, axes, strict=True)):
        here = f"config.mesh: {what} of shape {tuple(shape)} has {size} along axis {position} ({name}), "
        for axis in () if name is None else mesh_axes(partition((name,))):
            if axis in cut_by:
                other = cut_by[axis]
                raise ValueError(
                    f"{here}which {axis} would cut as it does axis {other} ({axes[other]}), wanted every mesh axis at "
                    "most once in an array. Give one of the two another rule."
                )
            cut_by[axis] = position
        if name is not None and size % shards(name):
            raise ValueError(
                f"{here}wanted a multiple of {shards(name)}, the devices along "
                f"{', '.join(mesh_axes(partition((name,))))}. Choose a smaller mesh axis or another size."
            )
