"""Advantages from the rewards of a group, by name.

Every estimator works on the deviations of the valid completions from their group's mean. They are taken after the
group's smallest reward is subtracted: that subtraction of nearly equal floats is exact, so equal rewards give
deviations of exactly 0 and a small spread on top of a large mean keeps its digits.
"""

from typing import Literal, NamedTuple

import jax.numpy as jnp
from beartype import beartype
from jaxtyping import Array, Bool, Float, jaxtyped

AdvantageName = Literal[
    "group_normalized", "group_centered", "leave_one_out", "batch_normalized", "decoupled_normalized"
]

RELATIVE_RANGE_FLOOR = 1e-6
"""Rewards whose range is within this share of max(1, |mean|) are equal up to float32 residue."""

CANCELLATION_FLOOR = 1e-4
"""Normalised rewards whose weighted sum spreads less than this share of all weights cancel up to residue."""


class GroupAdvantage(NamedTuple):
    """Advantages and which groups carry any signal.

    Attributes:
        advantage_BG: 0 in inactive groups and for invalid completions.
        active_B: Whether a group's rewards differ enough to learn from.
    """

    advantage_BG: Float[Array, "B G"]
    active_B: Bool[Array, "B"]


class _Deviations(NamedTuple):
    deviation_BG: Float[Array, "B G"]
    count_B1: Float[Array, "B 1"]
    active_B1: Bool[Array, "B 1"]


def _deviations(reward_BG: Float[Array, "B G"], valid_BG: Bool[Array, "B G"], variance_epsilon: float) -> _Deviations:
    """Deviations from the group mean and the activity test, which is the same for every estimator."""
    count_B1 = jnp.maximum(jnp.sum(valid_BG, axis=1, keepdims=True), 1).astype(reward_BG.dtype)
    lowest_B1 = jnp.min(jnp.where(valid_BG, reward_BG, jnp.inf), axis=1, keepdims=True)
    lowest_B1 = jnp.where(jnp.isfinite(lowest_B1), lowest_B1, 0)
    shifted_BG = jnp.where(valid_BG, jnp.where(valid_BG, reward_BG, 0) - lowest_B1, 0)
    mean_B1 = jnp.sum(shifted_BG, axis=1, keepdims=True) / count_B1
    deviation_BG = jnp.where(valid_BG, shifted_BG - mean_B1, 0)
    sigma_B1 = jnp.sqrt(jnp.sum(jnp.square(deviation_BG), axis=1, keepdims=True) / count_B1)
    floor_B1 = RELATIVE_RANGE_FLOOR * jnp.maximum(1, jnp.abs(lowest_B1 + mean_B1))
    active_B1 = (sigma_B1 > variance_epsilon) & (jnp.max(shifted_BG, axis=1, keepdims=True) > floor_B1)
    return _Deviations(deviation_BG, count_B1, active_B1)


def _finish(advantage_BG: Float[Array, "B G"], active_B1: Bool[Array, "B 1"]) -> GroupAdvantage:
    return GroupAdvantage(jnp.where(active_B1, advantage_BG, 0), active_B1[:, 0])


@jaxtyped(typechecker=beartype)
def group_normalized(
    reward_BG: Float[Array, "B G"], valid_BG: Bool[Array, "B G"], *, variance_epsilon: float, ddof: int = 0
) -> GroupAdvantage:
    """Centres and scales rewards within each group.

    A = (r - mu) / (sigma + eps) over the valid completions of a group. A group is active when its population sigma
    exceeds eps and its range exceeds ``RELATIVE_RANGE_FLOOR`` * max(1, |mu|): rewards that are equal up to the order in
    which their parts were summed never activate a group.

    Args:
        reward_BG: Rewards after any shaping. Values of invalid completions are ignored, NaN included.
        valid_BG: False where a completion has no usable verdict.
        variance_epsilon: Floor of sigma, and the least sigma of an active group.
        ddof: Taken off the number of completions in the variance: 0 (population) or 1 (sample).

    Returns:
        Advantages and the active groups.

    Source: Shao et al. 2024 (DeepSeekMath), equation 4; the activity test is ours.
    """
    deviation_BG, count_B1, active_B1 = _deviations(reward_BG, valid_BG, variance_epsilon)
    squares_B1 = jnp.sum(jnp.square(deviation_BG), axis=1, keepdims=True)
    sigma_B1 = jnp.sqrt(squares_B1 / jnp.maximum(count_B1 - ddof, 1))
    return _finish(deviation_BG / (sigma_B1 + variance_epsilon), active_B1)


@jaxtyped(typechecker=beartype)
def group_centered(
    reward_BG: Float[Array, "B G"], valid_BG: Bool[Array, "B G"], *, variance_epsilon: float
) -> GroupAdvantage:
    """Centres rewards within each group and does not scale them: A = r - mu.

    Args:
        reward_BG: Rewards after any shaping.
        valid_BG: False where a completion has no usable verdict.
        variance_epsilon: The least sigma of an active group.

    Returns:
        Advantages and the active groups.

    Source: Liu et al. 2025 (Dr. GRPO), which finds that dividing by sigma favours problems that are nearly solved or
    nearly hopeless.
    """
    deviation_BG, _, active_B1 = _deviations(reward_BG, valid_BG, variance_epsilon)
    return _finish(deviation_BG, active_B1)


