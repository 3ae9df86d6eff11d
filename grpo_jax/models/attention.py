"""Attention over whole rows, block by block, and over caches."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grpo_jax.models import fused_attention, layers
from grpo_jax.parallel import rules

SPANS = 8
"""A long row's queries are cut into at most so many spans, each of which reads the keys up to its own end."""


def within_window(
    distance: Int[Array, "..."], mask: Bool[Array, "..."], window: int | Int[Array, ""]
) -> Bool[Array, "..."]:
    """Narrows a mask to the nearest positions.

    Args:
        distance: Positions between query and key, of a shape that broadcasts to the mask's.
        mask: What is seen without a window.
        window: Positions that are seen, the query's own included; 0 for all.

    Returns:
        The narrower mask.
    """
    if isinstance(window, int):
        return mask & (distance < window) if window else mask
    return mask & ((distance < window) | (window == 0))


def row_attention(
    query_NSKJC: Float[Array, "N S K J C"],
    key_NSKC: Float[Array, "N S K C"],
    value_NSKC: Float[Array, "N S K Cv"],
    segment_NS: Int[Array, "N S"],
    *,
    window: int | Int[Array, ""] = 0,
    block_tokens: int,
    kernels: bool = True,
    packed: bool = True,
) -> Float[Array, "N S K J Cv"]:
    """Causal grouped-query attention inside the segments of whole rows, softmax in float32 or better.

    Exact. Scores exist for one block of queries at a time, in the backward pass too, which computes them again; so
    memory grows with the row's length and not with its square.

    Args:
        query_NSKJC: Queries, scaled already.
        key_NSKC: Keys.
        value_NSKC: Values.
        segment_NS: Sequence that a token belongs to, counted from 1; 0 is padding. Left-padded, right-padded and
            packed rows are all described this way.
        window: Nearest positions that are seen, the query's own included; 0 for all.
        block_tokens: Queries in a block; shorter rows are one block.
        kernels: Leave the work to the platform's own kernel where there is one, see ``fused_attention``.
        packed: Rows may hold several sequences; where they do not, more kernels fit.

    Returns:
        Attention output; what a position gets that sees nothing (padding) is finite and has no meaning.
    """
    kernel = fused_attention.kernel_for(query_NSKJC, value_NSKC, window, packed=packed) if kernels else None
    if kernel is not None:
        return fused_attention.by_kernel(kernel, query_NSKJC, key_NSKC, value_NSKC, segment_NS)
    return _blockwise(query_NSKJC, key_NSKC, value_NSKC, segment_NS, window=window, block_tokens=block_tokens)


