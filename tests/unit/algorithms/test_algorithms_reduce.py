"""Sums, means and completion weights, worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import reduce

VALUE = jnp.array([[1.0, 2.0, jnp.nan], [4.0, jnp.nan, jnp.inf]])
MASK = jnp.array([[True, True, False], [True, False, False]])


def weights(token_count_BG, valid_BG=None, active_B=None):
    token_count_BG = jnp.array(token_count_BG)
    valid_BG = jnp.ones(token_count_BG.shape, bool) if valid_BG is None else jnp.array(valid_BG)
    active_B = jnp.ones(len(token_count_BG), bool) if active_B is None else jnp.array(active_B)
    return reduce.sequence_mean_weight(token_count_BG, valid_BG, active_B, dtype=jnp.dtype("float32"))


def test_masked_sum_and_mean_count_only_what_the_mask_shows():
    assert reduce.masked_sum(VALUE, MASK) == 7
    assert reduce.masked_mean(VALUE, MASK) == np.float32(7 / 3)


def test_masked_mean_of_nothing_is_zero():
    assert reduce.masked_mean(VALUE, jnp.zeros_like(MASK)) == 0


def test_nan_behind_the_mask_gets_a_gradient_of_zero():
    gradient = jax.grad(reduce.masked_mean)(VALUE, MASK)
    np.testing.assert_allclose(gradient, np.where(MASK, 1 / 3, 0), rtol=1e-6)


def test_sequence_mean_gives_short_and_long_completions_the_same_say():
    token_loss = jnp.array([[[-1.0, 0.0, 0.0], [1.0, 1.0, 1.0]]])
    weight_BG = weights([[1, 3]])
    np.testing.assert_allclose(weight_BG, [[1 / 2, 1 / 6]], rtol=1e-6)
    assert abs(jnp.sum(weight_BG[:, :, None] * token_loss)) < 1e-7


def test_weights_divide_by_active_groups_valid_completions_and_tokens():
    weight_BG = weights(
        [[1, 2, 4], [1, 2, 4], [1, 2, 4]],
        [[True, True, True], [True, False, True], [True, True, True]],
        [True, True, False],
    )
    wanted = [[1 / 6, 1 / 12, 1 / 24], [1 / 4, 0, 1 / 16], [0, 0, 0]]
    np.testing.assert_allclose(weight_BG, wanted, rtol=1e-6)


def test_a_masked_completion_leaves_the_denominator():
    # Two completions of four tokens, one masked out, a loss of 1 per token: 1, not a half.
    weight_BG = weights([[4, 4]], [[True, False]])
    assert jnp.sum(weight_BG[:, :, None] * jnp.ones((1, 2, 4))) == 1


def test_a_completion_without_tokens_weighs_nothing_and_stays_in_the_denominator():
    np.testing.assert_allclose(weights([[0, 2]]), [[0, 1 / 4]], rtol=1e-6)


def test_no_active_group_gives_weights_of_zero():
    np.testing.assert_array_equal(weights([[3, 2]], active_B=[False]), 0)


GOLDEN_LOSS = np.array([[[-1.0, 0, 0], [1, 1, 1]]])
GOLDEN_COUNT = [[1, 3]]


def named_weights(name, token_count_BG, valid_BG=None, active_B=None, constant_tokens=4):
    token_count_BG = jnp.array(token_count_BG)
    valid_BG = jnp.ones(token_count_BG.shape, bool) if valid_BG is None else jnp.array(valid_BG)
    active_B = jnp.ones(len(token_count_BG), bool) if active_B is None else jnp.array(active_B)
    return reduce.completion_weight(
        name, token_count_BG, valid_BG, active_B, constant_tokens=constant_tokens, dtype=jnp.dtype("float32")
    )


@pytest.mark.parametrize(("name", "wanted"), [("sequence_mean", 0.0), ("token_mean", 0.5), ("constant_length", 0.25)])
def test_one_token_of_minus_one_and_three_of_one(name, wanted):
    weight_BG = np.asarray(named_weights(name, GOLDEN_COUNT))
    np.testing.assert_allclose(np.sum(weight_BG[:, :, None] * GOLDEN_LOSS), wanted, atol=1e-7)


def test_token_mean_runs_over_the_tokens_of_all_active_groups():
    # 1 + 2 tokens of the first group's valid completions, 5 + 0 + 1 of the second's; the third is inactive.
    weight_BG = named_weights(
        "token_mean",
        [[1, 2, 4], [5, 0, 1], [7, 7, 7]],
        [[True, True, False], [True, True, True], [True, True, True]],
        [True, True, False],
    )
    np.testing.assert_allclose(weight_BG, np.array([[1, 1, 0], [1, 0, 1], [0, 0, 0]]) / 9, rtol=1e-6)


def test_constant_length_divides_by_groups_completions_and_the_constant():
    weight_BG = named_weights(
        "constant_length",
        [[1, 2, 4], [5, 0, 1], [7, 7, 7]],
        [[True, True, False], [True, True, True], [True, True, True]],
        [True, True, False],
        constant_tokens=10,
    )
    wanted = [[1 / 40, 1 / 40, 0], [1 / 60, 0, 1 / 60], [0, 0, 0]]
    np.testing.assert_allclose(weight_BG, wanted, rtol=1e-6)


@pytest.mark.parametrize("name", ["sequence_mean", "token_mean", "constant_length"])
def test_nothing_active_weighs_nothing_under_any_name(name):
    np.testing.assert_array_equal(named_weights(name, [[3, 2]], active_B=[False]), 0)
    np.testing.assert_array_equal(named_weights(name, [[3, 2]], [[False, False]]), 0)
