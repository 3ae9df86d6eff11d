"""Attention in blocks against one softmax over everything that is seen."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.models import attention

N, S, K, J, C = 3, 13, 2, 2, 4
# A packed row, a left-padded one, and a right-padded one.
SEGMENTS = np.array([[1] * 5 + [2] * 8, [0] * 4 + [1] * 9, [1] * 10 + [0] * 3], np.int32)


def inputs(value_dim=C):
    noise = np.random.default_rng(0)
    sizes = ((N, S, K, J, C), (N, S, K, C), (N, S, K, value_dim))
    return tuple(jnp.asarray(noise.normal(size=size), jnp.float32) for size in sizes)


def plain(query, key, value, window):
    """Every query by itself, over the keys that it sees."""
    query, key, value = (np.asarray(array, np.float64) for array in (query, key, value))
    output = np.zeros((*query.shape[:4], value.shape[-1]))
    for n in range(N):
        for s in np.flatnonzero(SEGMENTS[n]):
            seen = [t for t in range(s + 1) if SEGMENTS[n, t] == SEGMENTS[n, s] and (not window or s - t < window)]
            score = np.einsum("kjc,tkc->kjt", query[n, s], key[n, seen])
            weight = np.exp(score - score.max(axis=-1, keepdims=True))
            weight /= weight.sum(axis=-1, keepdims=True)
            output[n, s] = np.einsum("kjt,tkc->kjc", weight, value[n, seen])
    return output


def summed(query, key, value, *, block_tokens, window):
    output = attention.row_attention(query, key, value, jnp.asarray(SEGMENTS), window=window, block_tokens=block_tokens)
    return jnp.sum(jnp.sin(output) * (SEGMENTS > 0)[:, :, None, None, None]), output


@pytest.mark.parametrize("window", [0, 4])
@pytest.mark.parametrize("block_tokens", [2, 5, 13, 100])
def test_blocks_compute_what_one_softmax_does_and_so_do_their_gradients(block_tokens, window):
    differentiate = jax.jit(
        jax.value_and_grad(summed, (0, 1, 2), has_aux=True), static_argnames=("block_tokens", "window")
    )
    (_, output), gradient = differentiate(*inputs(3), block_tokens=block_tokens, window=window)
    real = SEGMENTS > 0
    np.testing.assert_allclose(output[real], plain(*inputs(3), window)[real], atol=1e-5)
    assert np.isfinite(output).all()
    _, whole = differentiate(*inputs(3), block_tokens=S, window=window)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-5), gradient, whole)


def test_a_window_may_be_known_only_at_run_time():
    compute = jax.jit(functools.partial(attention.row_attention, block_tokens=4))
    output = compute(*inputs(), jnp.asarray(SEGMENTS), window=jnp.int32(3))
    real = SEGMENTS > 0
    np.testing.assert_allclose(output[real], plain(*inputs(), 3)[real], atol=1e-5)


def test_scores_of_one_block_exist_at_once():
    rows, tokens = 1, 2048
    sizes = ((rows, tokens, 1, 1, 8), (rows, tokens, 1, 8), (rows, tokens, 1, 8))
    abstract = [jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes]

    def loss(query, key, value, block_tokens):
        segment = jnp.ones((rows, tokens), jnp.int32)
        return jnp.sum(attention.row_attention(query, key, value, segment, block_tokens=block_tokens))

    def temporary_bytes(block_tokens):
        gradient = jax.jit(jax.grad(loss, (0, 1, 2)), static_argnums=3)
        return gradient.lower(*abstract, block_tokens).compile().memory_analysis().temp_size_in_bytes

    assert temporary_bytes(tokens) >= 2 * 4 * tokens**2
    assert temporary_bytes(64) <= 4 * tokens**2 / 4