@jaxtyped(typechecker=beartype)
def leave_one_out(
    reward_BG: Float[Array, "B G"], valid_BG: Bool[Array, "B G"], *, variance_epsilon: float
) -> GroupAdvantage:
    """Compares each completion with the mean of the others: A_i = r_i - mean of r_j, j != i.

    That is n / (n - 1) times the deviation from the mean of all n.

    Args:
        reward_BG: Rewards after any shaping.
        valid_BG: False where a completion has no usable verdict.
        variance_epsilon: The least sigma of an active group.

    Returns:
        Advantages and the active groups.

    Source: Ahmadian et al. 2024 (RLOO), equation 8.
    """
    deviation_BG, count_B1, active_B1 = _deviations(reward_BG, valid_BG, variance_epsilon)
    return _finish(deviation_BG * count_B1 / jnp.maximum(count_B1 - 1, 1), active_B1)


@jaxtyped(typechecker=beartype)
def batch_normalized(
    reward_BG: Float[Array, "B G"], valid_BG: Bool[Array, "B G"], *, variance_epsilon: float
) -> GroupAdvantage:
    """Centres rewards within each group and scales them by the spread over the whole batch.

    A = (r - mu of the group) / (sigma of all these deviations + eps), over the valid completions of the batch.

    Args:
        reward_BG: Rewards after any shaping.
        valid_BG: False where a completion has no usable verdict.
        variance_epsilon: Floor of sigma, and the least sigma of an active group.

    Returns:
        Advantages and the active groups.

    Source: Hu et al. 2025 (REINFORCE++ with baseline), who also subtract the batch mean of the deviations, which is 0.
    """
    deviation_BG, _, active_B1 = _deviations(reward_BG, valid_BG, variance_epsilon)
    # Residue of inactive groups is no spread.
    deviation_BG = jnp.where(active_B1, deviation_BG, 0)
    count = jnp.maximum(jnp.sum(valid_BG), 1).astype(reward_BG.dtype)
    sigma = jnp.sqrt(jnp.sum(jnp.square(deviation_BG)) / count)
    return _finish(deviation_BG / (sigma + variance_epsilon), active_B1)


@jaxtyped(typechecker=beartype)
def decoupled_normalized(
    part_BGK: Float[Array, "B G K"],
    valid_BG: Bool[Array, "B G"],
    *,
    weights: tuple[float, ...],
    variance_epsilon: float,
) -> GroupAdvantage:
    """Normalises each reward on its own before adding them up, so that none drowns the others by its scale.

    A_k = group-normalised reward k; A = sum of w_k A_k, scaled by its spread over the valid completions of the active
    groups. A reward without spread in a group adds nothing there.

    Args:
        part_BGK: The K rewards of each completion, before weights.
        valid_BG: False where a completion has no usable verdict.
        weights: Weight of each reward.
        variance_epsilon: Floor of each sigma, and the least sigma of an active group.

    Returns:
        Advantages; a group is active when the sum spreads within it by more than ``CANCELLATION_FLOOR`` of the
        weights: rewards that cancel carry no signal.

    Source: Liu et al. 2026 (GDPO), who take the batch spread over all completions; we leave inactive groups out.
    """
    rewards = part_BGK.shape[2]
    assert rewards == len(weights), f"got {rewards} rewards and {len(weights)} weights"
    total_BG = jnp.zeros_like(part_BGK[:, :, 0])
    for k, weight in enumerate(weights):
        part = group_normalized(part_BGK[:, :, k], valid_BG, variance_epsilon=variance_epsilon)
        total_BG = total_BG + weight * part.advantage_BG
    # Opposite rewards leave the residue of rounding and of epsilon, which the batch spread would blow up.
    least_sigma = max(variance_epsilon, CANCELLATION_FLOOR * sum(map(abs, weights)))
    _, _, active_B1 = _deviations(total_BG, valid_BG, least_sigma)
    counted_BG = valid_BG & active_B1
    count = jnp.maximum(jnp.sum(counted_BG), 1).astype(total_BG.dtype)
    sigma = jnp.sqrt(jnp.sum(jnp.where(counted_BG, jnp.square(total_BG), 0)) / count)
    return _finish(total_BG / (sigma + variance_epsilon), active_B1)


@jaxtyped(typechecker=beartype)
def estimate(
    name: AdvantageName,
    reward_BG: Float[Array, "B G"],
    valid_BG: Bool[Array, "B G"],
    *,
    variance_epsilon: float,
    ddof: int = 0,
) -> GroupAdvantage:
    """Calls the estimator of that name, for those that look at one reward only.

    Args:
        name: Which one; ``decoupled_normalized`` needs all rewards and is called by itself.
        reward_BG: Rewards after any shaping.
        valid_BG: False where a completion has no usable verdict.
        variance_epsilon: Floor of sigma, and the least sigma of an active group.
        ddof: For ``group_normalized``.

    Returns:
        Advantages and the active groups.
    """
    if name == "group_normalized":
        return group_normalized(reward_BG, valid_BG, variance_epsilon=variance_epsilon, ddof=ddof)
    estimators = {
        "group_centered": group_centered,
        "leave_one_out": leave_one_out,
        "batch_normalized": batch_normalized,
    }
    return estimators[name](reward_BG, valid_BG, variance_epsilon=variance_epsilon)
