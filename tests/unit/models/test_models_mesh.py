"""Experts, latent attention and windows compute the same on every mesh, with and without a cache."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding

from grpo_jax.models import decoder
from grpo_jax.models.spec import Experts, LatentAttention, ModelSpec
from grpo_jax.parallel import mesh, rules

SIZES = {
    "vocab_size": 16,
    "num_layers": 3,
    "d_model": 16,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 6,
    "d_ff": 12,
    "tie_embeddings": True,
}
SPECS = {
    "experts": ModelSpec(**SIZES, experts=Experts(4, 2, 8)),
    "latent": ModelSpec(
        **SIZES,
        latent=LatentAttention(8, 12, 2, 4),
        experts=Experts(
            8,
            3,
            4,
            shared_d_ff=4,
            score="sigmoid",
            weight_scale=1.5,
            choice_bias=True,
            groups=4,
            groups_per_token=2,
            group_score="best_two",
            first_dense_layers=1,
        ),
        remat="full",
        attention_block_tokens=2,
    ),
    "windows": ModelSpec(
        **SIZES, windows=(2, 0, 3), window_rope_theta=50.0, post_norms=True, norm_offset=1.0, embedding_scale=4.0
    ),
}
MESHES = {
    "everything": {"fsdp": 2, "tensor": 2, "expert": 2},
    "experts": {"expert": 4, "data": 2},
    "context": {"context": 2, "tensor": 2, "fsdp": 2},
}
CASES = [
    ("experts", "experts"),
    ("latent", "everything"),
    ("windows", "everything"),
    ("latent", "context"),
    ("windows", "context"),
]
N, S, G, T = 8, 6, 2, 3


@functools.partial(jax.jit, static_argnames="spec")
def computed(params, row, token_BGT, *, spec):
    """Loss and gradient over whole rows, then hidden states of cached decoding behind the first tokens of each row."""

    def loss(params):
        hidden_NSD = decoder.forward(params, spec, *row)
        # What stands at padding has no meaning, and is another one where positions are filled up.
        hidden_NSD = jnp.where((row[2] > 0)[:, :, None], hidden_NSD, 0)
        return jnp.sum(jnp.sin(hidden_NSD)), hidden_NSD

    (value, hidden_NSD), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    length_B = jnp.sum(row[2], axis=1)
    last_BD, prompt = decoder.prefill(params, spec, row[0], length_B)

    def decode(cache, xs):
        hidden_BGD, cache = decoder.decode_step(params, spec, *xs, prompt, cache)
        return cache, hidden_BGD

    steps = (jnp.moveaxis(token_BGT, 2, 0), jnp.arange(T))
    _, decoded_TBGD = jax.lax.scan(decode, decoder.empty_cache(spec, N, G, T), steps)
    return value, hidden_NSD, gradient, last_BD, decoded_TBGD


def host_parts(spec):
    noise = np.random.default_rng(0)

    def draw(path, leaf):
        name = path[-1].key
        middle = 1 - spec.norm_offset if name.endswith("norm") else 0
        return (middle + (1.0 if name == "embedding" else 0.3) * noise.normal(size=leaf.shape)).astype(np.float32)

    shapes = jax.eval_shape(lambda key: decoder.init_params(key, spec), jax.random.key(0))
    params = jax.tree_util.tree_map_with_path(draw, shapes)
    position_NS = np.broadcast_to(np.arange(S, dtype=np.int32), (N, S))
    segment_NS = (position_NS < S - np.arange(N)[:, None] % 4).astype(np.int32)
    row = (noise.integers(0, 16, (N, S)).astype(np.int32), position_NS, segment_NS)
    return params, row, noise.integers(0, 16, (N, G, T)).astype(np.int32)


@functools.cache
def without_a_mesh(name):
    return computed(*jax.tree.map(jnp.asarray, host_parts(SPECS[name])), spec=SPECS[name])


@pytest.mark.parametrize(("name", "mesh_name"), CASES)
def test_every_mesh_computes_what_one_device_computes(name, mesh_name):
    spec = SPECS[name]
    params, *batch = host_parts(spec)
    made = mesh.make_mesh(dict.fromkeys(mesh.AXES, 1) | MESHES[mesh_name])
    with jax.set_mesh(made):
        axes = decoder.logical_axes(spec)
        rules.validate_divisible(params, axes)
        place = lambda leaf, names: jax.device_put(leaf, NamedSharding(made, rules.partition(names)))  # noqa: E731
        on_mesh = [jax.tree.map(lambda leaf: mesh.put(leaf, rules.RULES[rules.BATCH]), part) for part in batch]
        got = computed(jax.tree.map(place, params, axes), *on_mesh, spec=spec)
    wanted = without_a_mesh(name)
    for (path, leaf), other in zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(wanted), strict=True):
        largest = np.abs(other).max()
        np.testing.assert_allclose(
            leaf, other, rtol=1e-4, atol=2e-5 * max(largest, 1e-3), err_msg=jax.tree_util.keystr(path)
        )
        if "router_bias" not in jax.tree_util.keystr(path):
            assert largest > 1e-4, path


@pytest.mark.parametrize("name", SPECS)
def test_decoding_is_the_forward_pass(name):
    spec = SPECS[name]
    params, row, token_BGT = jax.tree.map(jnp.asarray, host_parts(spec))
    last_BD, decoded_TBGD = without_a_mesh(name)[3:]
    length_N = np.sum(row[2], axis=1)
    whole_NS = np.zeros((N, S + T), np.int32)
    for n, length in enumerate(length_N):
        whole_NS[n, : length + T] = np.concatenate([row[0][n, :length], token_BGT[n, 1]])
    position_NS = np.broadcast_to(np.arange(S + T), whole_NS.shape)
    segment_NS = (position_NS < length_N[:, None] + T).astype(np.int32)
    wanted_NSD = jax.jit(decoder.forward, static_argnames="spec")(
        params, spec, *map(jnp.asarray, (whole_NS, position_NS, segment_NS))
    )
    for n, length in enumerate(length_N):
        np.testing.assert_allclose(last_BD[n], wanted_NSD[n, length - 1], rtol=1e-4, atol=2e-5)
        for step in range(T):
            np.testing.assert_allclose(decoded_TBGD[step, n, 1], wanted_NSD[n, length + step], rtol=1e-4, atol=2e-5)
