"""Drawing one token per row from logits."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from grpo_jax.parallel import rules


class Drawn(NamedTuple):
    """One token per row.

    Attributes:
        token: Ids.
        logprob: Natural log-probability at the temperature, before truncation; 0 at temperature 0.
        truncated_logprob: The same after truncation to top-k and top-p.
    """

    token: Int[Array, "B G"]
    logprob: Float[Array, "B G"]
    truncated_logprob: Float[Array, "B G"]


def draw(
    logits_BGV: Float[Array, "B G V"], key: jax.Array, *, temperature: float, top_k: int = 0, top_p: float = 1.0
) -> Drawn:
    """Samples from softmax(logits / temperature), optionally truncated; at temperature 0 from its limit.

    Args:
        logits_BGV: Raw logits.
        key: PRNG key of this step.
        temperature: 0 or more; 0 takes the likeliest token, the first of equals.
        top_k: Keep the k likeliest tokens; 0 is off.
        top_p: Keep the smallest set of likeliest tokens that holds this probability; 1 is off.

    Returns:
        Tokens and both log-probabilities.
    """
    # Truncation sorts the vocabulary, so a decode step's few logits are gathered first.
    logits_BGV = rules.shard(logits_BGV.astype(jnp.float32), rules.BATCH, None, None)
    if temperature == 0:
        certain_BG = jnp.zeros_like(logits_BGV[:, :, 0])
        return Drawn(jnp.argmax(logits_BGV, axis=-1).astype(jnp.int32), certain_BG, certain_BG)
    logits_BGV = logits_BGV / temperature
    top_BG1 = jnp.max(logits_BGV, axis=-1, keepdims=True)
    logits_BGV = logits_BGV - top_BG1
    log_total_BG = jnp.log(jnp.sum(jnp.exp(logits_BGV), axis=-1))
    kept_BGV = truncate(logits_BGV, top_k, top_p)
    token_BG = categorical(jnp.exp(kept_BGV), jax.random.uniform(key, (2, *log_total_BG.shape)))
    is_token_BGV = jnp.arange(logits_BGV.shape[-1])[None, None] == token_BG[:, :, None]
    logit_BG = jnp.sum(jnp.where(is_token_BGV, logits_BGV, 0), axis=-1)
    logprob_BG = logit_BG - log_total_BG
    if kept_BGV is logits_BGV:
        return Drawn(token_BG, logprob_BG, logprob_BG)
    return Drawn(token_BG, logprob_BG, logit_BG - jnp.log(jnp.sum(jnp.exp(kept_BGV), axis=-1)))


CDF_BLOCK = 64
"""Entries that are added up at once; sums of sums keep their digits and cost far less than one long running sum."""


def categorical(weight_BGV: Float[Array, "B G V"], uniform_2BG: Float[Array, "2 B G"]) -> Int[Array, "B G"]:
    """Draws an index per row in proportion to the row's weights: first its block, then its place in the block.

    The usual Gumbel trick needs a random number for every entry of the vocabulary; this needs two.

    Args:
        weight_BGV: Weights >= 0, at least one of them positive; an index of weight 0 is never drawn.
        uniform_2BG: Independent numbers in [0, 1).

    Returns:
        Indices in [0, V).
    """
    B, G, V = weight_BGV.shape
    blocks = -(-V // CDF_BLOCK)
    weight_BGbv = jnp.pad(weight_BGV, ((0, 0), (0, 0), (0, blocks * CDF_BLOCK - V))).reshape(B, G, blocks, CDF_BLOCK)
    block_BG = _inverse_cdf(jnp.sum(weight_BGbv, axis=-1), uniform_2BG[0])
    is_block_BGb1 = (jnp.arange(blocks)[None, None] == block_BG[:, :, None])[:, :, :, None]
    place_BG = _inverse_cdf(jnp.sum(jnp.where(is_block_BGb1, weight_BGbv, 0), axis=2), uniform_2BG[1])
    return (block_BG * CDF_BLOCK + place_BG).astype(jnp.int32)


def _inverse_cdf(weight_BGn: Float[Array, "B G n"], uniform_BG: Float[Array, "B G"]) -> Int[Array, "B G"]:
    """The first index of positive weight whose running sum exceeds ``uniform`` of the total."""
    running_BGn = jnp.cumsum(weight_BGn, axis=-1)
    # XLA adds up in a tree, so a running sum may move by a rounding error where the weight is 0, and even fall.
    positive_BGn = weight_BGn > 0
    total_BG = jnp.max(jnp.where(positive_BGn, running_BGn, 0), axis=-1)
    # Rounding may push the product up to the total; it has to stay below, or the index would run off the end.
    target_BG = jnp.minimum(uniform_BG * total_BG, jnp.nextafter(total_BG, jnp.float32(0)))
    size = weight_BGn.shape[-1]
    found_BGn = positive_BGn & (running_BGn > target_BG[:, :, None])
    return jnp.min(jnp.where(found_BGn, jnp.arange(size)[None, None], size), axis=-1)


def truncate(logits_BGV: Float[Array, "B G V"], top_k: int, top_p: float) -> Float[Array, "B G V"]:
    """Sets logits outside the top k and outside the top-p nucleus to -inf.

    Ties with the last token that is kept are kept too. The likeliest token always stays.

    Args:
        logits_BGV: Logits, already divided by the temperature.
        top_k: Tokens to keep; 0 is off.
        top_p: Probability to keep; 1 is off.

    Returns:
        The truncated logits; the argument itself where nothing is cut off.
    """
    kept_BGV = logits_BGV
    if 0 < top_k < logits_BGV.shape[-1]:
        lowest_BG1 = jax.lax.top_k(logits_BGV, top_k)[0][:, :, -1:]
        kept_BGV = jnp.where(logits_BGV >= lowest_BG1, kept_BGV, -jnp.inf)
    if top_p < 1:
        # The nucleus is taken within what top-k left, as every sampler that chains the two does.
        descending_BGV = -jnp.sort(-kept_BGV, axis=-1)
        probability_BGV = jax.nn.softmax(descending_BGV)
        before_BGV = jnp.cumsum(probability_BGV, axis=-1) - probability_BGV
        lowest_BG1 = jnp.min(jnp.where(before_BGV < top_p, descending_BGV, jnp.inf), axis=-1, keepdims=True)
        kept_BGV = jnp.where(kept_BGV >= lowest_BG1, kept_BGV, -jnp.inf)
    return kept_BGV
