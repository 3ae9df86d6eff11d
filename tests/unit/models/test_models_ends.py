"""Gradients of embeddings and of products over devices: how they are added up, and what is not computed."""

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.models import decoder, ends, layers
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import mesh, rules

SPEC = ModelSpec(vocab_size=16, d_model=8, num_layers=1, num_heads=2, num_kv_heads=2, head_dim=4, d_ff=8)


def in_use(sizes):
    if sizes is None:
        return contextlib.nullcontext()
    return jax.set_mesh(mesh.make_mesh(dict.fromkeys(mesh.AXES, 1) | sizes, jax.devices()))


@pytest.mark.parametrize(
    "sizes", [None, {"data": 2, "fsdp": 2, "tensor": 2}, {"tensor": 2, "context": 2, "expert": 2}], ids=str
)
def test_the_gradient_of_a_frequent_token_is_added_up_in_float32(sizes):
    spec = dataclasses.replace(SPEC, compute_dtype="bfloat16")
    token = jnp.full((8, 64), 3).at[:, 1].set(14)

    def total(table):
        return jnp.sum(ends.embed({"embedding": table}, spec, token, rules.RESIDUAL))

    with in_use(sizes):
        table = jnp.zeros((16, 8))
        if sizes is not None:
            token = rules.shard(token, rules.BATCH, rules.POSITIONS)
            table = rules.shard(table, "vocab", "embed")
        gradient = jax.jit(jax.grad(total))(table)
    # In bfloat16 a sum of ones stops at 256.
    np.testing.assert_array_equal(np.asarray(gradient)[:, 0], np.bincount(np.ravel(token), minlength=16))
    assert gradient.sharding.is_equivalent_to(table.sharding, 2)


@pytest.mark.parametrize("trained", [False, True])
def test_a_product_over_devices_waits_for_the_gradient_of_its_matrix_unless_that_is_frozen(trained):
    with in_use({"fsdp": 2, "tensor": 4}):
        x = rules.shard(jnp.ones((4, 2, 8)), rules.BATCH, None, "mlp")
        weight = rules.shard(jnp.ones((8, 8)), "mlp", None)
        out = rules.partition((rules.BATCH, None, None))

        def total(x, weight):
            return jnp.sum(layers.project(x, layers.Projection(weight), out_sharding=out))

        program = str(jax.make_jaxpr(jax.grad(total, argnums=(0, 1) if trained else 0))(x, weight))
    assert ("optimization_barrier" in program) == trained


def test_log_probabilities_are_those_of_the_whole_projection():
    params = decoder.init_params(jax.random.key(0), dataclasses.replace(SPEC, init_std=0.5))
    hidden_NTD, token_NT = jax.random.normal(jax.random.key(1), (2, 5, 8)), jnp.arange(10).reshape(2, 5)
    scored = decoder.token_logprobs(
        params, dataclasses.replace(SPEC, logprob_chunk_tokens=4), hidden_NTD, token_NT, 0.5
    )
    logprob_NTV = jax.nn.log_softmax(hidden_NTD @ params["unembedding"] / 0.5)
    np.testing.assert_allclose(
        scored.logprob_NT, jnp.take_along_axis(logprob_NTV, token_NT[..., None], -1)[..., 0], rtol=1e-5
    )
