"""Group statistics, worked by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import advantages


def normalized(reward_BG, valid_BG=None, *, epsilon=1e-6):
    reward_BG = jnp.array(reward_BG, jnp.float32)
    valid_BG = jnp.ones(reward_BG.shape, bool) if valid_BG is None else jnp.array(valid_BG)
    return advantages.group_normalized(reward_BG, valid_BG, variance_epsilon=epsilon)


def test_advantages_by_hand():
    # Row 0: mean 1/2, sigma 1/2. Row 1: mean 1/4, population sigma sqrt(3)/4.
    advantage = normalized([[1, 0, 1, 0], [1, 0, 0, 0]])
    root = 3**0.5
    wanted = [[1, -1, 1, -1], [root, -1 / root, -1 / root, -1 / root]]
    np.testing.assert_allclose(advantage.advantage_BG, wanted, rtol=1e-5)
    np.testing.assert_array_equal(advantage.active_B, True)


def test_epsilon_is_added_to_sigma_and_not_under_the_root():
    advantage_BG = normalized([[1, 0]], epsilon=0.25).advantage_BG
    np.testing.assert_allclose(advantage_BG, [[0.5 / 0.75, -0.5 / 0.75]], rtol=1e-6)


def test_a_sigma_at_epsilon_is_inactive_and_one_above_is_not():
    # [1, 0] has a sigma of exactly a half.
    assert not normalized([[1, 0]], epsilon=0.5).active_B
    assert normalized([[1, 0]], epsilon=0.4999).active_B
    np.testing.assert_array_equal(normalized([[1, 0]], epsilon=0.5).advantage_BG, 0)


@pytest.mark.parametrize(
    ("low", "range_", "active"),
    [(0.0, 3e-6, True), (0.0, 0.9e-6, False), (64.0, 16e-5, True), (64.0, 3e-5, False), (-64.0, 3e-5, False)],
)
def test_the_range_must_exceed_its_share_of_the_mean(low, range_, active):
    # Epsilon is far below, so only the range decides.
    assert bool(normalized([[low, low + range_]], epsilon=1e-9).active_B[0]) is active


def test_equal_rewards_are_inactive():
    advantage = normalized([[0.35] * 7, [1] * 7])
    np.testing.assert_array_equal(advantage.active_B, False)
    np.testing.assert_array_equal(advantage.advantage_BG, 0)


def test_a_small_spread_on_a_large_mean_keeps_its_digits():
    advantage_BG = normalized([[4096, 4096.5, 4097, 4097.5]]).advantage_BG
    wanted = np.array([[-3, -1, 1, 3]]) / 5**0.5
    np.testing.assert_allclose(advantage_BG, wanted, rtol=1e-5)


def test_an_invalid_completion_has_no_vote():
    # Without completion 0 the group is constant.
    advantage = normalized([[1, 0, 0, 0]], [[False, True, True, True]])
    np.testing.assert_array_equal(advantage.advantage_BG, 0)
    np.testing.assert_array_equal(advantage.active_B, False)


@pytest.mark.parametrize("unusable", [np.nan, np.inf, -np.inf, 1e30])
def test_statistics_run_over_the_valid_three(unusable):
    advantage_BG = normalized([[1, 0, unusable, 1]], [[True, True, False, True]]).advantage_BG
    root = 2**0.5
    np.testing.assert_allclose(advantage_BG, [[1 / root, -root, 0, 1 / root]], rtol=1e-5)
    assert advantage_BG[0, 2] == 0


@pytest.mark.parametrize("valid_G", [[False, False, False], [True, False, False]])
def test_fewer_than_two_valid_completions_are_no_group(valid_G):
    advantage = normalized([[1, 0, 0.5]], [valid_G])
    np.testing.assert_array_equal(advantage.advantage_BG, 0)
    np.testing.assert_array_equal(advantage.active_B, False)


def test_groups_do_not_see_each_other():
    alone = normalized([[1, 0, 0.5]]).advantage_BG
    beside = normalized([[100, -100, 7], [1, 0, 0.5]]).advantage_BG[1:]
    np.testing.assert_array_equal(alone, beside)
