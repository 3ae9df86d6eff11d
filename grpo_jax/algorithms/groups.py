"""What the objective needs to know of the whole batch: shaped rewards, advantages and completion weights."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from beartype import beartype
from jaxtyping import Array, Bool, Float, Int, jaxtyped

from grpo_jax.algorithms import advantages, kl, reduce, rewards
from grpo_jax.algorithms.settings import GRPOLossConfig


class GroupWeights(NamedTuple):
    """What the objective needs to know of the whole batch.

    Attributes:
        advantage_BG: Advantage of each completion, 0 in inactive groups.
        weight_BG: Weight of each of its token losses, 0 where it takes no part.
        active_B: Groups that take part.
    """

    advantage_BG: Float[Array, "B G"]
    weight_BG: Float[Array, "B G"]
    active_B: Bool[Array, "B"]


@jaxtyped(typechecker=beartype)
def shaped_reward(
    reward_BG: Float[Array, "B G"],
    length_BG: Int[Array, "B G"],
    kl_BG: Float[Array, "B G"] | None = None,
    *,
    config: GRPOLossConfig,
    length_penalty: Float[Array, ""] | None = None,
    length_budget_tokens: Float[Array, ""] | None = None,
) -> Float[Array, "B G"]:
    """Rewards after every penalty that acts on them.

    Args:
        reward_BG: Raw rewards.
        length_BG: Completion lengths in tokens.
        kl_BG: KL to the reference summed over each completion; needed where the KL is placed in the reward.
        config: Settings of the objective.
        length_penalty: The penalty now, where a schedule moves it; the config's otherwise.
        length_budget_tokens: The budget now, where a schedule moves it; the config's otherwise.

    Returns:
        What the group statistics are taken of.
    """
    shaped_BG = rewards.length_shaped(
        reward_BG,
        length_BG,
        penalty=config.length_penalty if length_penalty is None else length_penalty,
        budget_tokens=config.length_budget_tokens if length_budget_tokens is None else length_budget_tokens,
        overlong_max_tokens=config.overlong_max_tokens,
        overlong_cache_tokens=config.overlong_cache_tokens,
    )
    if config.kl_beta > 0 and config.kl_placement == "reward":
        assert kl_BG is not None, "kl_placement='reward' needs each completion's KL"
        shaped_BG = shaped_BG - config.kl_beta * kl_BG
    return shaped_BG


@jaxtyped(typechecker=beartype)
def completion_kl(
    old_logprob: Float[Array, "... T"], ref_logprob: Float[Array, "... T"], mask: Bool[Array, "... T"], name: kl.KLName
) -> Float[Array, "..."]:
    """KL to the reference summed over each completion, as a penalty on its reward; carries no gradient.

    Args:
        old_logprob: Log-probabilities under the policy that sampled.
        ref_logprob: The same tokens under the reference.
        mask: Tokens that count.
        name: Estimator per token.

    Returns:
        One number per completion.
    """
    old_logprob, ref_logprob = jnp.where(mask, old_logprob, 0), jnp.where(mask, ref_logprob, 0)
    estimate = kl.estimate(name, old_logprob, ref_logprob, old_logprob)
    return jax.lax.stop_gradient(jnp.sum(jnp.where(mask, estimate, 0), axis=-1))


@jaxtyped(typechecker=beartype)
def group_weights(
    shaped_BG: Float[Array, "B G"],
    token_count_BG: Int[Array, "B G"],
    valid_BG: Bool[Array, "B G"],
    part_BGK: Float[Array, "B G K"] | None = None,
    *,
    config: GRPOLossConfig,
) -> GroupWeights:
    """Works out advantages and completion weights over the whole batch.

    Args:
        shaped_BG: From ``shaped_reward``.
        token_count_BG: Tokens of each completion that are counted in the loss.
        valid_BG: False where a completion has no usable verdict.
        part_BGK: Each reward on its own, before weights, penalties among them; for ``decoupled_normalized``.
        config: Settings of the objective.

    Returns:
        Advantages, weights and active groups.
    """
    if config.advantage == "decoupled_normalized":
        assert part_BGK is not None, "advantage='decoupled_normalized' needs each reward on its own"
        advantage = advantages.decoupled_normalized(
            part_BGK, valid_BG, weights=config.reward_weights, variance_epsilon=config.variance_epsilon
        )
    else:
        advantage = advantages.estimate(
            config.advantage,
            shaped_BG,
            valid_BG,
            variance_epsilon=config.variance_epsilon,
            ddof=config.advantage_ddof,
        )
    weight_BG = reduce.completion_weight(
        config.aggregation,
        token_count_BG,
        valid_BG,
        advantage.active_B,
        constant_tokens=config.constant_length_tokens,
        dtype=shaped_BG.dtype,
    )
    return GroupWeights(advantage.advantage_BG, weight_BG, advantage.active_B)
