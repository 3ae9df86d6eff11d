"""A 32-bit digest of every leaf of a tree of arrays, equal on every mesh.

Storage returns a flipped bit without complaint, so a checkpoint carries the digests of what was
meant and a restore compares them with what came back.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from grpo_jax.parallel import rules

_UNSIGNED = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint32}


def tree_digests(tree: Any) -> dict[str, int]:
    """Computes the digest of each leaf on the devices that hold it.

    ``digest(x) = sum_i bits(x_i) * odd(hash(i)) mod 2**32`` over all elements ``i``. A sum modulo
    2**32 does not depend on its order, so sharding cannot change it. One flipped bit adds
    ``2**k * odd`` with k < 32, which is never 0, so it is always seen; ``hash`` makes
    swapped elements visible too.

    Args:
        tree: Arrays of booleans, integers or floats, sharded in any way over one set of devices.

    Returns:
        The digest by leaf path, for example ``{"params/embedding": 2774901326}``.

    Raises:
        ValueError: for a leaf whose bits cannot be read, such as a typed random key.
    """
    paths = leaf_paths(tree)
    for path, leaf in zip(paths, jax.tree.leaves(tree), strict=True):
        dtype = jnp.asarray(leaf).dtype if not isinstance(leaf, jax.Array) else leaf.dtype
        if not (dtype == jnp.bool_ or jnp.issubdtype(dtype, jnp.integer) or jnp.issubdtype(dtype, jnp.floating)):
            raise ValueError(
                f"state leaf '{path}': got dtype {dtype}, wanted booleans, integers or floats. "
                "Keep jax.random.key_data(key) in the state in place of a typed random key."
            )
    return {path: int(value) for path, value in zip(paths, _digests(tree), strict=True)}


def leaf_paths(tree: Any) -> list[str]:
    """Names every leaf of a tree by its path, such as ``"optimizer/0/mu/embedding"``."""
    paths = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in jax.tree.leaves_with_path(tree)]
    assert len(set(paths)) == len(paths), "two leaves have one path: a key contains '/'"
    return paths


@jax.jit
def _digests(tree: Any) -> list[jax.Array]:
    return [_leaf_digest(rules.on_device(leaf)) for leaf in jax.tree.leaves(tree)]


def _leaf_digest(x: jax.Array) -> jax.Array:
    if x.dtype == jnp.bool_:
        bits = x.astype(jnp.uint32)
    else:
        bits = jax.lax.bitcast_convert_type(x, _UNSIGNED[x.dtype.itemsize]).astype(jnp.uint32)
    # Iotas carry the leaf's sharding; without it each device would make the index of the whole array.
    sharding = jax.typeof(bits).sharding
    index = jnp.uint32(0)
    for axis in range(bits.ndim):
        stride = np.uint32(math.prod(bits.shape[axis + 1 :]) % 2**32)
        position = jax.lax.broadcasted_iota(jnp.uint32, bits.shape, axis, out_sharding=sharding) * stride
        index = position if axis == 0 else index + position
    return jnp.sum(bits * (_mix(index) | np.uint32(1)), dtype=jnp.uint32)


def _mix(index: jax.Array) -> jax.Array:
    mixed = index * np.uint32(0x9E3779B1)
    mixed = (mixed ^ (mixed >> np.uint32(15))) * np.uint32(0x85EBCA77)
    return mixed ^ (mixed >> np.uint32(13))
