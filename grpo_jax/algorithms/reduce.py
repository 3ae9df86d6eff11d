"""From token losses to one number, in a form that no batching can change.

An aggregation is a weight per completion: loss = sum over completions and tokens of
``weight * mask * token_loss``. Weights are worked out once over the whole batch. Any split into
micro-batches or shards then only has to add its sums up, and a completion of weight 0 may be left out.
"""

import jax.numpy as jnp
from beartype import beartype
from jaxtyping import Array, Bool, Float, Int, jaxtyped


@jaxtyped(typechecker=beartype)
def masked_sum(value: Float[Array, "..."], mask: Bool[Array, "..."]) -> Float[Array, ""]:
    """Sums ``value`` where ``mask`` is True; what lies under a False is never looked at, NaN included."""
    return jnp.sum(jnp.where(mask, value, 0))


@jaxtyped(typechecker=beartype)
def masked_mean(value: Float[Array, "..."], mask: Bool[Array, "..."]) -> Float[Array, ""]:
    """Averages ``value`` where ``mask`` is True; 0 where nothing is."""
    count = jnp.maximum(jnp.sum(mask), 1).astype(value.dtype)
    return masked_sum(value, mask) / count


@jaxtyped(typechecker=beartype)
def sequence_mean_weight(
    token_count_BG: Int[Array, "B G"],
    valid_BG: Bool[Array, "B G"],
    active_B: Bool[Array, "B"],
    *,
    dtype: jnp.dtype,
) -> Float[Array, "B G"]:
    """Weights of the mean over active groups of the mean over completions of the mean over tokens.

    A completion without tokens counts as a loss of 0 in its group's mean.

    Args:
        token_count_BG: Counted tokens of each completion.
        valid_BG: False for completions that take no part.
        active_B: Groups that take part.
        dtype: Dtype of the weights.

    Returns:
        1 / (active groups * valid completions of the group * tokens), 0 where nothing takes part.

    Source: Shao et al. 2024 (DeepSeekMath), equation 3; the mean over active groups only is ours.
    """
    groups = jnp.maximum(jnp.sum(active_B), 1).astype(dtype)
    completions_B1 = jnp.maximum(jnp.sum(valid_BG, axis=1, keepdims=True), 1).astype(dtype)
    tokens_BG = jnp.maximum(token_count_BG, 1).astype(dtype)
    counted_BG = active_B[:, None] & valid_BG & (token_count_BG > 0)
    return jnp.where(counted_BG, 1 / (groups * completions_B1 * tokens_BG), 0)
