"""From token losses to one number, in a form that no batching can change.

An aggregation is a weight per completion: loss = sum over completions and tokens of
``weight * mask * token_loss``. Weights are worked out once over the whole batch. Any split into
micro-batches or shards then only has to add its sums up, and a completion of weight 0 may be left out.
"""

from typing import Literal

import jax.numpy as jnp
from beartype import beartype
from jaxtyping import Array, Bool, Float, Int, jaxtyped

AggregationName = Literal["sequence_mean", "token_mean", "constant_length"]


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
    tokens_BG = jnp.maximum(token_count_BG, 1).astype(dtype)
    counted_BG = _counted(token_count_BG, valid_BG, active_B)
    return jnp.where(counted_BG, 1 / (_completions(valid_BG, active_B, dtype) * tokens_BG), 0)


@jaxtyped(typechecker=beartype)
def token_mean_weight(
    token_count_BG: Int[Array, "B G"],
    valid_BG: Bool[Array, "B G"],
    active_B: Bool[Array, "B"],
    *,
    dtype: jnp.dtype,
) -> Float[Array, "B G"]:
    """Weights of the mean over all tokens of all completions that take part, over the whole batch.

    Args:
        token_count_BG: Counted tokens of each completion.
        valid_BG: False for completions that take no part.
        active_B: Groups that take part.
        dtype: Dtype of the weights.

    Returns:
        1 / (all counted tokens), 0 where nothing takes part.

    Source: Yu et al. 2025 (DAPO), equation 8.
    """
    counted_BG = _counted(token_count_BG, valid_BG, active_B)
    tokens = jnp.maximum(jnp.sum(jnp.where(counted_BG, token_count_BG, 0)), 1).astype(dtype)
    return jnp.where(counted_BG, 1 / tokens, 0)


@jaxtyped(typechecker=beartype)
def constant_length_weight(
    token_count_BG: Int[Array, "B G"],
    valid_BG: Bool[Array, "B G"],
    active_B: Bool[Array, "B"],
    *,
    constant_tokens: int,
    dtype: jnp.dtype,
) -> Float[Array, "B G"]:
    """Weights of the mean over completions of their token sums divided by one constant.

    Args:
        token_count_BG: Counted tokens of each completion.
        valid_BG: False for completions that take no part.
        active_B: Groups that take part.
        constant_tokens: The constant, usually the longest completion allowed.
        dtype: Dtype of the weights.

    Returns:
        1 / (active groups * valid completions of the group * constant), 0 where nothing takes part.

    Source: Liu et al. 2025 (Dr. GRPO): the divisor does not depend on the completion, so long wrong answers are not
    punished less per token than short ones.
    """
    counted_BG = _counted(token_count_BG, valid_BG, active_B)
    return jnp.where(counted_BG, 1 / (_completions(valid_BG, active_B, dtype) * constant_tokens), 0)


@jaxtyped(typechecker=beartype)
def completion_weight(
    name: AggregationName,
    token_count_BG: Int[Array, "B G"],
    valid_BG: Bool[Array, "B G"],
    active_B: Bool[Array, "B"],
    *,
    constant_tokens: int,
    dtype: jnp.dtype,
) -> Float[Array, "B G"]:
    """Calls the aggregation of that name.

    Args:
        name: Which one.
        token_count_BG: Counted tokens of each completion.
        valid_BG: False for completions that take no part.
        active_B: Groups that take part.
        constant_tokens: For ``constant_length``.
        dtype: Dtype of the weights.

    Returns:
        Weight of each completion's token losses.
    """
    if name == "constant_length":
        return constant_length_weight(token_count_BG, valid_BG, active_B, constant_tokens=constant_tokens, dtype=dtype)
    aggregations = {"sequence_mean": sequence_mean_weight, "token_mean": token_mean_weight}
    return aggregations[name](token_count_BG, valid_BG, active_B, dtype=dtype)


def _counted(
    token_count_BG: Int[Array, "B G"], valid_BG: Bool[Array, "B G"], active_B: Bool[Array, "B"]
) -> Bool[Array, "B G"]:
    return active_B[:, None] & valid_BG & (token_count_BG > 0)


def _completions(valid_BG: Bool[Array, "B G"], active_B: Bool[Array, "B"], dtype: jnp.dtype) -> Float[Array, "B 1"]:
    """Active groups times the valid completions of each group."""
    groups = jnp.maximum(jnp.sum(active_B), 1).astype(dtype)
    return groups * jnp.maximum(jnp.sum(valid_BG, axis=1, keepdims=True), 1).astype(dtype)
