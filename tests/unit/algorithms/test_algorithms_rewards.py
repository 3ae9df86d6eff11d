"""Length regularisation, worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import groups, rewards
from grpo_jax.algorithms.settings import GRPOLossConfig


@pytest.mark.parametrize(
    ("length", "wanted"),
    [(0, 1.0), (9, 1.0), (10, 1.0), (11, 0.75), (14, 0.0), (18, -1.0)],
)
def test_every_token_over_the_budget_costs_the_penalty(length, wanted):
    reward_BG = rewards.length_regularized(jnp.array([[1.0]]), jnp.array([[length]]), penalty=0.25, budget_tokens=10)
    assert reward_BG == wanted


def test_the_defaults_of_a_long_run():
    reward_BG = rewards.length_regularized(
        jnp.array([[1.0, 0.0]]), jnp.array([[8192, 9192]]), penalty=1e-5, budget_tokens=8192
    )
    np.testing.assert_allclose(reward_BG, [[1.0, -0.01]], rtol=1e-6)


def test_a_penalty_of_zero_changes_nothing():
    reward_BG = jnp.array([[0.1, 0.7]])
    shaped_BG = rewards.length_regularized(reward_BG, jnp.array([[5, 500]]), penalty=0.0, budget_tokens=1)
    np.testing.assert_array_equal(shaped_BG, reward_BG)


def test_rewards_keep_their_dtype_and_nan_stays_in_its_place():
    reward_BG = jnp.array([[1.0, jnp.nan]], jnp.bfloat16)
    shaped_BG = rewards.length_regularized(reward_BG, jnp.array([[6, 1]]), penalty=0.25, budget_tokens=4)
    assert shaped_BG.dtype == jnp.bfloat16
    np.testing.assert_array_equal(shaped_BG.astype(jnp.float32), [[0.5, np.nan]])


def test_the_soft_overlong_penalty_grows_over_the_cache():
    penalty_BG = rewards.soft_overlong(
        jnp.array([[80, 90, 100, 120], [1, 81, 99, 79]]), max_tokens=100, cache_tokens=20
    )
    np.testing.assert_allclose(penalty_BG, [[0, -0.5, -1, -1], [0, -0.05, -0.95, 0]], rtol=1e-6)


def test_penalties_add_up_and_a_schedule_goes_before_the_settings():
    config = GRPOLossConfig(
        kl_beta=0.5,
        kl_placement="reward",
        length_penalty=9.0,
        length_budget_tokens=9,
        overlong_max_tokens=100,
        overlong_cache_tokens=20,
    )
    shaped_BG = groups.shaped_reward(
        jnp.array([[1.0, 0.0]]),
        jnp.array([[80, 90]]),
        jnp.array([[0.25, -0.5]]),
        config=config,
        length_penalty=jnp.float32(0.25),
        length_budget_tokens=jnp.float32(84),
    )
    # 1 - 0.5 * 0.25; 0 - 0.25 * 6 - 0.5 + 0.5 * 0.5.
    np.testing.assert_array_equal(shaped_BG, [[0.875, -1.75]])


def test_the_kl_of_a_completion_is_a_masked_sum_without_a_gradient():
    old = jnp.array([[-1.0, -2.0, jnp.nan], [-1.0, -1.0, -1.0]])
    ref = jnp.array([[-1.5, -1.0, 1e6], [-2.0, -1.0, jnp.nan]])
    mask = jnp.array([[True, True, False], [True, True, False]])
    wanted = {"k1": [-0.5, 1.0], "k2": [0.625, 0.5], "k3": [np.exp(-0.5) + np.exp(1) - 2.5, np.exp(-1)]}
    for name, want in wanted.items():
        np.testing.assert_allclose(groups.completion_kl(old, ref, mask, name), want, rtol=1e-6, err_msg=name)
    gradient = jax.grad(lambda old: jnp.sum(groups.completion_kl(old, ref, mask, "k1")))(old)
    np.testing.assert_array_equal(gradient, 0)


def test_a_kl_in_the_reward_needs_each_completions_kl():
    config = GRPOLossConfig(kl_placement="reward")
    with pytest.raises(AssertionError, match="kl_placement='reward' needs each completion's KL"):
        groups.shaped_reward(jnp.ones((1, 2)), jnp.ones((1, 2), int), config=config)
