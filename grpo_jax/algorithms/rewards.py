"""Rewards before the group statistics: penalties on length."""

import jax.numpy as jnp
from beartype import beartype
from jaxtyping import Array, Float, Int, jaxtyped


@jaxtyped(typechecker=beartype)
def length_regularized(
    reward_BG: Float[Array, "B G"],
    length_BG: Int[Array, "B G"],
    *,
    penalty: float | Float[Array, ""],
    budget_tokens: int | Float[Array, ""],
) -> Float[Array, "B G"]:
    """Takes a penalty off the reward for every token beyond a budget.

    r' = r - penalty * max(0, length - budget).

    Args:
        reward_BG: Raw rewards.
        length_BG: Completion lengths in tokens, the end-of-sequence token counted.
        penalty: Reward lost per token over the budget, >= 0; an array where a schedule moves it.
        budget_tokens: Length in tokens up to which nothing is lost.

    Returns:
        The regularised rewards, in the dtype of ``reward_BG``.

    >>> length_regularized(jnp.array([[1.0, 1.0]]), jnp.array([[4, 6]]), penalty=0.25, budget_tokens=4).tolist()
    [[1.0, 0.5]]
    """
    # float32 whatever the rewards' dtype: the golden values fix the penalty's rounding too.
    excess_BG = jnp.maximum(length_BG.astype(jnp.float32) - jnp.float32(budget_tokens), 0)
    return reward_BG - (jnp.float32(penalty) * excess_BG).astype(reward_BG.dtype)


@jaxtyped(typechecker=beartype)
def soft_overlong(length_BG: Int[Array, "B G"], *, max_tokens: int, cache_tokens: int) -> Float[Array, "B G"]:
    """A reward of 0 up to max - cache tokens, falling linearly to -1 at max tokens, and -1 beyond.

    Args:
        length_BG: Completion lengths in tokens, the end-of-sequence token counted.
        max_tokens: Length from which the whole penalty acts.
        cache_tokens: Length over which it grows, 1 or more.

    Returns:
        What to add to the reward, in [-1, 0].

    Source: Yu et al. 2025 (DAPO), equation 13.

    >>> soft_overlong(jnp.array([[80, 90, 100, 120]]), max_tokens=100, cache_tokens=20).tolist()
    [[0.0, -0.5, -1.0, -1.0]]
    """
    over_BG = (length_BG - (max_tokens - cache_tokens)).astype(jnp.float32) / cache_tokens
    return 0 - jnp.clip(over_BG, 0, 1)


@jaxtyped(typechecker=beartype)
def length_shaped(
    reward_BG: Float[Array, "B G"],
    length_BG: Int[Array, "B G"],
    *,
    penalty: float | Float[Array, ""],
    budget_tokens: int | Float[Array, ""],
    overlong_max_tokens: int,
    overlong_cache_tokens: int,
) -> Float[Array, "B G"]:
    """Both penalties on length: ``length_regularized``, and ``soft_overlong`` where it is in use.

    Args:
        reward_BG: Raw rewards.
        length_BG: Completion lengths in tokens, the end-of-sequence token counted.
        penalty: Reward lost per token over the budget.
        budget_tokens: Length in tokens up to which nothing is lost.
        overlong_max_tokens: ``max_tokens`` of ``soft_overlong``; 0 leaves it out.
        overlong_cache_tokens: Its ``cache_tokens``.

    Returns:
        The rewards after them, in the dtype of ``reward_BG``.
    """
    shaped_BG = length_regularized(reward_BG, length_BG, penalty=penalty, budget_tokens=budget_tokens)
    if overlong_max_tokens == 0:
        return shaped_BG
    overlong_BG = soft_overlong(length_BG, max_tokens=overlong_max_tokens, cache_tokens=overlong_cache_tokens)
    return shaped_BG + overlong_BG.astype(reward_BG.dtype)
