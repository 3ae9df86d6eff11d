"""Group relative policy optimisation: the composed loss.

``grpo_loss`` is the whole objective on one batch. Training uses its two halves: ``groups.group_weights`` once over
the whole batch, then ``grpo_objective`` on each micro-batch, whose sums add up to the same loss.
"""

import jax
import jax.numpy as jnp
import numpy as np
from beartype import beartype
from jaxtyping import Array, Bool, Float, Real, Shaped, jaxtyped

from grpo_jax.algorithms import groups as groups_lib
from grpo_jax.algorithms import kl, reduce, surrogate
from grpo_jax.algorithms.settings import GRPOLossConfig

__all__ = ["GRPOLossConfig", "grpo_loss", "grpo_objective", "policy_surrogate"]

ArrayOrHost = Array | np.ndarray


def policy_surrogate(
    logprob_NT: Float[Array, "N T"],
    old_logprob_NT: Float[Array, "N T"],
    mask_NT: Bool[Array, "N T"],
    advantage_NT: Float[Array, "N T"],
    config: GRPOLossConfig,
) -> surrogate.Surrogate:
    """The policy term that the settings name, per token; arguments as in ``grpo_objective``, free of NaN."""
    log_ratio_NT = surrogate.log_ratio(config.ratio, logprob_NT, old_logprob_NT, mask_NT)
    if config.policy_loss == "cispo":
        return surrogate.cispo(log_ratio_NT, advantage_NT, logprob_NT, cap=config.cispo_cap)
    if config.policy_loss == "sapo":
        return surrogate.sapo(
            log_ratio_NT,
            advantage_NT,
            temperature_positive=config.sapo_temperature_positive,
            temperature_negative=config.sapo_temperature_negative,
        )
    high = config.clip_epsilon if config.clip_epsilon_high is None else config.clip_epsilon_high
    return surrogate.clipped(
        log_ratio_NT, advantage_NT, clip_low=config.clip_epsilon, clip_high=high, dual_clip=config.dual_clip
    )


def _importance_correction(
    old_logprob_NT: Float[Array, "N T"],
    sampler_logprob_NT: Float[Array, "N T"] | None,
    mask_NT: Bool[Array, "N T"],
    config: GRPOLossConfig,
) -> Float[Array, "N T"]:
    if config.importance == "none":
        return jnp.ones_like(old_logprob_NT)
    assert sampler_logprob_NT is not None, "an importance correction needs the sampler's log-probabilities"
    return surrogate.importance_weight(
        config.importance,
        old_logprob_NT,
        jnp.where(mask_NT, sampler_logprob_NT, 0),
        mask_NT,
        cap=config.importance_cap,
        lowest=config.importance_lowest,
        highest=config.importance_highest,
    )


