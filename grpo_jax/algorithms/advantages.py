"""Advantages from the rewards of one group."""

from typing import NamedTuple

import jax.numpy as jnp
from beartype import beartype
from jaxtyping import Array, Bool, Float, jaxtyped

RELATIVE_RANGE_FLOOR = 1e-6
"""Rewards whose range is within this share of max(1, |mean|) are equal up to float32 residue."""


class GroupAdvantage(NamedTuple):
    """Advantages and which groups carry any signal.

    Attributes:
        advantage_BG: 0 in inactive groups and for invalid completions.
        active_B: Whether a group's rewards differ enough to learn from.
    """

    advantage_BG: Float[Array, "B G"]
    active_B: Bool[Array, "B"]


@jaxtyped(typechecker=beartype)
def group_normalized(
    reward_BG: Float[Array, "B G"],
    valid_BG: Bool[Array, "B G"],
    *,
    variance_epsilon: float,
) -> GroupAdvantage:
    """Centres and scales rewards within each group.

    A = (r - mu) / (sigma + eps) with the population sigma, over the valid completions of a group.
    A group is active when sigma > eps and its range exceeds ``RELATIVE_RANGE_FLOOR`` * max(1, |mu|):
    rewards that are equal up to the order in which their parts were summed never activate a group.

    The statistics are taken after the group's smallest reward is subtracted. The subtraction of nearly equal
    floats is exact, so equal rewards give deviations of exactly 0 and a small spread on top of a large
    mean keeps its digits.

    Args:
        reward_BG: Rewards after any shaping. Values of invalid completions are ignored, NaN included.
        valid_BG: False where a completion has no usable verdict.
        variance_epsilon: Floor of sigma, and the least sigma of an active group.

    Returns:
        Advantages and the active groups.

    Source: Shao et al. 2024 (DeepSeekMath), equation 4; the activity test is ours.
    """
    kept_BG = jnp.where(valid_BG, reward_BG, 0)
    count_B1 = jnp.maximum(jnp.sum(valid_BG, axis=1, keepdims=True), 1).astype(reward_BG.dtype)
    lowest_B1 = jnp.min(jnp.where(valid_BG, reward_BG, jnp.inf), axis=1, keepdims=True)
    lowest_B1 = jnp.where(jnp.isfinite(lowest_B1), lowest_B1, 0)
    shifted_BG = jnp.where(valid_BG, kept_BG - lowest_B1, 0)
    mean_B1 = jnp.sum(shifted_BG, axis=1, keepdims=True) / count_B1
    deviation_BG = jnp.where(valid_BG, shifted_BG - mean_B1, 0)
    sigma_B1 = jnp.sqrt(jnp.sum(jnp.square(deviation_BG), axis=1, keepdims=True) / count_B1)
    floor_B1 = RELATIVE_RANGE_FLOOR * jnp.maximum(1, jnp.abs(lowest_B1 + mean_B1))
    active_B1 = (sigma_B1 > variance_epsilon) & (jnp.max(shifted_BG, axis=1, keepdims=True) > floor_B1)
    advantage_BG = jnp.where(active_B1, deviation_BG / (sigma_B1 + variance_epsilon), 0)
    return GroupAdvantage(advantage_BG, active_B1[:, 0])
