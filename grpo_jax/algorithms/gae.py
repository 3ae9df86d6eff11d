"""Advantages from the values of a critic."""

import jax
import jax.numpy as jnp
from beartype import beartype
from jaxtyping import Array, Bool, Float, jaxtyped

from grpo_jax.algorithms import reduce


@jaxtyped(typechecker=beartype)
def gae(
    reward_NT: Float[Array, "N T"],
    value_NT: Float[Array, "N T"],
    mask_NT: Bool[Array, "N T"],
    *,
    gamma: float,
    gae_lambda: float,
) -> Float[Array, "N T"]:
    """Generalised advantage estimation over the tokens of each completion.

    delta_t = r_t + gamma V_{t+1} - V_t and A_t = delta_t + gamma lambda A_{t+1}; both V and A are 0 past the end.

    Args:
        reward_NT: Reward for each token.
        value_NT: Value of the state in which each token was sampled.
        mask_NT: True for the tokens of a completion, which are the first of its row. What lies under a False has no
            influence, NaN included.
        gamma: Discount per token, in [0, 1].
        gae_lambda: Weight of what comes after the next value, in [0, 1]: 1 gives returns minus values.

    Returns:
        Advantages, 0 outside the mask.

    Source: Schulman et al. 2016 (generalised advantage estimation), equation 16.

    >>> reward_NT, value_NT, mask_NT = jnp.array([[0.0, 1.0]]), jnp.array([[0.5, 0.75]]), jnp.array([[True, True]])
    >>> gae(reward_NT, value_NT, mask_NT, gamma=1.0, gae_lambda=1.0).tolist()
    [[0.5, 0.25]]
    """
    reward_NT, value_NT = jnp.where(mask_NT, reward_NT, 0), jnp.where(mask_NT, value_NT, 0)
    nothing_N1 = jnp.zeros_like(value_NT[:, :1])
    next_value_NT = jnp.concatenate([value_NT[:, 1:], nothing_N1], axis=1)
    delta_NT = reward_NT + gamma * next_value_NT - value_NT

    def earlier(later_N: jax.Array, delta_N: jax.Array) -> tuple[jax.Array, jax.Array]:
        advantage_N = delta_N + gamma * gae_lambda * later_N
        return advantage_N, advantage_N

    _, advantage_TN = jax.lax.scan(earlier, nothing_N1[:, 0], delta_NT.T, reverse=True)
    return advantage_TN.T


@jaxtyped(typechecker=beartype)
def whitened(
    advantage: Float[Array, "..."], mask: Bool[Array, "..."], *, deviation_epsilon: float
) -> Float[Array, "..."]:
    """Centres and scales advantages over all counted tokens: (A - mean) / (standard deviation + eps).

    Args:
        advantage: Advantages of the whole batch.
        mask: Tokens that count.
        deviation_epsilon: Floor of the standard deviation.

    Returns:
        Advantages, 0 outside the mask.
    """
    deviation = jnp.where(mask, advantage - reduce.masked_mean(advantage, mask), 0)
    sigma = jnp.sqrt(reduce.masked_mean(jnp.square(deviation), mask))
    return deviation / (sigma + deviation_epsilon)
