"""Token log-probabilities and entropy from hidden states, without logits for a whole sequence."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from beartype import beartype
from jaxtyping import Array, Float, Int, jaxtyped


class TokenLogprobs(NamedTuple):
    """Per-token results of one forward pass.

    Attributes:
        logprob_NT: Natural log-probability of the given token.
        entropy_NT: Entropy in nats of the whole distribution; carries no gradient.
    """

    logprob_NT: Float[Array, "N T"]
    entropy_NT: Float[Array, "N T"]


@jaxtyped(typechecker=beartype)
def from_logits(logits_NTV: Float[Array, "N T V"], token_NT: Int[Array, "N T"]) -> TokenLogprobs:
    """Log-probability of the given tokens and the entropy, safe where the vocabulary is sharded.

    Args:
        logits_NTV: Logits, already divided by the temperature.
        token_NT: Token ids in [0, V).

    Returns:
        Float32 (or float64, as the logits) log-probabilities and entropies.
    """
    # A gather along a sharded axis would collect the vocabulary; compare, select and sum stays where it is.
    top_NT1 = jax.lax.stop_gradient(jnp.max(logits_NTV, axis=-1, keepdims=True))
    shifted_NTV = logits_NTV - top_NT1
    exponential_NTV = jnp.exp(shifted_NTV)
    normalizer_NT = jnp.sum(exponential_NTV, axis=-1)
    log_normalizer_NT = jnp.log(normalizer_NT)
    is_token_NTV = jnp.arange(logits_NTV.shape[-1])[None, None] == token_NT[:, :, None]
    chosen_NT = jnp.sum(jnp.where(is_token_NTV, shifted_NTV, 0), axis=-1)
    mean_shifted_NT = jnp.sum(exponential_NTV * shifted_NTV, axis=-1) / normalizer_NT
    entropy_NT = jax.lax.stop_gradient(log_normalizer_NT - mean_shifted_NT)
    return TokenLogprobs(chosen_NT - log_normalizer_NT, entropy_NT)


@jaxtyped(typechecker=beartype)
def chunked(
    hidden_NTD: Float[Array, "N T D"],
    unembedding_DV: Float[Array, "D V"],
    token_NT: Int[Array, "N T"],
    *,
    temperature: float,
    chunk_tokens: int,
) -> TokenLogprobs:
    """Token log-probabilities, with logits for one chunk of tokens at a time, in the backward pass too.

    Args:
        hidden_NTD: Final hidden states at the positions that predict ``token_NT``.
        unembedding_DV: Output projection; its V axis may be sharded.
        token_NT: Token ids in [0, V).
        temperature: The one that was sampled with; logits are divided by it.
        chunk_tokens: Upper bound on the tokens (over all N rows) whose logits exist at once; at least
            one position of every row is taken.

    Returns:
        Log-probabilities and entropies, float32 or better.
    """
    rows, positions = token_NT.shape

    def chunk_logprobs(hidden_NCD: Float[Array, "N C D"], token_NC: Int[Array, "N C"]) -> TokenLogprobs:
        accumulator = jnp.promote_types(hidden_NCD.dtype, jnp.float32)
        logits_NCV = jnp.einsum("NCD,DV->NCV", hidden_NCD, unembedding_DV, preferred_element_type=accumulator)
        return from_logits(logits_NCV / temperature, token_NC)

    width = min(max(chunk_tokens // rows, 1), positions)
    chunks = -(-positions // width)
    width = -(-positions // chunks)
    padding = chunks * width - positions
    hidden = jnp.pad(hidden_NTD, ((0, 0), (0, padding), (0, 0))).reshape(rows, chunks, width, -1)
    token = jnp.pad(token_NT, ((0, 0), (0, padding))).reshape(rows, chunks, width)
    _, stacked = jax.lax.scan(
        lambda carry, chunk: (carry, jax.checkpoint(chunk_logprobs)(*chunk)),
        None,
        (jnp.moveaxis(hidden, 1, 0), jnp.moveaxis(token, 1, 0)),
    )
    return TokenLogprobs(*(jnp.moveaxis(x, 0, 1).reshape(rows, -1)[:, :positions] for x in stacked))
