"""The arithmetic of a decoder layer as pure functions."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grpo_jax.parallel import rules


class Adapter(NamedTuple):
    """A low-rank correction of a matrix.

    Attributes:
        a: The matrix's input axes, then R.
        b: R, then the matrix's output axes.
        scale: What the product is multiplied by.
        dropout: Chance that a coordinate of the input is left out.
        key_N: One PRNG key for each row, or None where nothing is left out.
    """

    a: Float[Array, "..."]
    b: Float[Array, "..."]
    scale: float
    dropout: float = 0.0
    key_N: Any = None


class Projection(NamedTuple):
    """A matrix of a layer in the compute dtype, with what is learned beside it.

    Attributes:
        weight: Input axes, then output axes.
        adapter: Its low-rank correction, or None.
    """

    weight: Float[Array, "..."]
    adapter: Adapter | None = None


def project(
    x: Float[Array, "N S ..."], projection: Projection, *, inputs: int = 1, out_sharding: jax.P | None = None
) -> Float[Array, "N S ..."]:
    """Multiplies the last axes by a matrix, and by its correction where there is one.

    Args:
        x: Rows of positions.
        projection: The matrix.
        inputs: How many of its axes are summed over: the last ones of ``x``.
        out_sharding: Where the result lives; needed where an axis that is summed over is sharded.

    Returns:
        The product, with the matrix's output axes last.
    """
    added = _contract(x, projection.weight, inputs, out_sharding)
    adapter = projection.adapter
    if adapter is None:
        return added
    whole = rules.sharding(rules.BATCH, *(None,) * (x.ndim - inputs))
    low = _contract(_thinned(x, adapter), adapter.a.astype(x.dtype), inputs, whole)
    return added + _contract(low, adapter.scale * adapter.b.astype(x.dtype), 1, out_sharding)


def _contract(x: jax.Array, weight: jax.Array, inputs: int, out_sharding: jax.P | None) -> jax.Array:
    axes = "DEFGHI"[: weight.ndim]
    equation = f"...{axes[:inputs]},{axes}->...{axes[inputs:]}"
    return jnp.einsum(equation, x, weight, out_sharding=out_sharding)


def _thinned(x: jax.Array, adapter: Adapter) -> jax.Array:
    """Leaves coordinates out, by a row's own noise: the same however rows are batched and sharded."""
    if adapter.key_N is None:
        return x
    kept = 1 - adapter.dropout
    keep = jax.vmap(lambda key: jax.random.bernoulli(key, kept, x.shape[1:]))(adapter.key_N)
    return jnp.where(keep, x / kept, 0)


def rms_norm(x: Float[Array, "... D"], scale_D: Float[Array, "D"], epsilon: float) -> Float[Array, "... D"]:
    """Divides by the root mean square over the last axis, in float32 or better, and scales.

    Source: Zhang and Sennrich 2019.
    """
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    normalized = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + epsilon)
    scale = scale_D.astype(wide.dtype).reshape((1,) * (x.ndim - 1) + (-1,))
    return (normalized * scale).astype(x.dtype)


def gated(gate: Float[Array, "..."], up: Float[Array, "..."], activation: str = "silu") -> Float[Array, "..."]:
    """The gate's nonlinearity times the other branch.

    Args:
        gate: What goes through the nonlinearity.
        up: What it gates.
        activation: ``silu``, or ``gelu_tanh``, the approximation of GELU by a hyperbolic tangent.

    Returns:
        Their product.

    Source: Shazeer 2020.
    """
    if activation == "silu":
        return jax.nn.silu(gate) * up
    return jax.nn.gelu(gate, approximate=True) * up


def residual_sharding(x: Float[Array, "N S D"]) -> jax.P | None:
    """Where what is added to the residual lives. Its axes are rows and positions, or prompts and completions."""
    return rules.sharding(rules.BATCH, *(None,) * (x.ndim - 1))


def feed_forward(
    x: Float[Array, "N S D"],
    projections: tuple[Projection, Projection, Projection],
    activation: str,
) -> Float[Array, "N S D"]:
    """A gated feed-forward network.

    Args:
        x: Normalised hidden states.
        projections: Gate, up and down.
        activation: See ``gated``.

    Returns:
        What is added to the residual.
    """
    gate, up, down = projections
    hidden = gated(project(x, gate), project(x, up), activation)
    return project(hidden, down, out_sharding=residual_sharding(x))


def causal_mask(segment_NS: Int[Array, "N S"]) -> Bool[Array, "N S S"]:
    """Which positions each position sees: itself and earlier ones of its own segment; segment 0 is padding.

    Left-padded, right-padded and packed rows are all described this way.
    """
    index = jnp.arange(segment_NS.shape[1])
    same = segment_NS[:, :, None] == segment_NS[:, None, :]
    return same & (segment_NS > 0)[:, None, :] & (index[:, None] >= index[None, :])[None]


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


def attention(
    query_NSKJC: Float[Array, "N S K J C"],
    key_NTKC: Float[Array, "N T K C"],
    value_NTKC: Float[Array, "N T K Cv"],
    mask_NST: Bool[Array, "N S T"],
) -> Float[Array, "N S K J Cv"]:
    """Grouped-query attention of queries that are scaled already, softmax in float32 or better.

    What a position gets that sees nothing (padding) is finite and has no meaning.
    """
    wide = jnp.promote_types(query_NSKJC.dtype, jnp.float32)
    score = jnp.einsum("NSKJC,NTKC->NKJST", query_NSKJC, key_NTKC, preferred_element_type=wide)
    weight = jax.nn.softmax(jnp.where(mask_NST[:, None, None], score, jnp.finfo(wide).min), axis=-1)
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
    output = jnp.einsum("BGKJP,BPKC->BGKJC", (prompt_weight / total).astype(dtype), prompt_value)
    output = output + jnp.einsum("BGKJT,BGKTC->BGKJC", (own_weight / total).astype(dtype), own_value)
    return output + (new_weight / total).astype(dtype) * new_value[:, :, :, None]
