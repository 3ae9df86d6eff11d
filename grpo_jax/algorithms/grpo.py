"""Group relative policy optimisation: the composed loss.

``grpo_loss`` is the whole objective on one batch. Training uses its two halves: ``group_weights`` once over
the whole batch, then ``grpo_objective`` on each micro-batch, whose sums add up to the same loss.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from beartype import beartype
from jaxtyping import Array, Bool, Float, Int, Real, Shaped, jaxtyped

from grpo_jax.algorithms import advantages, kl, reduce, rewards, surrogate

ArrayOrHost = Array | np.ndarray


@dataclasses.dataclass(frozen=True)
class GRPOLossConfig:
    """Settings of the objective.

    Attributes:
        clip_epsilon: Half-width of the trust region of the ratio.
        kl_beta: Weight of the KL term; 0 takes it out of the loss.
        length_penalty: Reward lost per token over the budget.
        length_budget_tokens: Length in tokens up to which nothing is lost.
        variance_epsilon: Floor of a group's standard deviation, and the least one of an active group.
    """

    clip_epsilon: float = 0.2
    kl_beta: float = 0.04
    length_penalty: float = 1e-5
    length_budget_tokens: int = 8192
    variance_epsilon: float = 1e-6


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
def group_weights(
    reward_BG: Float[Array, "B G"],
    length_BG: Int[Array, "B G"],
    token_count_BG: Int[Array, "B G"],
    valid_BG: Bool[Array, "B G"],
    *,
    config: GRPOLossConfig,
) -> GroupWeights:
    """Works out advantages and completion weights over the whole batch.

    Args:
        reward_BG: Raw rewards.
        length_BG: Completion lengths in tokens, for the length regularisation.
        token_count_BG: Tokens of each completion that are counted in the loss.
        valid_BG: False where a completion has no usable verdict.
        config: Settings of the objective.

    Returns:
        Advantages, weights and active groups.
    """
    shaped_BG = rewards.length_regularized(
        reward_BG, length_BG, penalty=config.length_penalty, budget_tokens=config.length_budget_tokens
    )
    advantage = advantages.group_normalized(shaped_BG, valid_BG, variance_epsilon=config.variance_epsilon)
    weight_BG = reduce.sequence_mean_weight(token_count_BG, valid_BG, advantage.active_B, dtype=reward_BG.dtype)
    return GroupWeights(advantage.advantage_BG, weight_BG, advantage.active_B)


@jaxtyped(typechecker=beartype)
def grpo_objective(
    logprob_NT: Float[Array, "N T"],
    old_logprob_NT: Float[Array, "N T"],
    ref_logprob_NT: Float[Array, "N T"] | None,
    mask_NT: Bool[Array, "N T"],
    advantage_N: Float[Array, "N"],
    weight_N: Float[Array, "N"],
    *,
    config: GRPOLossConfig,
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """The objective's share that falls on these completions; shares add up to the loss of the whole batch.

    Args:
        logprob_NT: Natural log-probabilities under the policy that is trained.
        old_logprob_NT: The same tokens under the policy that sampled them.
        ref_logprob_NT: The same tokens under the reference, or None where none is held.
        mask_NT: True for tokens that count. What lies under a False has no influence, NaN included.
        advantage_N: Advantage of each completion.
        weight_N: Weight of each completion's token losses, from ``group_weights``.
        config: Settings of the objective.

    Returns:
        The loss and sums for metrics: ``policy_loss`` (weighted), ``kl``, ``tokens``, ``clipped_low`` and
        ``clipped_high`` (plain sums over the masked tokens).

    Raises:
        ValueError: if ``kl_beta`` is positive and no reference is given.
    """
    if ref_logprob_NT is None and config.kl_beta > 0:
        raise ValueError(f"kl_beta={config.kl_beta} needs reference log-probabilities, got None")
    logprob_NT = jnp.where(mask_NT, logprob_NT, 0)
    old_logprob_NT = jax.lax.stop_gradient(jnp.where(mask_NT, old_logprob_NT, 0))
    policy = surrogate.clipped(logprob_NT, old_logprob_NT, advantage_N[:, None], clip_epsilon=config.clip_epsilon)
    token_weight_NT = jnp.where(mask_NT, weight_N[:, None], 0)
    policy_loss = jnp.sum(token_weight_NT * policy.loss)
    loss = policy_loss
    k3_NT = jnp.zeros_like(logprob_NT)
    if ref_logprob_NT is not None:
        ref_logprob_NT = jax.lax.stop_gradient(jnp.where(mask_NT, ref_logprob_NT, 0))
        k3_NT = kl.k3(logprob_NT, ref_logprob_NT)
    if config.kl_beta > 0:
        loss = policy_loss + config.kl_beta * jnp.sum(token_weight_NT * k3_NT)
    count = lambda hit_NT: jnp.sum(hit_NT & mask_NT).astype(loss.dtype)  # noqa: E731
    sums = {
        "policy_loss": policy_loss,
        "kl": reduce.masked_sum(k3_NT, mask_NT),
        "tokens": count(mask_NT),
        "clipped_low": count(policy.clipped_low),
        "clipped_high": count(policy.clipped_high),
    }
    return loss, jax.lax.stop_gradient(sums)


@jaxtyped(typechecker=beartype)
def grpo_loss(
    logprob_BGT: Float[ArrayOrHost, "B G T"],
    old_logprob_BGT: Float[ArrayOrHost, "B G T"],
    ref_logprob_BGT: Float[ArrayOrHost, "B G T"] | None,
    mask_BGT: Shaped[ArrayOrHost, "B G T"],
    reward_BG: Real[ArrayOrHost, "B G"],
    length_BG: Real[ArrayOrHost, "B G"],
    *,
    config: GRPOLossConfig,
    valid_BG: Bool[ArrayOrHost, "B G"] | None = None,
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """The default objective on a whole batch.

    Length-regularised rewards are normalised within each group; the clipped surrogate and ``kl_beta`` * k3 are
    averaged over each completion's tokens, over the group, and over the active groups. A batch without
    an active group has a loss of 0 and a gradient of 0.

    Args:
        logprob_BGT: Natural log-probabilities of the sampled tokens under the policy that is trained.
        old_logprob_BGT: The same tokens under the policy that sampled them.
        ref_logprob_BGT: The same tokens under the frozen reference, or None where none is held.
        mask_BGT: True (or 1) for tokens that count.
        reward_BG: Raw rewards.
        length_BG: Completion lengths in tokens, the end-of-sequence token counted.
        config: Settings of the objective.
        valid_BG: False where a completion has no usable verdict; all are valid by default.

    Returns:
        The loss and metrics: ``loss``, ``policy_loss``, ``kl`` (masked mean over all tokens),
        ``active_group_ratio``, ``mean_advantage``, ``mean_reward`` (raw, in float32: rewards are float32 by contract).

    Source: Shao et al. 2024 (DeepSeekMath), equations 3 and 4. We average over active groups only, regularise length
    in the reward and guard the group statistics against float32 residue.
    """
    reward_BG = jnp.asarray(reward_BG, jnp.result_type(logprob_BGT))
    valid_BG = jnp.ones_like(reward_BG, bool) if valid_BG is None else jnp.asarray(valid_BG)
    mask_BGT = (jnp.asarray(mask_BGT) != 0) & valid_BG[:, :, None]
    groups = group_weights(
        reward_BG, jnp.asarray(length_BG).astype(int), jnp.sum(mask_BGT, axis=2), valid_BG, config=config
    )
    flat = lambda x: jnp.asarray(x).reshape(-1, *x.shape[2:])  # noqa: E731
    loss, sums = grpo_objective(
        flat(logprob_BGT),
        flat(old_logprob_BGT),
        None if ref_logprob_BGT is None else flat(ref_logprob_BGT),
        flat(mask_BGT),
        flat(groups.advantage_BG),
        flat(groups.weight_BG),
        config=config,
    )
    metrics = {
        "loss": loss,
        "policy_loss": sums["policy_loss"],
        "kl": sums["kl"] / jnp.maximum(sums["tokens"], 1),
        "active_group_ratio": jnp.mean(groups.active_B, dtype=loss.dtype),
        "mean_advantage": reduce.masked_mean(groups.advantage_BG, valid_BG),
        "mean_reward": reduce.masked_mean(reward_BG.astype(jnp.float32), valid_BG),
    }
    return loss, jax.lax.stop_gradient(metrics)
