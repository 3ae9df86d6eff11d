"""Length regularisation, worked by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import rewards


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
