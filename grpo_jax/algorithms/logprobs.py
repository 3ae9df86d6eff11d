"""Token log-probabilities and entropy from hidden states, without logits for a whole sequence."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from beartype import beartype
from jax.custom_derivatives import SymbolicZero
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
    gradient_place: jax.P | None = None,
) -> TokenLogprobs:
    """Token log-probabilities, with logits for one chunk of tokens at a time, in the backward pass too.

    Args:
        hidden_NTD: Final hidden states at the positions that predict ``token_NT``.
        unembedding_DV: Output projection; its V axis may be sharded.
        token_NT: Token ids in [0, V).
        temperature: The one that was sampled with; logits are divided by it.
        chunk_tokens: Upper bound on the tokens (over all N rows) whose logits exist at once; at least
            one position of every row is taken.
        gradient_place: Where the projection's gradient is brought before anything behind ``hidden_NTD`` is
            differentiated: where its parameter is held, so that nothing larger lies there for so long.

    Returns:
        Log-probabilities and entropies, float32 or better.
    """
    rows, positions = token_NT.shape

    width = min(max(chunk_tokens // rows, 1), positions)
    chunks = -(-positions // width)
    width = -(-positions // chunks)
    padding = chunks * width - positions
    hidden = jnp.pad(hidden_NTD, ((0, 0), (0, padding), (0, 0))).reshape(rows, chunks, width, -1)
    token = jnp.pad(token_NT, ((0, 0), (0, padding))).reshape(rows, chunks, width)
    stacked: Any = _by_chunk(
        jnp.moveaxis(hidden, 1, 0), unembedding_DV, jnp.moveaxis(token, 1, 0), temperature, gradient_place
    )
    return TokenLogprobs(*(jnp.moveaxis(x, 0, 1).reshape(rows, -1)[:, :positions] for x in stacked))


def _of_chunk(
    hidden_NCD: jax.Array, unembedding_DV: jax.Array, token_NC: jax.Array, temperature: float
) -> TokenLogprobs:
    accumulator = jnp.promote_types(hidden_NCD.dtype, jnp.float32)
    logits_NCV = jnp.einsum("NCD,DV->NCV", hidden_NCD, unembedding_DV, preferred_element_type=accumulator)
    return from_logits(logits_NCV / temperature, token_NC)


def _of_all(
    hidden_KNCD: jax.Array, unembedding_DV: jax.Array, token_KNC: jax.Array, temperature: float
) -> TokenLogprobs:
    of_chunk = lambda chunk: _of_chunk(chunk[0], unembedding_DV, chunk[1], temperature)  # noqa: E731
    return jax.lax.map(of_chunk, (hidden_KNCD, token_KNC))


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _by_chunk(
    hidden_KNCD: jax.Array,
    unembedding_DV: jax.Array,
    token_KNC: jax.Array,
    temperature: float,
    gradient_place: jax.P | None,
) -> TokenLogprobs:
    """K chunks one after the other; logits are computed again for the gradients, which are added up in float32.

    The derivative of a scan would add up the projection's gradient in the dtype of the projection.
    """
    del gradient_place
    return _of_all(hidden_KNCD, unembedding_DV, token_KNC, temperature)


def _by_chunk_forward(
    hidden_KNCD: Any, unembedding_DV: Any, token_KNC: Any, temperature: float, gradient_place: jax.P | None
) -> tuple[TokenLogprobs, Any]:
    del gradient_place
    # A frozen projection has no gradient. What is static is told by the structure of what is kept.
    trained = () if unembedding_DV.perturbed else None
    given = hidden_KNCD.value, unembedding_DV.value, token_KNC.value
    return _of_all(*given, temperature), (*given, trained)


def _by_chunk_backward(
    temperature: float, gradient_place: jax.P | None, kept: Any, cotangent: TokenLogprobs
) -> tuple[jax.Array | None, jax.Array | None, None]:
    hidden_KNCD, unembedding_DV, token_KNC, trained = kept
    if isinstance(cotangent.logprob_NT, SymbolicZero):
        return None, None, None

    def add(total_DV: jax.Array | None, chunk: tuple[jax.Array, ...]) -> tuple[jax.Array | None, jax.Array]:
        hidden_NCD, token_NC, logprob_NC = chunk
        of_chunk = lambda hidden, table: _of_chunk(hidden, table, token_NC, temperature).logprob_NT  # noqa: E731
        if total_DV is None:
            _, pull_back = jax.vjp(lambda hidden: of_chunk(hidden, unembedding_DV), hidden_NCD)
            return None, pull_back(logprob_NC)[0]
        _, pull_back = jax.vjp(of_chunk, hidden_NCD, unembedding_DV)
        hidden_NCD, table_DV = pull_back(logprob_NC)
        return total_DV + table_DV.astype(total_DV.dtype), hidden_NCD

    wide = jnp.promote_types(unembedding_DV.dtype, jnp.float32)
    total_DV = None if trained is None else jnp.zeros_like(unembedding_DV, wide)
    total_DV, hidden_KNCD = jax.lax.scan(add, total_DV, (hidden_KNCD, token_KNC, cotangent.logprob_NT))
    if total_DV is None:
        return hidden_KNCD, None, None
    total_DV = total_DV.astype(unembedding_DV.dtype)
    if gradient_place is None:
        return hidden_KNCD, total_DV, None
    hidden_KNCD, held_DV = jax.lax.optimization_barrier((hidden_KNCD, jax.sharding.reshard(total_DV, gradient_place)))
    return hidden_KNCD, jax.sharding.reshard(held_DV, jax.typeof(unembedding_DV).sharding.spec), None


_by_chunk.defvjp(_by_chunk_forward, _by_chunk_backward, symbolic_zeros=True)
