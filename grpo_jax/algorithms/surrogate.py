"""Clipped policy-gradient surrogates, per token."""

from typing import NamedTuple

import jax.numpy as jnp
from beartype import beartype
from jaxtyping import Array, Bool, Float, jaxtyped


class Surrogate(NamedTuple):
    """A surrogate loss and where its clip took hold.

    Attributes:
        loss: Loss per token (to be minimised).
        clipped_low: The ratio fell below the lower bound while the advantage was negative.
        clipped_high: The ratio rose above the upper bound while the advantage was positive.
    """

    loss: Float[Array, "N T"]
    clipped_low: Bool[Array, "N T"]
    clipped_high: Bool[Array, "N T"]


@jaxtyped(typechecker=beartype)
def clipped(
    logprob_NT: Float[Array, "N T"],
    old_logprob_NT: Float[Array, "N T"],
    advantage_N1: Float[Array, "N 1"],
    *,
    clip_epsilon: float,
) -> Surrogate:
    """The clipped surrogate with a ratio per token.

    loss = -min(rho A, clip(rho, 1 - e, 1 + e) A), rho = exp(logprob - old_logprob).

    Args:
        logprob_NT: Natural log-probabilities under the policy that is trained.
        old_logprob_NT: The same tokens under the policy that sampled them.
        advantage_N1: Advantage of each completion, shared by its tokens.
        clip_epsilon: Half-width e of the trust region around a ratio of 1.

    Returns:
        Loss per token and where the clip took hold.

    Source: Schulman et al. 2017 (PPO), equation 7.
    """
    ratio_NT = jnp.exp(logprob_NT - old_logprob_NT)
    clipped_ratio_NT = jnp.clip(ratio_NT, 1 - clip_epsilon, 1 + clip_epsilon)
    loss_NT = -jnp.minimum(ratio_NT * advantage_N1, clipped_ratio_NT * advantage_N1)
    return Surrogate(
        loss=loss_NT,
        clipped_low=(ratio_NT < 1 - clip_epsilon) & (advantage_N1 < 0),
        clipped_high=(ratio_NT > 1 + clip_epsilon) & (advantage_N1 > 0),
    )
