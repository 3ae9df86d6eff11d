"""Proximal policy optimisation: rewards per token, the policy's loss and the critic's.

Advantages come from ``gae.gae`` and ``gae.whitened``, once over the whole batch. The two objectives then
see one micro-batch at a time; their sums add up to the losses of the whole batch.
"""

import jax
import jax.numpy as jnp
from beartype import beartype
from jaxtyping import Array, Bool, Float, jaxtyped

from grpo_jax.algorithms import kl, reduce, surrogate


@jaxtyped(typechecker=beartype)
def kl_penalized(
    reward_NT: Float[Array, "N T"],
    old_logprob_NT: Float[Array, "N T"],
    ref_logprob_NT: Float[Array, "N T"],
    mask_NT: Bool[Array, "N T"],
    *,
    kl_beta: float,
) -> Float[Array, "N T"]:
    """Takes the KL to the reference off the reward of each token: r_t - beta (log pi_old - log pi_ref).

    Args:
        reward_NT: Reward for each token, which is 0 everywhere but at a completion's end.
        old_logprob_NT: Natural log-probabilities under the policy that sampled.
        ref_logprob_NT: The same tokens under the reference.
        mask_NT: Tokens that count.
        kl_beta: Weight of the penalty.

    Returns:
        The rewards, 0 outside the mask.

    Source: Ouyang et al. 2022 (InstructGPT), equation 2.
    """
    return jnp.where(mask_NT, reward_NT - kl_beta * kl.k1(old_logprob_NT, ref_logprob_NT), 0)


@jaxtyped(typechecker=beartype)
def policy_objective(
    logprob_NT: Float[Array, "N T"],
    old_logprob_NT: Float[Array, "N T"],
    mask_NT: Bool[Array, "N T"],
    advantage_NT: Float[Array, "N T"],
    weight_N: Float[Array, "N"],
    *,
    clip_epsilon: float,
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """The clipped policy loss' share that falls on these completions.

    sum of weight * -min(rho A, clip(rho, 1 - eps, 1 + eps) A).

    Args:
        logprob_NT: Natural log-probabilities under the policy that is trained.
        old_logprob_NT: The same tokens under the policy that sampled them.
        mask_NT: True for tokens that count. What lies under a False has no influence, NaN included.
        advantage_NT: Advantage at each token.
        weight_N: Weight of each completion's token losses.
        clip_epsilon: How far the ratio may leave 1.

    Returns:
        The loss and sums for metrics: ``tokens``, ``clipped_low`` and ``clipped_high``.

    Source: Schulman et al. 2017 (PPO), equation 7.
    """
    # Set before anything is computed: where() on a result would keep NaN in its gradient.
    logprob_NT = jnp.where(mask_NT, logprob_NT, 0)
    old_logprob_NT = jax.lax.stop_gradient(jnp.where(mask_NT, old_logprob_NT, 0))
    log_ratio_NT = surrogate.log_ratio("token", logprob_NT, old_logprob_NT, mask_NT)
    policy = surrogate.clipped(
        log_ratio_NT, jnp.where(mask_NT, advantage_NT, 0), clip_low=clip_epsilon, clip_high=clip_epsilon
    )
    loss = _weighted_sum(policy.loss, mask_NT, weight_N)
    count = lambda hit_NT: jnp.sum(hit_NT & mask_NT).astype(loss.dtype)  # noqa: E731
    return loss, {
        "tokens": count(mask_NT),
        "clipped_low": count(policy.clipped_low),
        "clipped_high": count(policy.clipped_high),
    }


@jaxtyped(typechecker=beartype)
def value_objective(
    value_NT: Float[Array, "N T"],
    old_value_NT: Float[Array, "N T"],
    return_NT: Float[Array, "N T"],
    mask_NT: Bool[Array, "N T"],
    weight_N: Float[Array, "N"],
    *,
    value_clip: float | None,
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """The critic's clipped squared error, its share that falls on these completions.

    sum of weight * max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) / 2.

    Args:
        value_NT: Values under the critic that is trained.
        old_value_NT: Values from before the first update on this batch.
        return_NT: What they should have been: advantage plus old value.
        mask_NT: True for tokens that count. What lies under a False has no influence, NaN included.
        weight_N: Weight of each completion's token losses.
        value_clip: How far a value may leave the old one and still gain by it; None is off.

    Returns:
        The loss and sums for metrics: ``value_clipped``, the tokens whose gradient the clip took away.

    Source: Schulman et al. 2017 (PPO), in the form of their published code.
    """
    value_NT = jnp.where(mask_NT, value_NT, 0)
    old_value_NT, return_NT = jax.lax.stop_gradient(
        (jnp.where(mask_NT, old_value_NT, 0), jnp.where(mask_NT, return_NT, 0))
    )
    error_NT = jnp.square(value_NT - return_NT)
    clipped_NT = jnp.zeros_like(mask_NT)
    if value_clip is not None:
        bounded_NT = old_value_NT + jnp.clip(value_NT - old_value_NT, -value_clip, value_clip)
        bounded_error_NT = jnp.square(bounded_NT - return_NT)
        clipped_NT = bounded_error_NT > error_NT
        error_NT = jnp.maximum(error_NT, bounded_error_NT)
    loss = _weighted_sum(error_NT / 2, mask_NT, weight_N)
    return loss, {"value_clipped": reduce.masked_sum(clipped_NT.astype(loss.dtype), mask_NT)}


def _weighted_sum(loss_NT: jax.Array, mask_NT: jax.Array, weight_N: jax.Array) -> jax.Array:
    return reduce.masked_sum(weight_N[:, None] * loss_NT, mask_NT)
