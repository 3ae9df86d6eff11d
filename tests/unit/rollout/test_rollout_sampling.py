import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.rollout import sampling

LOGIT_V = np.array([1.5, -0.5, 0.7, 0.0, 2.0, -1.0, 0.4, -2.5])
DRAWS = 20_000
CHI_SQUARE_LIMIT = {2: 18.4, 3: 21.1, 4: 23.5, 7: 29.9}
"""What a chi-square variable of that many degrees of freedom exceeds once in 10 000 times."""


@functools.cache
def drawn(temperature, top_k=0, top_p=1.0, seed=0):
    logits_BGV = jnp.broadcast_to(jnp.asarray(LOGIT_V, jnp.float32), (4, DRAWS // 4, 8))
    draw = jax.jit(sampling.draw, static_argnames=("temperature", "top_k", "top_p"))
    result = draw(logits_BGV, jax.random.key(seed), temperature=temperature, top_k=top_k, top_p=top_p)
    assert result.token.shape == (4, DRAWS // 4)
    assert result.token.dtype == jnp.int32
    return jax.tree.map(lambda array: np.asarray(array).reshape(-1), result)


def probabilities(temperature, top_k=0, top_p=1.0):
    """What should be drawn from, token by token: top-k first, then the nucleus of what is left."""
    probability_V = np.exp(LOGIT_V / temperature) / np.exp(LOGIT_V / temperature).sum()
    kept = list(np.argsort(-probability_V))[: top_k or 8]
    nucleus, held = [], 0.0
    for token in kept:
        if held >= top_p:
            break
        nucleus.append(token)
        held += probability_V[token] / probability_V[kept].sum()
    truncated_V = np.zeros(8)
    truncated_V[nucleus] = probability_V[nucleus] / probability_V[nucleus].sum()
    return probability_V, truncated_V


def chi_square(token, probability_V):
    possible = probability_V > 0
    count_V = np.bincount(token, minlength=8)
    assert count_V[~possible].sum() == 0
    expected = DRAWS * probability_V[possible]
    return np.sum((count_V[possible] - expected) ** 2 / expected), possible.sum() - 1


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_frequencies_are_those_of_the_softmax_at_the_temperature(temperature):
    probability_V, _ = probabilities(temperature)
    statistic, freedom = chi_square(drawn(temperature).token, probability_V)
    assert statistic < CHI_SQUARE_LIMIT[freedom]
    other_V, _ = probabilities(1.6 - temperature)
    assert chi_square(drawn(temperature).token, other_V)[0] > 1000


def test_frequencies_are_right_in_a_larger_vocabulary():
    logit_V = np.random.default_rng(0).normal(scale=0.7, size=200)
    logits_BGV = jnp.broadcast_to(jnp.asarray(logit_V, jnp.float32), (1, DRAWS, 200))
    result = jax.jit(lambda key: sampling.draw(logits_BGV, key, temperature=1.0))(jax.random.key(0))
    expected_V = DRAWS * np.exp(logit_V) / np.exp(logit_V).sum()
    count_V = np.bincount(np.asarray(result.token[0]), minlength=200)
    assert count_V.shape == (200,)
    # The limit that a chi-square variable of 199 degrees of freedom exceeds once in 10 000 times.
    assert np.sum((count_V - expected_V) ** 2 / expected_V) < 281.7


def edge_uniforms(weight_V: np.ndarray) -> np.ndarray:
    """Numbers on and next to the edges between two indices."""
    edge = np.unique(np.cumsum(weight_V, dtype=np.float64)) / weight_V.sum(dtype=np.float64)
    near = edge[:, None] * (1 + np.arange(-3, 4) * 2.0**-24)
    return np.clip(near, 0, 1 - 2.0**-24).reshape(-1).astype(np.float32)


def test_a_weight_of_zero_is_never_drawn_whatever_the_rounding():
    # A vocabulary too large for exact sums.
    V, kept = 64 * 1200, 400
    draws = np.random.default_rng(0)
    weight_V = np.zeros(V, np.float32)
    weight_V[draws.choice(V - 64, kept, replace=False)] = np.exp(draws.normal(size=kept))
    outer = edge_uniforms(weight_V.reshape(-1, 64).sum(axis=1))
    categorical = jax.jit(jax.vmap(sampling.categorical, (None, 0)))
    for inner in (0.0, 0.5, 1 - 2.0**-24):
        uniform = np.stack([outer, np.full_like(outer, inner)], axis=1)[:, :, None, None]
        index_N = np.asarray(categorical(jnp.asarray(weight_V)[None, None], jnp.asarray(uniform))).reshape(-1)
        assert index_N.max() < V
        assert (weight_V[index_N] > 0).all()


def test_within_a_block_the_index_is_that_of_the_running_sum():
    weight_V = np.array([0, 1, 0, 2, 4, 0, 1, 0], np.float32)
    uniform = np.array([0.0, 0.124, 0.125, 0.374, 0.375, 0.874, 0.875, 0.9999999], np.float32)
    both = jnp.asarray(np.stack([uniform, uniform], axis=0)[:, :, None])
    index = sampling.categorical(jnp.broadcast_to(jnp.asarray(weight_V), (8, 1, 8)), both)[:, 0]
    np.testing.assert_array_equal(index, [1, 1, 3, 3, 4, 4, 6, 6])


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_logprobs_are_those_of_the_drawn_tokens_at_the_temperature(temperature):
    result = drawn(temperature)
    probability_V, _ = probabilities(temperature)
    np.testing.assert_allclose(result.logprob, np.log(probability_V)[result.token], rtol=1e-5)
    np.testing.assert_array_equal(result.truncated_logprob, result.logprob)


@pytest.mark.parametrize(
    ("top_k", "top_p", "left"), [(5, 1.0, 5), (0, 0.8, 4), (5, 0.8, 3), (4, 0.99, 4), (6, 0.95, 5)]
)
def test_truncation_draws_from_the_renormalised_rest(top_k, top_p, left):
    result = drawn(1.0, top_k, top_p)
    probability_V, truncated_V = probabilities(1.0, top_k, top_p)
    assert np.count_nonzero(truncated_V) == left
    statistic, freedom = chi_square(result.token, truncated_V)
    assert statistic < CHI_SQUARE_LIMIT[freedom]
    np.testing.assert_allclose(result.logprob, np.log(probability_V)[result.token], rtol=1e-5)
    np.testing.assert_allclose(result.truncated_logprob, np.log(truncated_V[result.token]), rtol=1e-5)
    _, first = np.unique(result.token, return_index=True)
    assert len(first) == left
    np.testing.assert_allclose(np.exp(result.truncated_logprob[first]).sum(), 1, rtol=1e-5)


@pytest.mark.parametrize(("top_k", "top_p"), [(1, 1.0), (0, 1e-6), (3, 1e-6), (1, 0.9)])
def test_the_likeliest_token_always_stays(top_k, top_p):
    result = drawn(1.0, top_k, top_p)
    np.testing.assert_array_equal(result.token, LOGIT_V.argmax())
    np.testing.assert_allclose(result.truncated_logprob, 0, atol=1e-6)
    np.testing.assert_allclose(result.logprob, np.log(probabilities(1.0)[0].max()), rtol=1e-5)


def test_every_row_has_its_own_nucleus():
    logits_BGV = jnp.array([[[5.0, 0, 0, 0], [0, 1, 2, 3]], [[0, 0, 0, 0], [1, 4, 4, 0]]])
    kept = lambda *cut: np.isfinite(sampling.truncate(jax.nn.log_softmax(logits_BGV), *cut))  # noqa: E731
    np.testing.assert_array_equal(kept(0, 0.8), [[[1, 0, 0, 0], [0, 0, 1, 1]], [[1, 1, 1, 1], [0, 1, 1, 0]]])
    np.testing.assert_array_equal(kept(2, 1.0), [[[1, 1, 1, 1], [0, 0, 1, 1]], [[1, 1, 1, 1], [0, 1, 1, 0]]])


@pytest.mark.parametrize("top_k", [0, 8, 100])
def test_a_truncation_that_keeps_everything_changes_nothing(top_k):
    logprob_BGV = jax.nn.log_softmax(jnp.asarray(LOGIT_V, jnp.float32)[None, None])
    assert sampling.truncate(logprob_BGV, top_k, 1.0) is logprob_BGV


def test_noise_follows_the_key_and_differs_between_rows():
    np.testing.assert_array_equal(drawn(1.0).token, drawn.__wrapped__(1.0).token)
    assert np.mean(drawn(1.0).token == drawn(1.0, seed=1).token) < 0.5
    rows = drawn(1.0).token.reshape(4, -1)
    assert np.mean(rows[0] == rows[1]) < 0.5
    assert np.mean(rows[:, :-1] == rows[:, 1:]) < 0.5


def test_bfloat16_logits_are_drawn_in_float32():
    logits_BGV = jnp.asarray(LOGIT_V, jnp.bfloat16)[None, None]
    result = sampling.draw(logits_BGV, jax.random.key(0), temperature=0.6)
    wanted_V = jax.nn.log_softmax(logits_BGV.astype(jnp.float32)[0, 0] / 0.6)
    assert result.logprob.dtype == jnp.float32
    np.testing.assert_allclose(result.logprob[0, 0], wanted_V[result.token[0, 0]], rtol=1e-5)
