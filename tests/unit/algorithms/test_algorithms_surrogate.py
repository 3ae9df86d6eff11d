"""The clipped surrogate, worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import surrogate


def clipped(ratio, advantage):
    log_ratio = jnp.full((1, 1), jnp.log(ratio))
    result = surrogate.clipped(log_ratio, jnp.full((1, 1), advantage), clip_low=0.2, clip_high=0.2)
    return tuple(array.item() for array in result)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "low", "high"),
    [
        (1.0, 2.0, -2.0, False, False),
        (1.1, 2.0, -2.2, False, False),
        (0.9, -2.0, 1.8, False, False),
        # A good token has become likelier than the region allows: no more credit.
        (1.5, 2.0, -2.4, False, True),
        # A bad token has become rarer than the region allows: no more credit.
        (0.5, -2.0, 1.6, True, False),
        # Outside the region on the wrong side: the full price is paid.
        (0.5, 2.0, -1.0, False, False),
        (1.5, -2.0, 3.0, False, False),
        (1.5, 0.0, 0.0, False, False),
        (0.5, 0.0, 0.0, False, False),
    ],
)
def test_loss_and_clip_sides(ratio, advantage, loss, low, high):
    got_loss, got_low, got_high = clipped(ratio, advantage)
    np.testing.assert_allclose(got_loss, loss, rtol=1e-6)
    assert (got_low, got_high) == (low, high)


@pytest.mark.parametrize(
    ("ratio", "advantage", "wanted"),
    [(1.0, 2.0, -2.0), (1.1, 2.0, -2.2), (1.5, 2.0, 0.0), (0.5, -2.0, 0.0), (0.5, 2.0, -1.0), (1.5, -2.0, 3.0)],
)
def test_the_gradient_is_minus_ratio_times_advantage_or_nothing(ratio, advantage, wanted):
    got = jax.grad(lambda logprob: clipped_loss(logprob, advantage))(jnp.log(ratio))
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def clipped_loss(logprob, advantage):
    advantage_11 = jnp.full((1, 1), advantage)
    return surrogate.clipped(logprob.reshape(1, 1), advantage_11, clip_low=0.2, clip_high=0.2).loss[0, 0]


def test_each_completion_uses_its_own_advantage():
    advantage_NT = jnp.array([[1.0] * 3, [-3.0] * 3])
    loss_NT = surrogate.clipped(jnp.zeros((2, 3)), advantage_NT, clip_low=0.2, clip_high=0.2).loss
    np.testing.assert_array_equal(loss_NT, [[-1, -1, -1], [3, 3, 3]])


def value_and_gradient(of, ratio, *arguments, **settings):
    """Loss per token and the gradient of its sum by the log-probabilities, at these ratios to old ones of 0."""
    logprob_NT = jnp.log(jnp.array(ratio, jnp.float32))

    def total(logprob_NT):
        loss_NT = of(logprob_NT, *arguments, **settings).loss
        return jnp.sum(loss_NT), loss_NT

    gradient, loss_NT = jax.grad(total, has_aux=True)(logprob_NT)
    return np.asarray(loss_NT), np.asarray(gradient)


def test_the_upper_bound_may_be_higher():
    ratio, advantage_NT = [[1.27, 1.3, 0.79, 0.81]], jnp.array([[1.0, 1.0, -1.0, -1.0]])
    loss_NT, gradient = value_and_gradient(surrogate.clipped, ratio, advantage_NT, clip_low=0.2, clip_high=0.28)
    np.testing.assert_allclose(loss_NT, [[-1.27, -1.28, 0.8, 0.81]], rtol=1e-5)
    np.testing.assert_allclose(gradient, [[-1.27, 0, 0, 0.81]], rtol=1e-5)


def test_a_dual_clip_bounds_the_price_of_a_negative_advantage():
    ratio, advantage_NT = [[2.9, 5.0, 5.0, 0.5]], jnp.array([[-2.0, -2.0, 2.0, -2.0]])
    loss_NT, gradient = value_and_gradient(
        surrogate.clipped, ratio, advantage_NT, clip_low=0.2, clip_high=0.2, dual_clip=3.0
    )
    np.testing.assert_allclose(loss_NT, [[5.8, 6, -2.4, 1.6]], rtol=1e-5)
    np.testing.assert_allclose(gradient, [[5.8, 0, 0, 0]], rtol=1e-5)


def test_a_sequence_has_the_geometric_mean_of_its_ratios():
    logprob_NT = jnp.log(jnp.array([[2.0, 4.0, 7.0], [3.0, 5.0, 7.0], [1.0, 1.0, 1.0]]))
    mask_NT = jnp.array([[True, True, False], [True, False, False], [False, False, False]])
    got = surrogate.log_ratio("sequence", logprob_NT, jnp.zeros((3, 3)), mask_NT)
    root = np.log(8) / 2
    np.testing.assert_allclose(got, [[root, root, 0], [np.log(3), 0, 0], [0, 0, 0]], rtol=1e-6)
    got = surrogate.log_ratio("token", logprob_NT, jnp.zeros((3, 3)), mask_NT)
    np.testing.assert_allclose(got, np.where(mask_NT, logprob_NT, 0), rtol=1e-6)


def test_the_gradient_of_a_sequence_ratio_goes_through_its_mean():
    # rho = sqrt(0.9 * 1.2): each of the two tokens moves the mean by a half, and both losses follow it.
    mask_NT = jnp.array([[True, True, False]])

    def loss(logprob_NT):
        log_ratio_NT = surrogate.log_ratio("sequence", logprob_NT, jnp.zeros((1, 3)), mask_NT)
        return jnp.sum(jnp.where(mask_NT, clipped_rows(log_ratio_NT), 0))

    gradient = jax.grad(loss)(jnp.log(jnp.array([[0.9, 1.2, 5.0]])))
    np.testing.assert_allclose(gradient, [[-2 * 1.08**0.5, -2 * 1.08**0.5, 0]], rtol=1e-5)


def clipped_rows(log_ratio_NT):
    return surrogate.clipped(log_ratio_NT, jnp.full(log_ratio_NT.shape, 2.0), clip_low=0.2, clip_high=0.2).loss


def test_cispo_weighs_the_log_probability_by_the_capped_ratio():
    ratio = [[0.1, 1.0, 4.0, 6.0, 6.0]]
    advantage_NT = jnp.array([[2.0, 2.0, 2.0, 2.0, -2.0]])
    logprob_NT = jnp.log(jnp.array(ratio))

    def total(logprob_NT):
        result = surrogate.cispo(logprob_NT, advantage_NT, logprob_NT, cap=5.0)
        return jnp.sum(result.loss), result

    gradient, result = jax.grad(total, has_aux=True)(logprob_NT)
    weight = np.array([[0.1, 1, 4, 5, 5]])
    np.testing.assert_allclose(gradient, -weight * np.asarray(advantage_NT), rtol=1e-5)
    np.testing.assert_allclose(result.loss, -weight * np.asarray(advantage_NT) * np.log(ratio), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(result.clipped_high, [[False, False, False, True, True]])
    np.testing.assert_array_equal(result.clipped_low, False)


def test_sapo_by_its_formula_and_its_derivative():
    ratio, advantage = np.array([[0.5, 1.0, 1.7, 0.5, 1.0, 1.7]]), np.array([[2.0, 2, 2, -2, -2, -2]])
    tau = np.where(advantage > 0, 1.0, 1.5)
    gate = 1 / (1 + np.exp(-tau * (ratio - 1)))
    loss_NT, gradient = value_and_gradient(
        surrogate.sapo, ratio, jnp.array(advantage), temperature_positive=1.0, temperature_negative=1.5
    )
    np.testing.assert_allclose(loss_NT, -4 / tau * gate * advantage, rtol=1e-5)
    np.testing.assert_allclose(gradient, -4 * gate * (1 - gate) * ratio * advantage, rtol=1e-5)
    # A ratio of 1 gives the plain policy gradient.
    np.testing.assert_allclose(gradient[:, [1, 4]], [[-2, 2]], rtol=1e-6)


MASK = jnp.array([[True, True, True, False], [True, True, False, False]])
OVER = np.log([[0.5, 1.5, 4.0, 1e9], [2.0, 0.25, 1e9, 1e9]])


def importance(name, cap=2.0, lowest=0.0, highest=None):
    sampler = jnp.full((2, 4), -1.0)
    old = sampler + jnp.array(OVER, jnp.float32)
    return surrogate.importance_weight(name, old, sampler, MASK, cap=cap, lowest=lowest, highest=highest)


@pytest.mark.parametrize(
    ("name", "settings", "wanted"),
    [
        ("none", {}, [[1, 1, 1, 1], [1, 1, 1, 1]]),
        ("token", {}, [[0.5, 1.5, 2, 1], [2, 0.25, 1, 1]]),
        # Products of 0.5 * 1.5 * 4 = 3 and 2 * 0.25 = 0.5; what the mask hides is not in them.
        ("sequence", {}, [[2] * 4, [0.5] * 4]),
        ("sequence", {"cap": 10.0}, [[3] * 4, [0.5] * 4]),
        ("token", {"lowest": 0.5, "highest": 3.0}, [[0.5, 1.5, 0, 1], [2, 0, 1, 1]]),
        ("sequence", {"lowest": 0.6, "highest": 3.5}, [[2] * 4, [0] * 4]),
        ("sequence", {"highest": 2.5}, [[0] * 4, [0.5] * 4]),
    ],
)
def test_importance_weights_by_hand(name, settings, wanted):
    np.testing.assert_allclose(importance(name, **settings), wanted, rtol=1e-5)


def test_importance_weights_have_no_gradient():
    def total(old):
        return jnp.sum(surrogate.importance_weight("token", old, old - 0.1, MASK, cap=2.0, lowest=0.0, highest=None))

    np.testing.assert_array_equal(jax.grad(total)(jnp.zeros((2, 4))), 0)
