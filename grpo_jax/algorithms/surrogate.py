"""Policy-gradient surrogates per token: ratios, clips and importance corrections."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from beartype import beartype
from jaxtyping import Array, Bool, Float, jaxtyped

RatioName = Literal["token", "sequence"]
SurrogateName = Literal["clip", "cispo", "sapo"]
ImportanceName = Literal["none", "token", "sequence"]


LOG_RATIO_BOUND = 20.0
"""A ratio of e^20 is out of any trust region; beyond, its exponential would overflow and its gradient be NaN."""


class Surrogate(NamedTuple):
    """A surrogate loss and where its bounds took hold.

    Attributes:
        loss: Loss per token (to be minimised).
        clipped_low: The ratio fell below the lower bound while the advantage was negative.
        clipped_high: The ratio rose above the upper bound while the advantage was positive.
    """

    loss: Float[Array, "N T"]
    clipped_low: Bool[Array, "N T"]
    clipped_high: Bool[Array, "N T"]


@jaxtyped(typechecker=beartype)
def log_ratio(
    name: RatioName,
    logprob_NT: Float[Array, "N T"],
    old_logprob_NT: Float[Array, "N T"],
    mask_NT: Bool[Array, "N T"],
) -> Float[Array, "N T"]:
    """Log of the ratio between the policy that is trained and the one that sampled.

    Args:
        name: ``token``: each token's own; ``sequence``: the mean over the completion, the same at each of its tokens,
            with the gradient through the mean.
        logprob_NT: Natural log-probabilities under the policy that is trained.
        old_logprob_NT: The same tokens under the policy that sampled.
        mask_NT: Tokens that count.

    Returns:
        The log-ratio, 0 outside the mask, and within +-``LOG_RATIO_BOUND``.

    Source: Zheng et al. 2025 (GSPO), equation 7, for ``sequence``.
    """
    difference_NT = jnp.where(mask_NT, logprob_NT - old_logprob_NT, 0)
    if name == "token":
        return jnp.clip(difference_NT, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    count_N1 = jnp.maximum(jnp.sum(mask_NT, axis=1, keepdims=True), 1).astype(difference_NT.dtype)
    mean_N1 = jnp.sum(difference_NT, axis=1, keepdims=True) / count_N1
    return jnp.where(mask_NT, jnp.broadcast_to(mean_N1, mask_NT.shape), 0)


@jaxtyped(typechecker=beartype)
def clipped(
    log_ratio_NT: Float[Array, "N T"],
    advantage_NT: Float[Array, "N T"],
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> Surrogate:
    """The clipped surrogate.

    loss = -min(rho A, clip(rho, 1 - low, 1 + high) A); with a dual clip c, -max(that minimum, c A) where A < 0.

    Args:
        log_ratio_NT: From ``log_ratio``.
        advantage_NT: Advantage at each token.
        clip_low: How far the ratio may fall below 1.
        clip_high: How far it may rise above 1.
        dual_clip: Bound c > 1 on the ratio where the advantage is negative; None is off.

    Returns:
        Loss per token and where the clip took hold.

    Source: Schulman et al. 2017 (PPO), equation 7; Yu et al. 2025 (DAPO) for the two bounds; Ye et al. 2020 for the
    dual clip.
    """
    ratio_NT = jnp.exp(log_ratio_NT)
    bounded_NT = jnp.clip(ratio_NT, 1 - clip_low, 1 + clip_high)
    gain_NT = jnp.minimum(ratio_NT * advantage_NT, bounded_NT * advantage_NT)
    if dual_clip is not None:
        gain_NT = jnp.where(advantage_NT < 0, jnp.maximum(gain_NT, dual_clip * advantage_NT), gain_NT)
    return Surrogate(
        loss=-gain_NT,
        clipped_low=(ratio_NT < 1 - clip_low) & (advantage_NT < 0),
        clipped_high=(ratio_NT > 1 + clip_high) & (advantage_NT > 0),
    )


@jaxtyped(typechecker=beartype)
def cispo(
    log_ratio_NT: Float[Array, "N T"],
    advantage_NT: Float[Array, "N T"],
    logprob_NT: Float[Array, "N T"],
    *,
    cap: float,
) -> Surrogate:
    """A policy gradient weighted by the capped ratio; no token loses its gradient to a clip.

    loss = -stop_gradient(min(rho, cap)) A logprob.

    Args:
        log_ratio_NT: From ``log_ratio``.
        advantage_NT: Advantage at each token.
        logprob_NT: Natural log-probabilities under the policy that is trained.
        cap: Upper bound of the weight.

    Returns:
        Loss per token; ``clipped_high`` says where the cap took hold, whatever the sign of the advantage.

    Source: MiniMax 2025 (MiniMax-M1), equation 4, without its lower bound, as they run it.
    """
    ratio_NT = jax.lax.stop_gradient(jnp.exp(log_ratio_NT))
    over_NT = ratio_NT > cap
    loss_NT = -jnp.minimum(ratio_NT, cap) * advantage_NT * logprob_NT
    return Surrogate(loss_NT, clipped_low=jnp.zeros_like(over_NT), clipped_high=over_NT)


@jaxtyped(typechecker=beartype)
def sapo(
    log_ratio_NT: Float[Array, "N T"],
    advantage_NT: Float[Array, "N T"],
    *,
    temperature_positive: float,
    temperature_negative: float,
) -> Surrogate:
    """A smooth gate in the place of the clip.

    loss = -(4 / tau) sigmoid(tau (rho - 1)) A, with one tau for positive advantages and one for the others. At a ratio
    of 1 the gradient is the plain policy gradient; it fades on both sides.

    Args:
        log_ratio_NT: From ``log_ratio``.
        advantage_NT: Advantage at each token.
        temperature_positive: tau where the advantage is positive.
        temperature_negative: tau elsewhere; larger fades faster.

    Returns:
        Loss per token; nothing is ever clipped.

    Source: Gao et al. 2025 (SAPO), equations 5 and 6.
    """
    tau_NT = jnp.where(advantage_NT > 0, temperature_positive, temperature_negative).astype(log_ratio_NT.dtype)
    loss_NT = -(4 / tau_NT) * jax.nn.sigmoid(tau_NT * (jnp.exp(log_ratio_NT) - 1)) * advantage_NT
    never = jnp.zeros_like(advantage_NT, bool)
    return Surrogate(loss_NT, never, never)


@jaxtyped(typechecker=beartype)
def importance_weight(
    name: ImportanceName,
    old_logprob_NT: Float[Array, "N T"],
    sampler_logprob_NT: Float[Array, "N T"],
    mask_NT: Bool[Array, "N T"],
    *,
    cap: float,
    lowest: float,
    highest: float | None,
) -> Float[Array, "N T"]:
    """Corrects for a sampler whose probabilities differ from the trainer's.

    w = min(exp(log old - log sampler), cap), and 0 where the uncapped weight lies outside [lowest, highest].

    Args:
        name: ``none``: all weights are 1; ``token``: each token's own; ``sequence``: the product over the completion.
        old_logprob_NT: Log-probabilities of the policy that sampled, by the trainer.
        sampler_logprob_NT: The same by the sampler.
        mask_NT: Tokens that count.
        cap: Upper bound of the weight.
        lowest: Weights below are set to 0; 0 is off.
        highest: Weights above are set to 0; None is off.

    Returns:
        Weights without a gradient.

    Source: Yao et al. 2025 (truncated importance sampling); masking as in IcePop (Ling team 2025).
    """
    if name == "none":
        return jnp.ones_like(old_logprob_NT)
    difference_NT = jnp.where(mask_NT, old_logprob_NT - sampler_logprob_NT, 0)
    if name == "sequence":
        total_N1 = jnp.sum(difference_NT, axis=1, keepdims=True)
        difference_NT = jnp.broadcast_to(total_N1, mask_NT.shape)
    weight_NT = jnp.exp(difference_NT)
    kept_NT = weight_NT >= lowest
    if highest is not None:
        kept_NT = kept_NT & (weight_NT <= highest)
    return jax.lax.stop_gradient(jnp.where(kept_NT, jnp.minimum(weight_NT, cap), 0))
