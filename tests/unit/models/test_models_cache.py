"""Decoding with caches gives what a forward pass over the whole row gives."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.models import decoder
from grpo_jax.models.spec import ModelSpec, RopeScaling

SPEC = ModelSpec(
    vocab_size=11,
    num_layers=2,
    d_model=10,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    d_ff=12,
    rope_theta=10.0,
)
OPTIONS = {
    "base": {},
    "one_kv_head": {"num_kv_heads": 1},
    "everything": {
        "tie_embeddings": True,
        "qk_norm": True,
        "qkv_bias": True,
        "rope_scaling": RopeScaling("llama3", 4.0, original_max_positions=32),
    },
}
B, G, P, T = 3, 2, 6, 5
LENGTH_B = np.array([6, 1, 4])

forward = jax.jit(decoder.forward, static_argnames="spec")
prefill = jax.jit(decoder.prefill, static_argnames="spec")
decode_step = jax.jit(decoder.decode_step, static_argnames="spec")


def random_params(spec, seed=0):
    """Parameters in which norm scales are not 1 and biases not 0: what is never used would go unnoticed."""
    noise = np.random.default_rng(seed)

    def draw(path, leaf):
        name = path[-1].key
        middle, deviation = (1, 0.2) if name.endswith("norm") else (0, 1.0 if name == "embedding" else 0.3)
        return jnp.asarray(middle + deviation * noise.normal(size=leaf.shape), jnp.float32)

    shapes = jax.eval_shape(lambda key: decoder.init_params(key, spec), jax.random.key(0))
    return jax.tree_util.tree_map_with_path(draw, shapes)


def decoded(params, spec, prompt_BP, token_BGT, unwritten=0.0):
    """Hidden states [B, G, 1 + T, D] at each prompt's last token and at every completion token."""
    hidden_BD, prompt = prefill(params, spec, jnp.asarray(prompt_BP), jnp.asarray(LENGTH_B))
    shape = (spec.num_layers, B, G, spec.num_kv_heads, T, spec.head_dim)
    cache = decoder.CompletionCache(*(jnp.full(shape, unwritten, spec.compute_dtype) for _ in range(2)))
    hidden = [jnp.broadcast_to(hidden_BD[:, None], (B, G, spec.d_model))]
    for step in range(T):
        token_BG = jnp.asarray(token_BGT[:, :, step])
        hidden_BGD, cache = decode_step(params, spec, token_BG, jnp.int32(step), prompt, cache)
        hidden.append(hidden_BGD)
    return np.stack(hidden, axis=2), prompt, cache


def whole_rows(params, spec, prompt_BP, token_BGT):
    """The same from one forward pass over right-padded rows."""
    row_NS = np.zeros((B * G, P + T), np.int32)
    for b in range(B):
        for g in range(G):
            row = np.concatenate([prompt_BP[b, : LENGTH_B[b]], token_BGT[b, g]])
            row_NS[b * G + g, : len(row)] = row
    position_NS = np.broadcast_to(np.arange(P + T), row_NS.shape)
    segment_NS = (position_NS < np.repeat(LENGTH_B, G)[:, None] + T).astype(np.int32)
    hidden_NSD = forward(params, spec, *map(jnp.asarray, (row_NS, position_NS, segment_NS)))
    hidden_BGSD = np.asarray(hidden_NSD).reshape(B, G, P + T, -1)
    return np.stack([hidden_BGSD[b, :, LENGTH_B[b] - 1 : LENGTH_B[b] + T] for b in range(B)])


def batch(pad=0):
    draws = np.random.default_rng(1)
    prompt_BP = draws.integers(0, 11, (B, P)).astype(np.int32)
    prompt_BP[np.arange(P) >= LENGTH_B[:, None]] = pad
    return prompt_BP, draws.integers(0, 11, (B, G, T)).astype(np.int32)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_decoding_is_the_forward_pass_at_every_position(options):
    spec = dataclasses.replace(SPEC, **options)
    params = random_params(spec)
    prompt_BP, token_BGT = batch()
    hidden, _, _ = decoded(params, spec, prompt_BP, token_BGT)
    wanted = whole_rows(params, spec, prompt_BP, token_BGT)
    np.testing.assert_allclose(hidden, wanted, rtol=1e-5, atol=1e-5)
    # The completions of a prompt share its cache, not their own tokens.
    assert np.abs(wanted[:, 0] - wanted[:, 1])[:, 1:].max(axis=(1, 2)).min() > 0.1


def test_pads_and_unwritten_cache_take_no_part():
    params = random_params(SPEC)
    clean, *_ = decoded(params, SPEC, *batch())
    garbage, *_ = decoded(params, SPEC, *batch(pad=9), unwritten=50.0)
    np.testing.assert_array_equal(garbage, clean)


def test_caches_hold_the_compute_dtype_and_the_prompt_once():
    spec = dataclasses.replace(SPEC, compute_dtype="bfloat16")
    params = random_params(spec)
    hidden, prompt, cache = decoded(params, spec, *batch())
    assert hidden.dtype == jnp.bfloat16
    assert {array.dtype for array in (prompt.key_LBPKC, prompt.value_LBPKC, *cache[:2])} == {jnp.dtype("bfloat16")}
    assert prompt.key_LBPKC.shape == (2, B, P, 2, 8)
    np.testing.assert_array_equal(prompt.mask_BP, np.arange(P) < LENGTH_B[:, None])
    wide, *_ = decoded(params, SPEC, *batch())
    np.testing.assert_allclose(hidden.astype(np.float32), wide, atol=0.15)
