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
        logprob: Natural log-probability at the temperature, before truncation.
        truncated_logprob: The same after truncation to top-k and top-p.
    """

    token: Int[Array, "B G"]
    logprob: Float[Array, "B G"]
    truncated_logprob: Float[Array, "B G"]


def draw(
    logits_BGV: Float[Array, "B G V"], key: jax.Array, *, temperature: float, top_k: int = 0, top_p: float = 1.0
) -> Drawn:
    """Samples from softmax(logits / temperature), optionally truncated.

    Args:
        logits_BGV: Raw logits.
        key: PRNG key of this step.
        temperature: Positive.
        top_k: Keep the k likeliest tokens; 0 is off.
        top_p: Keep the smallest set of likeliest tokens that holds this probability; 1 is off.

    Returns:
        Tokens and both log-probabilities.
    """
    # Truncation sorts the vocabulary, so a decode step's few logits are gathered first.
    logits_BGV = rules.shard(logits_BGV.astype(jnp.float32), rules.BATCH, None, None) / temperature
    logprob_BGV = jax.nn.log_softmax(logits_BGV)
    kept_BGV = truncate(logprob_BGV, top_k, top_p)
    noise_BGV = jax.random.gumbel(key, logits_BGV.shape)
    token_BG = jnp.argmax(kept_BGV + noise_BGV, axis=-1).astype(jnp.int32)
    is_token = jnp.arange(logits_BGV.shape[-1]) == token_BG[:, :, None]
    pick = lambda value_BGV: jnp.sum(jnp.where(is_token, value_BGV, 0), axis=-1)  # noqa: E731
    logprob_BG = pick(logprob_BGV)
    if kept_BGV is logprob_BGV:
        return Drawn(token_BG, logprob_BG, logprob_BG)
    return Drawn(token_BG, logprob_BG, pick(kept_BGV) - jax.nn.logsumexp(kept_BGV, axis=-1))


def truncate(logprob_BGV: Float[Array, "B G V"], top_k: int, top_p: float) -> Float[Array, "B G V"]:
    """Sets log-probabilities outside the top k and outside the top-p nucleus to -inf.

    Ties with the last token that is kept are kept too. The likeliest token always stays.

    Args:
        logprob_BGV: Normalised log-probabilities.
        top_k: Tokens to keep; 0 is off.
        top_p: Probability to keep; 1 is off.

    Returns:
        The truncated log-probabilities, not normalised again; the argument itself where nothing is cut off.
    """
    kept_BGV = logprob_BGV
    if 0 < top_k < logprob_BGV.shape[-1]:
        lowest_BG1 = jax.lax.top_k(logprob_BGV, top_k)[0][:, :, -1:]
        kept_BGV = jnp.where(logprob_BGV >= lowest_BG1, kept_BGV, -jnp.inf)
    if top_p < 1:
        # The nucleus is taken within what top-k left, as every sampler that chains the two does.
        descending_BGV = -jnp.sort(-kept_BGV, axis=-1)
        probability_BGV = jax.nn.softmax(descending_BGV)
        before_BGV = jnp.cumsum(probability_BGV, axis=-1) - probability_BGV
        lowest_BG1 = jnp.min(jnp.where(before_BGV < top_p, descending_BGV, jnp.inf), axis=-1, keepdims=True)
        kept_BGV = jnp.where(kept_BGV >= lowest_BG1, kept_BGV, -jnp.inf)
    return kept_BGV
