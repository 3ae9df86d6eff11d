"""Group statistics, worked by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import advantages
from grpo_jax.records import LARGEST_REWARD


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


def estimated(name, reward_BG, valid_BG=None, *, epsilon=1e-6, **settings):
    reward_BG = jnp.array(reward_BG, jnp.float32)
    valid_BG = jnp.ones(reward_BG.shape, bool) if valid_BG is None else jnp.array(valid_BG)
    return advantages.estimate(name, reward_BG, valid_BG, variance_epsilon=epsilon, **settings)


def test_a_sample_variance_divides_by_one_less():
    # Deviations of a half: population sigma 1/2, sample sigma 1/sqrt(3) of four and 1/sqrt(2) of the valid two.
    advantage_BG = estimated("group_normalized", [[1, 0, 1, 0]], ddof=1).advantage_BG
    np.testing.assert_allclose(advantage_BG, np.array([[1, -1, 1, -1]]) * 3**0.5 / 2, rtol=1e-5)
    pair = estimated("group_normalized", [[1, 0, 9, 9]], [[True, True, False, False]], ddof=1)
    np.testing.assert_allclose(pair.advantage_BG, np.array([[1, -1, 0, 0]]) / 2**0.5, rtol=1e-5)


def test_one_valid_completion_has_no_sample_variance_and_no_advantage():
    alone = estimated("group_normalized", [[1, 0]], [[True, False]], ddof=1)
    np.testing.assert_array_equal(alone.advantage_BG, 0)


def test_a_centred_group_is_not_scaled():
    advantage_BG = estimated("group_centered", [[1, 0, 0, 0], [8, 0, 4, 4]]).advantage_BG
    np.testing.assert_allclose(advantage_BG, [[0.75, -0.25, -0.25, -0.25], [4, -4, 0, 0]], rtol=1e-6)


def test_leave_one_out_compares_with_the_mean_of_the_others():
    advantage_BG = estimated("leave_one_out", [[0.35] * 7 + [0]]).advantage_BG
    np.testing.assert_allclose(advantage_BG, [[0.05] * 7 + [-0.35]], rtol=1e-5)
    # The others of the valid three: (0 + 1) / 2, (1 + 1) / 2 and (1 + 0) / 2.
    valid = estimated("leave_one_out", [[1, 0, 1, np.nan]], [[True, True, True, False]])
    np.testing.assert_allclose(valid.advantage_BG, [[0.5, -1, 0.5, 0]], rtol=1e-6)


def test_a_batch_has_one_spread():
    # Deviations +-1, +-3 and 0: their mean square over six completions is 20 / 6.
    advantage_BG = estimated("batch_normalized", [[2, 0], [6, 0], [5, 5]]).advantage_BG
    np.testing.assert_allclose(advantage_BG, np.array([[1, -1], [3, -3], [0, 0]]) / (20 / 6) ** 0.5, rtol=1e-5)
    # Over the five that are valid, of which the last is alone in its group.
    some = estimated("batch_normalized", [[2, 0], [6, 0], [5, np.nan]], [[True, True], [True, True], [True, False]])
    np.testing.assert_allclose(some.advantage_BG, np.array([[1, -1], [3, -3], [0, 0]]) / (20 / 5) ** 0.5, rtol=1e-5)


def decoupled(part_BGK, weights, valid_BG=None, epsilon=1e-6):
    part_BGK = jnp.array(part_BGK, jnp.float32)
    valid_BG = jnp.ones(part_BGK.shape[:2], bool) if valid_BG is None else jnp.array(valid_BG)
    return advantages.decoupled_normalized(part_BGK, valid_BG, weights=weights, variance_epsilon=epsilon)


def test_decoupled_rewards_are_normalised_before_they_are_added():
    # Both parts become +-1 whatever their scale: sums of 3 (+-), 1 (+-) and, in the second group, 2 (+-) and 0.
    parts = [
        [[1, 1000], [1, 0], [0, 1000], [0, 0]],
        [[1, 7], [0, 7], [1, 7], [0, 7]],
        [[5, 7], [5, 7], [5, 7], [5, 7]],
    ]
    result = decoupled(parts, (2.0, 1.0))
    sigma = ((2 * 9 + 2 * 1 + 4 * 4) / 8) ** 0.5
    np.testing.assert_allclose(
        result.advantage_BG, np.array([[3, 1, -1, -3], [2, -2, 2, -2], [0] * 4]) / sigma, rtol=1e-5
    )
    np.testing.assert_array_equal(result.active_B, [True, True, False])


def test_decoupled_rewards_of_invalid_completions_have_no_vote():
    valid = [[True, True, False, True]]
    got = decoupled([[[1, 2], [0, 4], [np.nan, 1e30], [1, 0]]], (1.0, 0.5), valid).advantage_BG
    want = decoupled([[[1, 2], [0, 4], [1, 0]]], (1.0, 0.5)).advantage_BG
    np.testing.assert_allclose(got, np.insert(want, 2, 0, axis=1), rtol=1e-6)


@pytest.mark.parametrize("weights", [(1.0, 1.0), (100.0, 100.0)])
@pytest.mark.parametrize("size", [4, 7, 16, 64])
def test_decoupled_rewards_that_cancel_are_inactive(size, weights):
    # The second reward is the first one upside down, on another scale: what is left of their sum is residue.
    reward_BG = np.random.default_rng(size).random((8, size)).astype(np.float32)
    result = decoupled(np.stack([reward_BG, np.float32(0.3) * (1 - reward_BG)], axis=2), weights)
    np.testing.assert_array_equal(result.active_B, False)
    np.testing.assert_array_equal(result.advantage_BG, 0)


def test_every_reward_has_its_weight():
    with pytest.raises(AssertionError, match="2 rewards and 3 weights"):
        decoupled([[[1, 0], [0, 1]]], (1.0, 1.0, 1.0))


# --- the numerical floor


def one_pass_float32(reward_BG, epsilon):
    """The textbook formula the short way, sigma^2 = E[r^2] - E[r]^2, which loses all digits of equal rewards."""
    count = np.float32(reward_BG.shape[1])
    mean_B1 = np.add.reduce(reward_BG, axis=1, keepdims=True) / count
    square_B1 = np.add.reduce(reward_BG * reward_BG, axis=1, keepdims=True) / count
    sigma_B1 = np.sqrt(np.maximum(square_B1 - mean_B1 * mean_B1, 0))
    return (reward_BG - mean_B1) / (sigma_B1 + np.float32(epsilon))


def equal_and_reordered(size, groups=400):
    """Groups of equal rewards, and groups whose rewards are the same five parts added in another order."""
    random = np.random.default_rng(size)
    part_B5 = random.random((groups, 5)).astype(np.float32)
    equal_BG = np.repeat(np.add.reduce(part_B5, axis=1)[:, None], size, axis=1)
    reordered_BG = np.zeros((groups, size), np.float32)
    for column in range(size):
        for part in random.permutation(5):
            reordered_BG[:, column] += part_B5[:, part]
    return equal_BG, reordered_BG


@pytest.mark.parametrize("epsilon", [1e-8, 1e-6])
@pytest.mark.parametrize("size", [6, 7, 12])
def test_rewards_that_are_equal_but_for_rounding_never_spike(size, epsilon):
    for reward_BG in equal_and_reordered(size):
        naive = np.max(np.abs(one_pass_float32(reward_BG, epsilon)), axis=1)
        assert np.mean(naive > 0.1) > 0.1, "the case is harmless, so nothing is shown"
        for name in ("group_normalized", "group_centered", "leave_one_out", "batch_normalized"):
            result = estimated(name, reward_BG, epsilon=epsilon)
            np.testing.assert_array_equal(result.advantage_BG, 0, err_msg=name)
            np.testing.assert_array_equal(result.active_B, False)
        np.testing.assert_array_equal(decoupled(reward_BG[:, :, None], (1.0,), epsilon=epsilon).advantage_BG, 0)


def test_one_group_with_a_signal_does_not_lift_the_residue_of_the_others():
    _, reordered_BG = equal_and_reordered(7)
    reordered_BG[0, 0] += 1
    for name in ("batch_normalized", "group_normalized"):
        advantage_BG = estimated(name, reordered_BG, epsilon=1e-8).advantage_BG
        assert advantage_BG[0, 0] > 1
        np.testing.assert_array_equal(advantage_BG[1:], 0)


@pytest.mark.parametrize("name", ["group_normalized", "group_centered", "leave_one_out", "batch_normalized"])
def test_the_largest_rewards_have_finite_advantages_in_a_large_batch(name):
    reward_BG = jnp.tile(jnp.array([[LARGEST_REWARD, -LARGEST_REWARD]], jnp.float32), (512, 64))
    valid_BG = jnp.ones(reward_BG.shape, bool)
    found = advantages.estimate(name, reward_BG, valid_BG, variance_epsilon=1e-6)
    assert found.active_B.all()
    scale = 1 if "normalized" in name else LARGEST_REWARD
    np.testing.assert_allclose(found.advantage_BG / scale, jnp.sign(reward_BG), rtol=0.02)