@jaxtyped(typechecker=beartype)
def grpo_objective(
    logprob_NT: Float[Array, "N T"],
    old_logprob_NT: Float[Array, "N T"],
    ref_logprob_NT: Float[Array, "N T"] | None,
    mask_NT: Bool[Array, "N T"],
    advantage_NT: Float[Array, "N T"],
    weight_N: Float[Array, "N"],
    sampler_logprob_NT: Float[Array, "N T"] | None = None,
    *,
    config: GRPOLossConfig,
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """The objective's share that falls on these completions; shares add up to the loss of the whole batch.

    Args:
        logprob_NT: Natural log-probabilities under the policy that is trained.
        old_logprob_NT: The same tokens under the policy that sampled them.
        ref_logprob_NT: The same tokens under the reference, or None where none is held.
        mask_NT: True for tokens that count. What lies under a False, or in a completion of weight 0, has no influence
            on the loss, NaN included.
        advantage_NT: Advantage at each token.
        weight_N: Weight of each completion's token losses, from ``group_weights``.
        sampler_logprob_NT: The sampler's own log-probabilities; needed for an importance correction.
        config: Settings of the objective.

    Returns:
        The loss and sums for metrics: ``policy_loss`` (weighted), ``kl``, ``tokens``, ``clipped_low`` and
        ``clipped_high`` (plain sums over the masked tokens).

    Raises:
        ValueError: if ``kl_beta`` is positive and no reference is given.
    """
    if ref_logprob_NT is None and config.kl_beta > 0:
        raise ValueError(f"kl_beta={config.kl_beta} needs reference log-probabilities, got None")
    k3_NT = jnp.zeros_like(logprob_NT)
    if ref_logprob_NT is not None:
        ref_logprob_NT = jax.lax.stop_gradient(ref_logprob_NT)
        k3_NT = kl.k3(*(jnp.where(mask_NT, array, 0) for array in (logprob_NT, ref_logprob_NT)))
    measured_NT, mask_NT = mask_NT, mask_NT & (weight_N[:, None] > 0)
    # Set before anything is computed: where() on a result would keep NaN in its gradient.
    logprob_NT = jnp.where(mask_NT, logprob_NT, 0)
    old_logprob_NT = jax.lax.stop_gradient(jnp.where(mask_NT, old_logprob_NT, 0))
    policy = policy_surrogate(logprob_NT, old_logprob_NT, mask_NT, jnp.where(mask_NT, advantage_NT, 0), config)
    token_weight_NT = jnp.where(mask_NT, weight_N[:, None], 0)
    correction_NT = _importance_correction(old_logprob_NT, sampler_logprob_NT, mask_NT, config)
    policy_loss = jnp.sum(token_weight_NT * correction_NT * policy.loss)
    loss = policy_loss
    if ref_logprob_NT is not None and config.kl_beta > 0 and config.kl_placement == "loss":
        ref_logprob_NT = jnp.where(mask_NT, ref_logprob_NT, 0)
        penalty_NT = kl.estimate(config.kl_estimator, logprob_NT, ref_logprob_NT, old_logprob_NT)
        loss = policy_loss + config.kl_beta * jnp.sum(token_weight_NT * penalty_NT)
    count = lambda hit_NT: jnp.sum(hit_NT).astype(loss.dtype)  # noqa: E731
    sums = {
        "policy_loss": policy_loss,
        "kl": reduce.masked_sum(k3_NT, measured_NT),
        "tokens": count(measured_NT),
        "clipped_low": count(policy.clipped_low & mask_NT),
        "clipped_high": count(policy.clipped_high & mask_NT),
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
    """The objective on a whole batch, with the default settings or any other.

    By default, length-regularised rewards are normalised within each group; the clipped surrogate and ``kl_beta`` * k3
    are averaged over each completion's tokens, over the group, and over the active groups: 0 if there are none.

    Args:
        logprob_BGT: Natural log-probabilities of the sampled tokens under the policy that is trained.
        old_logprob_BGT: The same tokens under the policy that sampled them.
        ref_logprob_BGT: The same tokens under the frozen reference, or None where none is held.
        mask_BGT: True (or 1) for tokens that count.
        reward_BG: Raw rewards.
        length_BG: Completion lengths in tokens, the end-of-sequence token counted.
        config: Settings of the objective. ``decoupled_normalized`` takes ``reward_BG`` as its only reward.
        valid_BG: False where a completion has no usable verdict; by default those whose reward is finite are valid.

    Returns:
        The loss and metrics: ``loss``, ``policy_loss``, ``kl`` (masked mean of k3 over all tokens),
        ``active_group_ratio``, ``mean_advantage``, ``mean_reward`` (raw, in float32: rewards are float32 by contract).

    Raises:
        ValueError: if ``kl_beta`` is positive and no reference is given, or an axis is empty.

    Source: Shao et al. 2024 (DeepSeekMath), equations 3 and 4; docs/algorithms.md says how we differ.
    """
    logprob_BGT, old_logprob_BGT = jnp.asarray(logprob_BGT), jnp.asarray(old_logprob_BGT)
    reward_BG, length_BG = jnp.asarray(reward_BG, logprob_BGT.dtype), jnp.asarray(length_BG).astype(int)
    if logprob_BGT.size == 0:
        raise ValueError(f"logprob_BGT: got shape {logprob_BGT.shape}, wanted at least one of each axis")
    valid_BG = jnp.isfinite(reward_BG) if valid_BG is None else jnp.asarray(valid_BG)
    mask_BGT = (jnp.asarray(mask_BGT) != 0) & valid_BG[:, :, None]
    kl_BG = None
    if ref_logprob_BGT is not None:
        ref_logprob_BGT = jnp.asarray(ref_logprob_BGT)
        kl_BG = groups_lib.completion_kl(old_logprob_BGT, ref_logprob_BGT, mask_BGT, config.kl_estimator)
    shaped_BG = groups_lib.shaped_reward(reward_BG, length_BG, kl_BG, config=config)
    token_count_BG = jnp.sum(mask_BGT, axis=2)
    groups = groups_lib.group_weights(shaped_BG, token_count_BG, valid_BG, shaped_BG[:, :, None], config=config)
    advantage_BGT = jnp.broadcast_to(groups.advantage_BG[:, :, None], mask_BGT.shape)
    arrays = (logprob_BGT, old_logprob_BGT, ref_logprob_BGT, mask_BGT, advantage_BGT, groups.weight_BG, old_logprob_BGT)
    loss, sums = grpo_objective(*jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), arrays), config=config)
    metrics = {
        "loss": loss,
        "policy_loss": sums["policy_loss"],
        "kl": sums["kl"] / jnp.maximum(sums["tokens"], 1),
        "active_group_ratio": jnp.mean(groups.active_B, dtype=loss.dtype),
        "mean_advantage": reduce.masked_mean(groups.advantage_BG, valid_BG),
        "mean_reward": reduce.masked_mean(reward_BG.astype(jnp.float32), valid_BG),
    }
    return loss, jax.lax.stop_gradient(metrics)
