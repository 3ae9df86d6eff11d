"""The clipped surrogate, worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import surrogate


def clipped(ratio, advantage):
    old = jnp.full((1, 1), -1.5)
    result = surrogate.clipped(old + jnp.log(ratio), old, jnp.full((1, 1), advantage), clip_epsilon=0.2)
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
    new, old = logprob.reshape(1, 1), jnp.zeros((1, 1))
    return surrogate.clipped(new, old, jnp.full((1, 1), advantage), clip_epsilon=0.2).loss[0, 0]


def test_each_completion_uses_its_own_advantage():
    ones = jnp.zeros((2, 3))
    loss_NT = surrogate.clipped(ones, ones, jnp.array([[1.0], [-3.0]]), clip_epsilon=0.2).loss
    np.testing.assert_array_equal(loss_NT, [[-1, -1, -1], [3, 3, 3]])
