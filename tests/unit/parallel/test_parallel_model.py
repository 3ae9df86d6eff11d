"""A model's loss and gradients do not depend on the mesh."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding

from grpo_jax.algorithms import logprobs
from grpo_jax.models import decoder
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import mesh, rules

MESHES = {
    "one_device": {},
    "data_fsdp_tensor": {"data": 2, "fsdp": 2, "tensor": 2},
    "fsdp": {"fsdp": 8},
    "data_tensor": {"data": 4, "tensor": 2},
    "data": {"data": 8},
    "context": {"data": 2, "context": 2, "tensor": 2},
}
N, S = 8, 6


def make_spec(tied):
    return ModelSpec(
        vocab_size=16,
        num_layers=2,
        d_model=16,
        num_heads=4,
        num_kv_heads=2,
        head_dim=4,
        d_ff=12,
        tie_embeddings=tied,
        qk_norm=True,
        qkv_bias=True,
        remat="dots",
    )


@functools.partial(jax.jit, static_argnames="spec")
def loss_and_gradient(params, batch, *, spec):
    token_NS, position_NS, segment_NS, weight_NS = batch

    def loss(params):
        hidden_NSD = decoder.forward(params, spec, token_NS[:, :-1], position_NS[:, :-1], segment_NS[:, :-1])
        table_DV = decoder.unembedding(params, spec)
        scored = logprobs.chunked(hidden_NSD, table_DV, token_NS[:, 1:], temperature=0.7, chunk_tokens=16)
        # What is scored from padding has no meaning, and is another number where positions are filled up.
        scored = jax.tree.map(lambda array: jnp.where(segment_NS[:, :-1] > 0, array, 0), scored)
        return -jnp.sum(scored.logprob_NT * weight_NS[:, 1:]), scored

    (value, scored), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    return value, scored, gradient


def host_parts(spec):
    noise = np.random.default_rng(0)

    def draw(path, leaf):
        name = path[-1].key
        middle, deviation = (1, 0.2) if name.endswith("norm") else (0, 1.0 if name == "embedding" else 0.3)
        return (middle + deviation * noise.normal(size=leaf.shape)).astype(np.float32)

    shapes = jax.eval_shape(lambda key: decoder.init_params(key, spec), jax.random.key(0))
    params = jax.tree_util.tree_map_with_path(draw, shapes)
    pads_N1 = np.arange(N)[:, None] % 4
    position_NS = np.maximum(np.arange(S) - pads_N1, 0).astype(np.int32)
    segment_NS = (np.arange(S) >= pads_N1).astype(np.int32)
    weight_NS = (noise.normal(size=(N, S)) * (np.arange(S) > pads_N1) / N).astype(np.float32)
    return params, (noise.integers(0, 16, (N, S)).astype(np.int32), position_NS, segment_NS, weight_NS)


@functools.cache
def on_mesh(name, tied):
    """Loss, log-probabilities and gradients of one model and batch on one of the meshes, with the parameters."""
    spec = make_spec(tied)
    params, batch = host_parts(spec)
    sizes = dict.fromkeys(mesh.AXES, 1) | MESHES[name]
    devices = jax.devices()[: int(np.prod(list(sizes.values())))]
    made = mesh.make_mesh(sizes, devices)
    with jax.set_mesh(made):
        axes = decoder.logical_axes(spec)
        rules.validate_divisible(params, axes)
        place = lambda leaf, names: jax.device_put(leaf, NamedSharding(made, rules.partition(names)))  # noqa: E731
        params = jax.tree.map(place, params, axes)
        batch = tuple(mesh.put(array, rules.RULES[rules.BATCH]) for array in batch)
        return params, *loss_and_gradient(params, batch, spec=spec)


@pytest.fixture(scope="module", params=[False, True], ids=["untied", "tied"])
def tied(request):
    return request.param


@pytest.fixture(scope="module")
def without_a_mesh(tied):
    spec = make_spec(tied)
    params, batch = host_parts(spec)
    return loss_and_gradient(params, batch, spec=spec)


@pytest.mark.parametrize("name", MESHES)
def test_loss_and_gradients_are_those_of_one_device(name, tied, without_a_mesh):
    _, loss, scored, gradient = on_mesh(name, tied)
    wanted_loss, wanted_scored, wanted_gradient = without_a_mesh
    np.testing.assert_allclose(loss, wanted_loss, rtol=1e-5)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5), scored, wanted_scored)
    assert jax.tree.structure(gradient) == jax.tree.structure(wanted_gradient)
    for (path, leaf), wanted in zip(
        jax.tree_util.tree_leaves_with_path(gradient), jax.tree.leaves(wanted_gradient), strict=True
    ):
        largest = np.abs(wanted).max()
        assert largest > 1e-4, path
        np.testing.assert_allclose(leaf, wanted, rtol=1e-5, atol=1e-5 * largest, err_msg=jax.tree_util.keystr(path))


SHARD_SHAPES = {
    # name: what each device holds of query [L, D, K, J, C], gate [L, D, F] and embedding [V, D]
    "one_device": ((2, 16, 2, 2, 4), (2, 16, 12), (16, 16)),
    "data_fsdp_tensor": ((2, 8, 1, 2, 4), (2, 8, 6), (8, 8)),
    "fsdp": ((2, 2, 2, 2, 4), (2, 2, 12), (16, 2)),
    "data_tensor": ((2, 16, 1, 2, 4), (2, 16, 6), (8, 16)),
    "data": ((2, 16, 2, 2, 4), (2, 16, 12), (16, 16)),
    "context": ((2, 8, 1, 2, 4), (2, 8, 6), (8, 8)),
}


@pytest.mark.parametrize("name", MESHES)
def test_devices_hold_their_share_of_parameters_and_gradients(name, tied):
    params, _, _, gradient = on_mesh(name, tied)
    for tree in (params, gradient):
        for leaf, shape in zip(
            (tree["blocks"]["query"], tree["blocks"]["gate"], tree["embedding"]), SHARD_SHAPES[name], strict=True
        ):
            assert {shard.data.shape for shard in leaf.addressable_shards} == {shape}
    held = lambda tree: sum(leaf.addressable_shards[0].data.size for leaf in jax.tree.leaves(tree))  # noqa: E731
    assert held(gradient) == held(params)
