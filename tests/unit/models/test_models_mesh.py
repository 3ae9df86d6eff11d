"""Loss, gradients and cached decoding are those of one device on every mesh: all combinations of axes on 8 devices."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding

from grpo_jax.models import decoder
from grpo_jax.models.spec import Experts, LatentAttention, ModelSpec
from grpo_jax.parallel import mesh, rules

# Every axis of a model divides by 8, so that every combination of mesh axes is possible; rows' lengths do not.
SIZES = {
    "vocab_size": 16,
    "d_model": 16,
    "num_layers": 2,
    "num_heads": 16,
    "num_kv_heads": 8,
    "head_dim": 4,
    "d_ff": 8,
    "logprob_chunk_tokens": 16,
}
SPECS = {
    "dense": ModelSpec(**SIZES, qk_norm=True, qkv_bias=True, remat="dots"),
    "windows": ModelSpec(
        **SIZES,
        tie_embeddings=True,
        windows=(3, 0),
        window_rope_theta=50.0,
        post_norms=True,
        norm_offset=1.0,
        embedding_scale=4.0,
    ),
    "experts": ModelSpec(**SIZES, tie_embeddings=True, experts=Experts(8, 2, 8)),
    "deepseek": ModelSpec(
        **SIZES,
        latent=LatentAttention(8, 8, 2, 4),
        experts=Experts(
            8,
            3,
            8,
            shared_d_ff=8,
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
}
N, S, G, T = 8, 7, 2, 3

COMBINATIONS = [
    dict(zip(mesh.AXES, sizes, strict=True))
    for sizes in itertools.product((1, 2, 4, 8), repeat=len(mesh.AXES))
    if math.prod(sizes) <= 8
]
ALL_DEVICES = [sizes for sizes in COMBINATIONS if math.prod(sizes.values()) == 8]


def title(sizes):
    return "-".join(f"{axis}{size}" for axis, size in sizes.items() if size > 1) or "one"


def cases(names, combinations, quick):
    """These models on these meshes. All but those that are named are slow, and the many are a suite of their own."""

    def marks(name, sizes):
        if f"{name}:{title(sizes)}" in quick:
            return ()
        # Three axes at once meet every pair of them.
        axes = sum(size > 1 for size in sizes.values())
        return pytest.mark.slow if axes == 3 and name != "experts" else pytest.mark.combinations

    found = {
        f"{name}:{title(sizes)}": (name, sizes)
        for name, sizes in itertools.product(names, combinations)
        if SPECS[name].experts or sizes["expert"] == 1
    }
    assert set(quick) <= set(found)
    return [pytest.param(*case, id=key, marks=marks(*case)) for key, case in found.items()]


# Compiling is nearly all of the work here.
compiled = functools.partial(jax.jit, static_argnames="spec", compiler_options={"xla_backend_optimization_level": 0})


@compiled
def trained(params, batch, *, spec):
    """Loss and gradient over whole rows, log-probabilities, entropies and the experts' load."""
    token_NS, position_NS, segment_NS, weight_NS = batch
    row = (token_NS[:, :-1], position_NS[:, :-1], segment_NS[:, :-1])

    def loss(params):
        hidden_NSD, load = decoder.forward_with_load(params, spec, *row, row[2] > 0)
        scored = decoder.token_logprobs(params, spec, hidden_NSD, token_NS[:, 1:], temperature=0.7)
        # What is scored from padding has no meaning, and is another number where positions are filled up.
        scored = jax.tree.map(lambda array: jnp.where(row[2] > 0, array, 0), scored)
        return -jnp.sum(scored.logprob_NT * weight_NS[:, 1:]), (scored, load)

    return jax.value_and_grad(loss, has_aux=True)(params)


@compiled
def decoded(params, prompt, *, spec):
    """Hidden states of cached decoding behind prompts, and the caches."""
    token_NS, length_N, token_BGT = prompt
    last_BD, cached = decoder.prefill(params, spec, token_NS, length_N)

    def decode(cache, xs):
        hidden_BGD, cache = decoder.decode_step(params, spec, *xs, cached, cache)
        return cache, hidden_BGD

    steps = (jnp.moveaxis(token_BGT, 2, 0), jnp.arange(T))
    cache, hidden_TBGD = jax.lax.scan(decode, decoder.empty_cache(spec, N, G, T), steps)
    return (last_BD, hidden_TBGD), (cached, cache)


@functools.cache
def host_parts(name):
    """Parameters, left-padded rows to train on, and right-padded prompts with what is decoded behind them."""
    spec, noise = SPECS[name], np.random.default_rng(0)

    def draw(path, leaf):
        name = path[-1].key
        middle = 1 - spec.norm_offset if name.endswith("norm") else 0
        return (middle + (1.0 if name == "embedding" else 0.3) * noise.normal(size=leaf.shape)).astype(np.float32)

    shapes = jax.eval_shape(lambda key: decoder.init_params(key, spec), jax.random.key(0))
    params = jax.tree_util.tree_map_with_path(draw, shapes)
    token_NS = noise.integers(0, 16, (N, S)).astype(np.int32)
    pads_N1 = np.arange(N)[:, None] % 4
    position_NS = np.maximum(np.arange(S) - pads_N1, 0).astype(np.int32)
    segment_NS = (np.arange(S) >= pads_N1).astype(np.int32)
    weight_NS = (noise.normal(size=(N, S)) * (np.arange(S) > pads_N1) / N).astype(np.float32)
    prompt = (token_NS, S - pads_N1[:, 0].astype(np.int32), noise.integers(0, 16, (N, G, T)).astype(np.int32))
    return params, (token_NS, position_NS, segment_NS, weight_NS), prompt


