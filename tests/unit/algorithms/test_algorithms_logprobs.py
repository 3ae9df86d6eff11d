"""Log-probabilities and entropy: chunked against a dense log-softmax, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import logprobs

N, T, D, V = 3, 7, 5, 11


@pytest.fixture(scope="module")
def inputs():
    keys = jax.random.split(jax.random.key(0), 4)
    hidden_NTD = jax.random.normal(keys[0], (N, T, D))
    unembedding_DV = jax.random.normal(keys[1], (D, V))
    token_NT = jax.random.randint(keys[2], (N, T), 0, V)
    cotangent_NT = jax.random.normal(keys[3], (N, T))
    return hidden_NTD, unembedding_DV, token_NT, cotangent_NT


def dense(hidden_NTD, unembedding_DV, token_NT, temperature):
    logprob_NTV = jax.nn.log_softmax(hidden_NTD @ unembedding_DV / temperature, axis=-1)
    entropy_NT = -jnp.sum(jnp.exp(logprob_NTV) * logprob_NTV, axis=-1)
    return jnp.take_along_axis(logprob_NTV, token_NT[..., None], axis=-1)[..., 0], entropy_NT


def test_two_symbols_by_hand():
    # Probabilities 1/4 and 3/4.
    logits_NTV = jnp.log(jnp.array([[[0.25, 0.75], [0.25, 0.75]]])) + 7
    scored = logprobs.from_logits(logits_NTV, jnp.array([[0, 1]]))
    np.testing.assert_allclose(scored.logprob_NT, np.log([[0.25, 0.75]]), rtol=1e-6)
    np.testing.assert_allclose(scored.entropy_NT, -0.25 * np.log(0.25) - 0.75 * np.log(0.75), rtol=1e-6)


def test_a_uniform_distribution_has_the_logarithm_of_its_size_as_entropy():
    scored = logprobs.from_logits(jnp.zeros((1, 1, 13)), jnp.array([[4]]))
    np.testing.assert_allclose(scored.entropy_NT, np.log(13), rtol=1e-6)
    np.testing.assert_allclose(scored.logprob_NT, -np.log(13), rtol=1e-6)


def test_logits_far_from_zero_do_not_overflow():
    scored = logprobs.from_logits(jnp.array([[[1e4, 0.0], [-1e4, -1e4]]]), jnp.array([[1, 0]]))
    np.testing.assert_allclose(scored.logprob_NT, [[-1e4, -np.log(2)]], rtol=1e-6)
    np.testing.assert_allclose(scored.entropy_NT, [[0, np.log(2)]], atol=1e-6)


def test_temperature_divides_the_logits():
    # Logits 0 and log 3 at temperature 1/2 are probabilities 1/10 and 9/10.
    scored = logprobs.chunked(
        jnp.ones((1, 1, 1)), jnp.log(jnp.array([[1.0, 3.0]])), jnp.array([[1]]), temperature=0.5, chunk_tokens=1
    )
    np.testing.assert_allclose(scored.logprob_NT, np.log(0.9), rtol=1e-5)


# Three rows of seven positions: chunks of one position, of two and of three (which do not divide), and of all.
@pytest.mark.parametrize(("chunk_tokens", "temperature"), [(1, 0.6), (6, 1.0), (10, 0.6), (1000, 1.0)])
def test_chunked_is_dense(inputs, chunk_tokens, temperature):
    *arrays, cotangent_NT = inputs
    token_NT = arrays[2]

    @jax.jit
    def results(hidden_NTD, unembedding_DV):
        def chunked_sum(hidden_NTD, unembedding_DV):
            scored = logprobs.chunked(
                hidden_NTD, unembedding_DV, token_NT, temperature=temperature, chunk_tokens=chunk_tokens
            )
            return jnp.sum(scored.logprob_NT * cotangent_NT), scored

        gradients, scored = jax.grad(chunked_sum, argnums=(0, 1), has_aux=True)(hidden_NTD, unembedding_DV)
        return gradients, scored

    def dense_sum(hidden_NTD, unembedding_DV):
        logprob_NT, entropy_NT = dense(hidden_NTD, unembedding_DV, token_NT, temperature)
        return jnp.sum(logprob_NT * cotangent_NT), (logprob_NT, entropy_NT)

    wanted_gradients, wanted = jax.jit(jax.grad(dense_sum, argnums=(0, 1), has_aux=True))(*arrays[:2])
    gradients, scored = results(*arrays[:2])
    assert scored.logprob_NT.shape == scored.entropy_NT.shape == (N, T)
    for got, want in zip((*scored, *gradients), (*wanted, *wanted_gradients), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_entropy_carries_no_gradient(inputs):
    hidden_NTD, unembedding_DV, token_NT, _ = inputs

    def entropy(hidden):
        return jnp.sum(logprobs.chunked(hidden, unembedding_DV, token_NT, temperature=1.0, chunk_tokens=6).entropy_NT)

    np.testing.assert_array_equal(jax.jit(jax.grad(entropy))(hidden_NTD), 0)


def test_logits_are_float32_or_better_whatever_the_hidden_dtype(inputs):
    hidden_NTD, unembedding_DV, token_NT, _ = inputs
    narrow = hidden_NTD.astype(jnp.bfloat16), unembedding_DV.astype(jnp.bfloat16)
    scored = logprobs.chunked(*narrow, token_NT, temperature=1.0, chunk_tokens=6)
    want, _ = dense(*(array.astype(jnp.float32) for array in narrow), token_NT, 1.0)
    assert scored.logprob_NT.dtype == jnp.float32
    np.testing.assert_allclose(scored.logprob_NT, want, atol=1e-5)


def test_logits_of_the_whole_sequence_never_exist_in_either_pass(inputs):
    hidden_NTD, unembedding_DV, token_NT, _ = inputs

    def total(hidden, table):
        return jnp.sum(logprobs.chunked(hidden, table, token_NT, temperature=1.0, chunk_tokens=N).logprob_NT)

    program = str(jax.make_jaxpr(jax.grad(total, argnums=(0, 1)))(hidden_NTD, unembedding_DV))
    assert f"f32[{N},1,{V}]" in program
    assert not any(f"f32[{shape}]" in program for shape in (f"{N},{T},{V}", f"{T},{N},1,{V}", f"{N},{T},1,{V}"))


def test_the_gradient_of_a_narrow_projection_is_added_up_in_float32():
    positions = 1024
    hidden = jnp.ones((1, positions, 2), jnp.bfloat16)
    table, token = jnp.zeros((2, 4), jnp.bfloat16), jnp.zeros((1, positions), jnp.int32)

    def total(table):
        return jnp.sum(logprobs.chunked(hidden, table, token, temperature=1.0, chunk_tokens=1).logprob_NT)

    # Each position adds 3/4 to the token's own logit and takes 1/4 from the others; sums in bfloat16 would stop.
    want = np.array([[768, -256, -256, -256]] * 2)
    np.testing.assert_array_equal(jax.jit(jax.grad(total))(table).astype(jnp.float32), want)


def test_a_frozen_projection_has_no_gradient_on_the_way(inputs):
    hidden_NTD, unembedding_DV, token_NT, _ = inputs

    def total(hidden, table):
        return jnp.sum(logprobs.chunked(hidden, table, token_NT, temperature=1.0, chunk_tokens=N).logprob_NT)

    products = [
        str(jax.make_jaxpr(jax.grad(total, argnums=which))(hidden_NTD, unembedding_DV)).count("dot_general")
        for which in (0, (0, 1))
    ]
    assert products[1] - products[0] == 1
