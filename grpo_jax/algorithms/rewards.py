"""Rewards before the group statistics: length regularisation."""

import jax.numpy as jnp
from beartype import beartype
from jaxtyping import Array, Float, Int, jaxtyped


@jaxtyped(typechecker=beartype)
def length_regularized(
    reward_BG: Float[Array, "B G"],
    length_BG: Int[Array, "B G"],
    *,
    penalty: float,
    budget_tokens: int,
) -> Float[Array, "B G"]:
    """Takes a penalty off the reward for every token beyond a budget.

    r' = r - penalty * max(0, length - budget).

    Args:
        reward_BG: Raw rewards.
        length_BG: Completion lengths in tokens, the end-of-sequence token counted.
        penalty: Reward lost per token over the budget, >= 0.
        budget_tokens: Length in tokens up to which nothing is lost.

    Returns:
        The regularised rewards, in the dtype of ``reward_BG``.

    >>> length_regularized(jnp.array([[1.0, 1.0]]), jnp.array([[4, 6]]), penalty=0.25, budget_tokens=4).tolist()
    [[1.0, 0.5]]
    """
    # float32 whatever the rewards' dtype: the golden values fix the penalty's rounding too.
    excess_BG = jnp.maximum(length_BG - budget_tokens, 0).astype(jnp.float32)
    return reward_BG - (jnp.float32(penalty) * excess_BG).astype(reward_BG.dtype)
