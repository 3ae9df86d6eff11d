"""Meshes of the first devices, for tests."""

import math

import jax

from grpo_jax.parallel import mesh as mesh_lib


def on_mesh(**sizes):
    """Makes as many of the first devices as these axes need the mesh in use; other axes have size 1."""
    sizes = dict.fromkeys(mesh_lib.AXES, 1) | sizes
    return jax.set_mesh(mesh_lib.make_mesh(sizes, jax.devices()[: math.prod(sizes.values())]))
