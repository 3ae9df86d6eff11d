"""The device mesh of a run, and arrays moving between host and devices."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding

from grpo_jax.config import ConfigError

AXES = ("data", "fsdp", "tensor", "context", "expert")
"""Mesh axes, outermost first. An axis of size 1 shards nothing."""


def make_mesh(sizes: Mapping[str, int], devices: Sequence[Any] | None = None) -> Mesh:
    """Builds the mesh of a run; ``jax.set_mesh`` then makes it the one in use.

    Args:
        sizes: Devices along each of ``AXES``; one of them may be -1, which takes all that are left.
        devices: Devices to use, all of this run's by default.

    Returns:
        A mesh with explicit axes.

    Raises:
        ValueError: if the sizes do not use every device exactly once, or there are no devices.
    """
    devices = found_devices() if devices is None else devices
    fixed = int(np.prod([size for size in sizes.values() if size != -1]))
    if -1 in sizes.values() and len(devices) % fixed == 0:
        sizes = {axis: len(devices) // fixed if size == -1 else size for axis, size in sizes.items()}
    shape = tuple(sizes[axis] for axis in AXES)
    if -1 in shape or int(np.prod(shape)) != len(devices):
        raise ValueError(
            f"config.mesh: got {dict(sizes)}, wanted sizes whose product is the number of devices, {len(devices)}. "
            "One axis may be -1, which takes all that are left; the product of the others must divide the number."
        )
    try:
        return jax.make_mesh(shape, AXES, devices=devices)
    except NotImplementedError:
        # A torus of chips none of whose sides, or products of them, is such an axis: its sides are split.
        split = mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
        return Mesh(split, AXES, axis_types=(jax.sharding.AxisType.Explicit,) * len(AXES))


def found_devices() -> list[Any]:
    """This run's devices.

    Returns:
        The devices of the platform that JAX chooses.

    Raises:
        ConfigError: where JAX is told to use a platform that it does not find.
    """
    try:
        return jax.devices()
    except (AssertionError, RuntimeError) as error:
        asked = os.environ.get("JAX_PLATFORMS")
        raise ConfigError(
            f"JAX_PLATFORMS: got {asked!r}, of which JAX finds no devices ({str(error) or 'no such backend'}). Install "
            "its plugin (pip install 'grpo-jax[cuda13]', [cuda12] or [tpu]) and driver, or unset the variable."
        ) from error


def put(array: Any, *axes: Any) -> jax.Array:
    """Places a host array on the mesh in use, also while what does so is being traced.

    Args:
        array: Host array, the same on every process.
        *axes: Mesh axis (or tuple of axes, or None) of each array axis; missing ones are None.

    Returns:
        The global array.
    """
    place = jax.P(*axes)
    if jax.process_count() == 1 or not isinstance(array, np.ndarray) or _tracing():
        return jax.device_put(array, place)
    # device_put would compare the whole array over all processes each time; each device takes its part from here.
    sharding = NamedSharding(jax.sharding.get_mesh(), place)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def _tracing() -> bool:
    """Whether operations are written down now and done later; then there is no mesh of real devices."""
    return isinstance(jnp.zeros(()), Tracer)


def fetch(tree: Any) -> Any:
    """Copies a tree of arrays to the host, whole, on every process.

    Args:
        tree: Arrays on the mesh in use, sharded in any way.

    Returns:
        The tree with NumPy arrays.
    """
    if jax.process_count() > 1:
        tree = _on_every_device(tree)
    return jax.device_get(tree)


@jax.jit
def _on_every_device(tree: Any) -> Any:
    return jax.tree.map(lambda array: jax.sharding.reshard(array, jax.P()), tree)