def _blockwise(
    query_NSKJC: jax.Array,
    key_NSKC: jax.Array,
    value_NSKC: jax.Array,
    segment_NS: jax.Array,
    *,
    window: int | jax.Array,
    block_tokens: int,
) -> jax.Array:
    N, S = segment_NS.shape
    parts = rules.shards(rules.POSITIONS)
    size = -(-min(block_tokens, S) // parts) * parts
    blocks = -(-S // size)
    by_block = functools.partial(_by_block, blocks=blocks, size=size)
    # Keys and values are whole on each device. Of every block of queries each has a part, so all have the same work
    # whatever a causal mask leaves of it.
    heads = ("heads", None)
    key_NSKC, value_NSKC = (rules.shard(array, rules.BATCH, None, *heads) for array in (key_NSKC, value_NSKC))
    query_NSKJC = rules.shard(query_NSKJC, rules.BATCH, None, *heads, None)
    segment_NS = rules.shard(segment_NS, rules.BATCH, None)
    queries = rules.shard(by_block(query_NSKJC), None, rules.BATCH, rules.POSITIONS, *heads, None)
    segments = rules.shard(by_block(segment_NS), None, rules.BATCH, rules.POSITIONS)
    spans, per_span = [], -(-blocks // SPANS)
    for first in range(0, blocks, per_span):
        end = min(first + per_span, blocks)
        seen = min(end * size, S)
        attend = functools.partial(
            _block_attention, key_NSKC[:, :seen], value_NSKC[:, :seen], segment_NS[:, :seen], window
        )
        if blocks == 1:
            spans.append(attend((queries[0], segments[0], jnp.int32(0)))[None])
            continue
        starts = jnp.arange(first, end) * size
        spans.append(jax.lax.map(jax.checkpoint(attend), (queries[first:end], segments[first:end], starts)))
    output = rules.shard(jnp.concatenate(spans), None, rules.BATCH, None, *heads, None)
    output = jnp.moveaxis(output, 0, 1).reshape(N, blocks * size, *output.shape[3:])[:, :S]
    return rules.shard(output, rules.BATCH, rules.POSITIONS, *heads, None)


def _by_block(array: jax.Array, *, blocks: int, size: int) -> jax.Array:
    """Cuts the positions into blocks, the last of them filled up with zeros; blocks come first."""
    missing = blocks * size - array.shape[1]
    if missing:
        array = jnp.pad(array, [(0, 0), (0, missing)] + [(0, 0)] * (array.ndim - 2))
    return jnp.moveaxis(array.reshape(array.shape[0], blocks, size, *array.shape[2:]), 1, 0)


def _block_attention(
    key_NTKC: jax.Array,
    value_NTKC: jax.Array,
    segment_NT: jax.Array,
    window: int | jax.Array,
    block: tuple[jax.Array, jax.Array, jax.Array],
) -> jax.Array:
    query_NSKJC, segment_NS, start = block
    distance_1ST = (start + jnp.arange(segment_NS.shape[1])[:, None] - jnp.arange(segment_NT.shape[1])[None])[None]
    same_NST = segment_NS[:, :, None] == segment_NT[:, None, :]
    seen_NST = within_window(distance_1ST, same_NST & (segment_NT > 0)[:, None, :] & (distance_1ST >= 0), window)
    wide = jnp.promote_types(query_NSKJC.dtype, jnp.float32)
    score = jnp.einsum("NSKJC,NTKC->NKJST", query_NSKJC, key_NTKC, preferred_element_type=wide)
    weight = jax.nn.softmax(jnp.where(seen_NST[:, None, None], score, jnp.finfo(wide).min), axis=-1)
    return jnp.einsum("NKJST,NTKC->NSKJC", weight.astype(value_NTKC.dtype), value_NTKC)


def decode_attention(
    query_BGKJC: Float[Array, "B G K J C"],
    prompt: tuple[Float[Array, "B P K C"], Float[Array, "B P K Cv"], Bool[Array, "B P"]],
    own: tuple[Float[Array, "B G K T C"], Float[Array, "B G K T Cv"], Bool[Array, "T"]],
    new: tuple[Float[Array, "B G K C"], Float[Array, "B G K Cv"]],
) -> Float[Array, "B G K J Cv"]:
    """Attention of one new token per completion over its prompt, its earlier tokens and itself.

    One softmax over three pieces, so that the prompt's keys and values are held and read once per group.

    Args:
        query_BGKJC: Queries of the new tokens, scaled already.
        prompt: Keys, values and mask of the prompts.
        own: Keys, values and mask of the completions so far; the new tokens are not among them.
        new: Keys and values of the new tokens.

    Returns:
        Attention output.
    """
    # Positions of caches may lie in parts: maxima and sums over them are then taken over devices too.
    place = layers.sharding_of(query_BGKJC)
    prompt_key, prompt_value, prompt_mask_BP = prompt
    own_key, own_value, own_mask_T = own
    new_key, new_value = new
    wide = jnp.promote_types(query_BGKJC.dtype, jnp.float32)
    lowest = jnp.finfo(wide).min
    prompt_score = jnp.einsum("BGKJC,BPKC->BGKJP", query_BGKJC, prompt_key, preferred_element_type=wide)
    prompt_score = jnp.where(prompt_mask_BP[:, None, None, None, :], prompt_score, lowest)
    own_score = jnp.einsum("BGKJC,BGKTC->BGKJT", query_BGKJC, own_key, preferred_element_type=wide)
    own_score = jnp.where(own_mask_T[None, None, None, None, :], own_score, lowest)
    new_score = jnp.sum(query_BGKJC * new_key[:, :, :, None], axis=-1, keepdims=True).astype(wide)
    top = jnp.maximum(jnp.max(prompt_score, axis=-1, keepdims=True), jnp.max(own_score, axis=-1, keepdims=True))
    top = jnp.maximum(top, new_score)
    prompt_weight, own_weight = jnp.exp(prompt_score - top), jnp.exp(own_score - top)
    new_weight = jnp.exp(new_score - top)
    total = jnp.sum(prompt_weight, axis=-1, keepdims=True) + jnp.sum(own_weight, axis=-1, keepdims=True) + new_weight
    dtype = query_BGKJC.dtype
    output = jnp.einsum("BGKJP,BPKC->BGKJC", (prompt_weight / total).astype(dtype), prompt_value, out_sharding=place)
    own_output = jnp.einsum("BGKJT,BGKTC->BGKJC", (own_weight / total).astype(dtype), own_value, out_sharding=place)
    output = output + own_output
    return output + (new_weight / total).astype(dtype) * new_value[:, :, :, None]
