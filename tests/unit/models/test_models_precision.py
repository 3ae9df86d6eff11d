"""Matrices of one byte, and layers in the host's memory: a decoder computes (nearly) the same with them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.config import ReferenceConfig
from grpo_jax.models import decoder, precision
from grpo_jax.models.spec import Experts, ModelSpec
from grpo_jax.training import recipe
from tests.meshes import on_mesh

DENSE = ModelSpec(
    vocab_size=16,
    num_layers=2,
    d_model=16,
    num_heads=2,
    num_kv_heads=2,
    head_dim=8,
    d_ff=16,
    qkv_bias=True,
    init_std=0.3,
    embedding_init_std=1.0,
)
ROUTED = dataclasses.replace(DENSE, experts=Experts(count=4, per_token=2, d_ff=8, first_dense_layers=1))
MESHES = [{}, {"fsdp": 2, "tensor": 2, "context": 2}]


@jax.jit
def quantized_matrix(weight):
    return {dtype: precision.quantized(weight, ("embed", "mlp"), dtype) for dtype in precision.DTYPES}


def test_every_number_is_within_half_a_step_of_its_own_and_a_vector_of_zeros_stays():
    weight = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32) * [1, 100, 0, 1e-6]
    made = quantized_matrix(jnp.asarray(weight, jnp.float32))
    largest = np.max(np.abs(weight), axis=0)
    back = {name: np.float32(one.value) * np.asarray(one.scale) for name, one in made.items()}
    assert np.all(np.abs(back["int8"] - weight) <= largest / 127 / 2 * 1.001)
    assert np.all(np.abs(back["float8_e4m3fn"] - weight) <= np.abs(weight) / 16 + largest / 448 / 500)
    assert {one.value.dtype.itemsize for one in made.values()} == {1}
    assert {one.scale.shape for one in made.values()} == {(1, 4)}


def reference_hidden(spec, config, sizes):
    """Hidden states under a reference, and what it holds."""
    random = np.random.default_rng(1)
    token_NS = random.integers(0, 16, (4, 8)).astype(np.int32)
    position_NS = np.broadcast_to(np.arange(8, dtype=np.int32), (4, 8))
    with on_mesh(**sizes):
        params = recipe.init_sharded(jax.random.key(0), spec)
        held = jax.jit(lambda params: recipe.frozen_copy(params, spec, config))(params)
        token_NS, position_NS = jnp.asarray(token_NS), jnp.asarray(position_NS)
        segment_NS = jnp.ones_like(token_NS)
        run = jax.jit(lambda held: decoder.forward(held, spec, token_NS, position_NS, segment_NS))
        return np.asarray(run(held)), held


@pytest.mark.parametrize("sizes", MESHES)
@pytest.mark.parametrize("spec", [DENSE, ROUTED], ids=["dense", "routed"])
def test_a_reference_in_host_memory_is_the_one_on_the_device(spec, sizes):
    here, _ = reference_hidden(spec, ReferenceConfig(), sizes)
    there, held = reference_hidden(spec, ReferenceConfig(placement="host"), sizes)
    np.testing.assert_array_equal(there, here)
    memories = jax.tree.map(lambda leaf: leaf.sharding.memory_kind, held)
    assert set(jax.tree.leaves(memories["blocks"])) == {"pinned_host"}
    assert memories["embedding"] == "device"


@pytest.mark.parametrize("dtype", precision.DTYPES)
@pytest.mark.parametrize("spec", [DENSE, ROUTED], ids=["dense", "routed"])
def test_a_reference_of_one_byte_is_near_the_exact_one_on_any_mesh(spec, dtype):
    exact, _ = reference_hidden(spec, ReferenceConfig(), {})
    alone, held = reference_hidden(spec, ReferenceConfig(dtype=dtype), {})
    meshed, _ = reference_hidden(spec, ReferenceConfig(dtype=dtype, placement="host"), MESHES[1])
    np.testing.assert_allclose(meshed, alone, rtol=1e-4, atol=1e-4)
    error = np.sqrt(np.mean((alone - exact) ** 2) / np.mean(exact**2))
    assert 0 < error < {"int8": 0.03, "float8_e4m3fn": 0.12}[dtype]
    assert held["blocks"]["query"].value.dtype == dtype
    assert held["blocks"]["query_bias"].dtype == held["embedding"].dtype == jnp.float32
    if spec is ROUTED:
        assert held["blocks"]["expert_up"].value.dtype == dtype
        assert held["blocks"]["router"].dtype == jnp.float32