@functools.cache
def on_one_device(compute, name):
    params, *batches = jax.tree.map(jnp.asarray, host_parts(name))
    return jax.device_get(compute(params, batches[compute is decoded], spec=SPECS[name]))


def on_mesh(compute, name, sizes):
    """The same on a mesh, and the parameters there."""
    spec = SPECS[name]
    params, *batches = host_parts(name)
    made = mesh.make_mesh(sizes, jax.devices()[: math.prod(sizes.values())])
    with jax.set_mesh(made):
        axes = decoder.logical_axes(spec)
        rules.validate_divisible(params, axes)
        place = lambda leaf, names: jax.device_put(leaf, NamedSharding(made, rules.partition(names)))  # noqa: E731
        params = jax.tree.map(place, params, axes)
        batch = jax.tree.map(lambda leaf: mesh.put(leaf, rules.RULES[rules.BATCH]), batches[compute is decoded])
        return params, compute(params, batch, spec=spec)


def compare(got, wanted):
    for (path, leaf), other in zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(wanted), strict=True):
        largest, where = np.abs(other).max(), jax.tree_util.keystr(path)
        np.testing.assert_allclose(leaf, other, rtol=1e-5, atol=1e-5 * largest, err_msg=where)
        # No gradient flows into this one.
        assert largest > 1e-4 or "router_bias" in where, where


@pytest.mark.parametrize(
    ("name", "sizes"),
    cases(
        ["dense", "experts", "deepseek"],
        COMBINATIONS,
        [
            "dense:data2-fsdp2-tensor2",
            "experts:data2-expert4",
            "deepseek:tensor2-context2-expert2",
        ],
    )
    + cases(["windows"], ALL_DEVICES, ["windows:fsdp2-tensor2-context2"]),
)
def test_loss_and_gradients_are_those_of_one_device(name, sizes):
    params, got = on_mesh(trained, name, sizes)
    compare(got, on_one_device(trained, name))
    for leaf, gradient in zip(jax.tree.leaves(params), jax.tree.leaves(got[1]), strict=True):
        assert gradient.sharding.is_equivalent_to(leaf.sharding, leaf.ndim)


@pytest.mark.parametrize(
    ("name", "sizes"),
    cases(["windows", "deepseek"], ALL_DEVICES, ["windows:data2-context4", "deepseek:fsdp2-context2-expert2"]),
)
def test_decoding_is_that_of_one_device_and_each_holds_a_part_of_the_caches(name, sizes):
    _, (got, caches) = on_mesh(decoded, name, sizes)
    compare(got, on_one_device(decoded, name)[0])
    for cache in jax.tree.leaves([part[:2] for part in caches]):
        # A latent cache has one head, which is whole on every device.
        parts = math.prod(sizes.values()) // (sizes["tensor"] if SPECS[name].latent else 1)
        assert cache.addressable_shards[0].data.size * parts == cache.size


@pytest.mark.parametrize("name", ["windows", "experts", "deepseek"])
def test_decoding_is_the_forward_pass(name):
    params, _, (token_NS, length_N, token_BGT) = host_parts(name)
    last_BD, decoded_TBGD = on_one_device(decoded, name)[0]
    whole_NS = np.zeros((N, S + T), np.int32)
    for n, length in enumerate(length_N):
        whole_NS[n, : length + T] = np.concatenate([token_NS[n, :length], token_BGT[n, 1]])
    position_NS = np.broadcast_to(np.arange(S + T), whole_NS.shape)
    segment_NS = (position_NS < length_N[:, None] + T).astype(np.int32)
    wanted_NSD = compiled(decoder.forward)(
        params, token_NS=whole_NS, position_NS=position_NS, segment_NS=segment_NS, spec=SPECS[name]
    )
    for n, length in enumerate(length_N):
        np.testing.assert_allclose(last_BD[n], wanted_NSD[n, length - 1], rtol=1e-4, atol=2e-5)
        for step in range(T):
            np.testing.assert_allclose(decoded_TBGD[step, n, 1], wanted_NSD[n, length + step], rtol=1e-4, atol=2e-5)


def test_prompts_that_do_not_divide_over_the_devices_are_named():
    with jax.set_mesh(mesh.make_mesh(dict.fromkeys(mesh.AXES, 1) | {"data": 2, "expert": 4})):
        wanted = (
            r"config\.mesh: cache of completions of shape \(2, 6, 2, 8, 3, 4\) has 6 along axis 1 \(batch\), wanted a "
            r"multiple of 8, the devices along data, fsdp, expert\. Choose"
        )
        with pytest.raises(ValueError, match=wanted):
            decoder.empty_cache(SPECS["experts"], 6, G, T)
