"""Advantages from values, and PPO's two losses, against loops and numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import gae, ppo

N, T = 4, 7
LENGTHS = (1, 3, 5, 7)
MASK_NT = np.arange(T) < np.array(LENGTHS)[:, None]


def random_NT(seed):
    return np.random.default_rng(seed).normal(size=(N, T)).astype(np.float32)


def under_mask(value_NT, fill):
    return np.where(MASK_NT, value_NT, fill).astype(np.float32)


def naive_gae(reward_NT, value_NT, gamma, gae_lambda):
    """The definition: the sum over all later errors, each discounted by its distance."""
    advantage_NT = np.zeros((N, T))
    for n, length in enumerate(LENGTHS):
        value = np.append(value_NT[n, :length].astype(np.float64), 0)
        delta = [reward_NT[n, t] + gamma * value[t + 1] - value[t] for t in range(length)]
        for t in range(length):
            advantage_NT[n, t] = sum((gamma * gae_lambda) ** (s - t) * delta[s] for s in range(t, length))
    return advantage_NT


# --- advantages


@pytest.mark.parametrize(("gamma", "gae_lambda"), [(1.0, 1.0), (1.0, 0.95), (0.9, 0.5), (0.9, 0.0), (0.0, 1.0)])
def test_gae_is_the_discounted_sum_of_errors_up_to_each_end(gamma, gae_lambda):
    reward_NT, value_NT = random_NT(0), random_NT(1)
    want = naive_gae(reward_NT, value_NT, gamma, gae_lambda)
    got = gae.gae(jnp.array(reward_NT), jnp.array(value_NT), jnp.array(MASK_NT), gamma=gamma, gae_lambda=gae_lambda)
    np.testing.assert_allclose(got, want, atol=1e-5)
    np.testing.assert_array_equal(np.asarray(got)[~MASK_NT], 0)


def test_without_discounts_advantages_are_returns_minus_values():
    reward_NT, value_NT = under_mask(random_NT(0), 0), random_NT(1)
    got = gae.gae(jnp.array(reward_NT), jnp.array(value_NT), jnp.array(MASK_NT), gamma=1.0, gae_lambda=1.0)
    return_NT = np.cumsum(reward_NT[:, ::-1], axis=1)[:, ::-1]
    np.testing.assert_allclose(got, under_mask(return_NT - value_NT, 0), atol=1e-5)


@pytest.mark.parametrize("fill", [1e6, np.nan])
def test_what_stands_behind_the_end_changes_no_advantage(fill):
    def estimate(fill):
        reward_NT, value_NT = (jnp.array(under_mask(random_NT(seed), fill)) for seed in (0, 1))
        return gae.gae(reward_NT, value_NT, jnp.array(MASK_NT), gamma=0.9, gae_lambda=0.9)

    np.testing.assert_array_equal(estimate(fill), estimate(0.0))


@pytest.mark.parametrize("fill", [0.0, np.nan])
def test_whitened_advantages_have_no_mean_and_unit_spread_over_all_counted_tokens(fill):
    got = gae.whitened(jnp.array(under_mask(5 + 3 * random_NT(0), fill)), jnp.array(MASK_NT), deviation_epsilon=1e-4)
    counted = np.asarray(got)[MASK_NT]
    np.testing.assert_allclose([counted.mean(), counted.std()], [0, 1], atol=1e-4)
    np.testing.assert_array_equal(np.asarray(got)[~MASK_NT], 0)


def test_equal_advantages_are_whitened_to_nothing():
    got = gae.whitened(jnp.full((N, T), 0.1), jnp.array(MASK_NT), deviation_epsilon=1e-4)
    np.testing.assert_allclose(got, 0, atol=1e-3)


# --- rewards


def test_the_kl_is_taken_off_token_by_token():
    reward_NT = np.zeros((1, 3), np.float32)
    reward_NT[0, 1] = 1.0
    got = ppo.kl_penalized(
        jnp.array(reward_NT),
        jnp.array([[-1.0, -2.0, jnp.nan]]),
        jnp.array([[-1.5, -1.0, 0.0]]),
        jnp.array([[True, True, False]]),
        kl_beta=0.1,
    )
    np.testing.assert_allclose(got, [[-0.05, 1.1, 0]], rtol=1e-6)


# --- policy


def policy(logprob_NT, *, mask_NT=MASK_NT, old_NT=None, advantage_NT=None, weight_N=None):
    return ppo.policy_objective(
        logprob_NT,
        jnp.array(random_NT(1) if old_NT is None else old_NT),
        jnp.array(mask_NT),
        jnp.array(random_NT(2) if advantage_NT is None else advantage_NT),
        jnp.full(len(mask_NT), 1 / np.sum(mask_NT), jnp.float32) if weight_N is None else jnp.array(weight_N),
        clip_epsilon=0.2,
    )


def test_policy_loss_by_hand():
    # Ratios 2, 2, 0.5, 0.5 with advantages 1, -1, 1, -1: the first and the last are clipped, to 1.2 and 0.8.
    log_ratio_NT = jnp.log(jnp.array([[2.0, 2.0, 0.5, 0.5]]))
    everything = np.ones((1, 4), bool)
    advantage_NT = np.array([[1.0, -1, 1, -1]], np.float32)
    old_NT = np.zeros((1, 4), np.float32)

    def loss(log_ratio_NT):
        return policy(log_ratio_NT, mask_NT=everything, old_NT=old_NT, advantage_NT=advantage_NT)

    (value, sums), gradient = jax.value_and_grad(loss, has_aux=True)(log_ratio_NT)
    np.testing.assert_allclose(value, (-1.2 + 2 - 0.5 + 0.8) / 4, rtol=1e-6)
    np.testing.assert_allclose(gradient, [[0, 0.5, -0.125, 0]], rtol=1e-6)
    assert (sums["tokens"], sums["clipped_low"], sums["clipped_high"]) == (4, 1, 1)


def test_at_a_ratio_of_one_the_gradient_is_that_of_reinforce():
    gradient = jax.grad(lambda logprob_NT: policy(logprob_NT)[0])(jnp.array(random_NT(1)))
    np.testing.assert_allclose(gradient, under_mask(-random_NT(2) / MASK_NT.sum(), 0), rtol=1e-5)


@pytest.mark.parametrize("fill", [1e6, np.nan])
def test_what_stands_behind_the_end_changes_no_policy_loss(fill):
    def run(fill):
        logprob_NT, old_NT, advantage_NT = (under_mask(random_NT(seed), fill) for seed in (0, 1, 2))
        loss = lambda logprob_NT: policy(logprob_NT, old_NT=old_NT, advantage_NT=advantage_NT)  # noqa: E731
        return jax.value_and_grad(loss, has_aux=True)(jnp.array(logprob_NT))

    jax.tree.map(np.testing.assert_array_equal, run(fill), run(0.0))


# --- values


def value_loss(value_NT, old_NT, return_NT, *, mask_NT=None, value_clip):
    mask_NT = np.ones(np.shape(value_NT), bool) if mask_NT is None else mask_NT
    weight_N = jnp.full(len(mask_NT), 1 / np.sum(mask_NT), jnp.float32)
    return ppo.value_objective(
        jnp.array(value_NT),
        jnp.array(old_NT),
        jnp.array(return_NT),
        jnp.array(mask_NT),
        weight_N,
        value_clip=value_clip,
    )


def test_value_clip_by_hand():
    # Old value 0, clip 0.2. Towards the return beyond the clip: no more to gain. Away from it: the whole error.
    value_NT, return_NT = np.float32([[0.5, 0.1, -0.5, 1.5]]), np.float32([[1.0, 1, 1, 1]])
    old_NT = np.zeros((1, 4), np.float32)
    (loss, sums), gradient = jax.value_and_grad(
        lambda value_NT: value_loss(value_NT, old_NT, return_NT, value_clip=0.2), has_aux=True
    )(jnp.array(value_NT))
    # The last one overshot, and has less error than the old value had: the clip keeps it from being pulled back.
    np.testing.assert_allclose(loss, (0.8**2 + 0.9**2 + 1.5**2 + 0.8**2) / 2 / 4, rtol=1e-6)
    np.testing.assert_allclose(gradient, [[0, -0.9 / 4, -1.5 / 4, 0]], rtol=1e-6)
    assert sums["value_clipped"] == 2


def test_without_a_clip_the_loss_is_half_the_mean_squared_error():
    value_NT, return_NT = random_NT(0), random_NT(1)
    loss, gradient = jax.value_and_grad(
        lambda value_NT: value_loss(value_NT, 9 + return_NT, return_NT, mask_NT=MASK_NT, value_clip=None)[0]
    )(jnp.array(value_NT))
    error_NT = under_mask(value_NT - return_NT, 0)
    np.testing.assert_allclose(loss, np.sum(error_NT**2) / 2 / MASK_NT.sum(), rtol=1e-5)
    np.testing.assert_allclose(gradient, error_NT / MASK_NT.sum(), rtol=1e-5)


@pytest.mark.parametrize("fill", [1e6, np.nan])
def test_what_stands_behind_the_end_changes_no_value_loss(fill):
    def run(fill):
        value_NT, old_NT, return_NT = (under_mask(random_NT(seed), fill) for seed in (0, 1, 2))
        loss = lambda value_NT: value_loss(value_NT, old_NT, return_NT, mask_NT=MASK_NT, value_clip=0.2)  # noqa: E731
        return jax.value_and_grad(loss, has_aux=True)(jnp.array(value_NT))

    jax.tree.map(np.testing.assert_array_equal, run(fill), run(0.0))
