import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding

from grpo_jax.io import digest
from grpo_jax.io.digest import leaf_paths, tree_digests

DTYPES = ("float32", "bfloat16", "int32", "uint32", "int8", "bool")


def _host_tree():
    rng = np.random.default_rng(0)
    tree = {name: jnp.asarray(rng.normal(size=(8, 16)) * 9).astype(name) for name in DTYPES}
    tree["scalar"] = jnp.int32(7)
    tree["vector"] = jnp.asarray(rng.normal(size=16), jnp.float32)
    return jax.tree.map(np.asarray, tree)


def _place(tree, mesh, matrix_spec):
    def place(x):
        spec = jax.P() if x.ndim == 0 else jax.P("fsdp") if x.ndim == 1 else matrix_spec
        return jax.device_put(x, NamedSharding(mesh, spec))

    return jax.tree.map(place, tree)


def _reference_digest(x):
    """The documented sum in plain Python integers."""
    flat = x.reshape(-1)
    bits = flat.astype(np.uint8) if x.dtype == bool else flat.view(f"uint{8 * x.dtype.itemsize}")
    total = 0
    for index, value in enumerate(bits.tolist()):
        mixed = index * 0x9E3779B1 % 2**32
        mixed = (mixed ^ (mixed >> 15)) * 0x85EBCA77 % 2**32
        mixed ^= mixed >> 13
        total += value * (mixed | 1)
    return total % 2**32


def test_digest_is_the_documented_sum():
    tree = _host_tree()
    assert tree_digests(tree) == {name: _reference_digest(value) for name, value in tree.items()}


@pytest.mark.parametrize("axis_type", [AxisType.Explicit, AxisType.Auto])
@pytest.mark.parametrize("shape", [(1, 1), (2, 4), (8, 1)])
def test_digest_is_equal_on_every_mesh(shape, axis_type):
    tree = _host_tree()
    expected = tree_digests(tree)
    devices = jax.devices()[: shape[0] * shape[1]]
    mesh = jax.make_mesh(shape, ("data", "fsdp"), axis_types=(axis_type, axis_type), devices=devices)
    with jax.set_mesh(mesh):
        for spec in (jax.P("data", "fsdp"), jax.P("fsdp", "data"), jax.P(None, ("data", "fsdp")), jax.P()):
            assert tree_digests(_place(tree, mesh, spec)) == expected


def test_each_device_works_on_its_shard_only():
    mesh = jax.make_mesh((4, 2), ("data", "fsdp"))

    def flops(spec):
        x = jax.ShapeDtypeStruct((512, 512), jnp.float32, sharding=NamedSharding(mesh, spec))
        with jax.set_mesh(mesh):
            return digest._digests.lower([x]).compile().cost_analysis()["flops"]

    assert flops(jax.P("data", "fsdp")) < 1.5 / 8 * flops(jax.P())


def test_digest_sees_every_sampled_bit_flip():
    tree = _host_tree()
    expected = tree_digests(tree)
    rng = np.random.default_rng(1)
    for name, value in tree.items():
        width = 1 if value.dtype == bool else 8 * value.dtype.itemsize
        for bit, element in zip(range(width), itertools.cycle(rng.integers(value.size, size=5).tolist()), strict=False):
            raw = bytearray(value.tobytes())
            raw[element * value.dtype.itemsize + bit // 8] ^= 1 << bit % 8
            flipped = np.frombuffer(bytes(raw), value.dtype).reshape(value.shape)
            digests = tree_digests({**tree, name: flipped})
            assert [path for path in digests if digests[path] != expected[path]] == [name], (bit, element)


def test_digest_sees_swapped_elements():
    assert tree_digests([jnp.array([1.0, 2.0, 3.0])]) != tree_digests([jnp.array([2.0, 1.0, 3.0])])


def test_typed_random_key_is_refused():
    with pytest.raises(ValueError, match=r"'rng': got dtype key<fry>, wanted .*random\.key_data"):
        tree_digests({"rng": jax.random.key(0)})


def test_leaf_paths_name_the_leaves():
    assert leaf_paths({"b": [1, 2], "a": {"x": 3}, "none": None}) == ["a/x", "b/0", "b/1"]
