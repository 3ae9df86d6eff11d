"""The arithmetic of a decoder layer as pure functions."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grpo_jax.models.spec import ModelSpec


def rms_norm(x: Float[Array, "... D"], scale_D: Float[Array, "D"], epsilon: float) -> Float[Array, "... D"]:
    """Divides by the root mean square over the last axis, in float32 or better, and scales.

    Source: Zhang and Sennrich 2019.
    """
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    normalized = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + epsilon)
    scale = scale_D.astype(wide.dtype).reshape((1,) * (x.ndim - 1) + (-1,))
    return (normalized * scale).astype(x.dtype)


def rotary_frequencies(spec: ModelSpec) -> Float[Array, "half"]:
    """Radians per position of each pair of a head's coordinates, after the spec's scaling.

    Source: Su et al. 2021; the ``llama3`` stretch is that of Llama 3.1 (Grattafiori et al. 2024).
    """
    exponent = jnp.arange(0, spec.head_dim, 2, dtype=jnp.float32) / spec.head_dim
    frequency = 1.0 / spec.rope_theta**exponent
    scaling = spec.rope_scaling
    if scaling is None:
        return frequency
    if scaling.kind == "linear":
        return frequency / scaling.factor
    turns = scaling.original_max_positions * frequency / (2 * math.pi)
    keep = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    keep = jnp.clip(keep, 0, 1)
    return keep * frequency + (1 - keep) * frequency / scaling.factor


def rotary_angles(
    position: Int[Array, "..."], spec: ModelSpec
) -> tuple[Float[Array, "... half"], Float[Array, "... half"]]:
    """Cosine and sine of each position's rotation, float32."""
    frequency = rotary_frequencies(spec).reshape((1,) * position.ndim + (-1,))
    angle = position[..., None].astype(jnp.float32) * frequency
    return jnp.cos(angle), jnp.sin(angle)


def rotate(
    x: Float[Array, "*rows heads C"], cosine: Float[Array, "*#rows half"], sine: Float[Array, "*#rows half"]
) -> Float[Array, "*rows heads C"]:
    """Applies rotary embeddings; coordinate i is paired with i + C/2."""
    first, second = jnp.split(x, 2, axis=-1)
    cosine, sine = cosine[..., None, :].astype(x.dtype), sine[..., None, :].astype(x.dtype)
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


def causal_mask(segment_NS: Int[Array, "N S"]) -> Bool[Array, "N S S"]:
    """Which positions each position sees: itself and earlier ones of its own segment; segment 0 is padding.

    Left-padded, right-padded and packed rows are all described this way.
    """
    index = jnp.arange(segment_NS.shape[1])
    same = segment_NS[:, :, None] == segment_NS[:, None, :]
    return same & (segment_NS > 0)[:, None, :] & (index[:, None] >= index[None, :])[None]


def attention(
    query_NSKJC: Float[Array, "N S K J C"],
    key_NTKC: Float[Array, "N T K C"],
    value_NTKC: Float[Array, "N T K C"],
    mask_NST: Bool[Array, "N S T"],
) -> Float[Array, "N S K J C"]:
    """Grouped-query attention, softmax in float32 or better.

    What a position gets that sees nothing (padding) is finite and has no meaning.
    """
    scale = query_NSKJC.shape[-1] ** -0.5
    wide = jnp.promote_types(query_NSKJC.dtype, jnp.float32)
    score = jnp.einsum("NSKJC,NTKC->NKJST", query_NSKJC * scale, key_NTKC, preferred_element_type=wide)
    weight = jax.nn.softmax(jnp.where(mask_NST[:, None, None], score, jnp.finfo(wide).min), axis=-1)
    return jnp.einsum("NKJST,NTKC->NSKJC", weight.astype(value_NTKC.dtype), value_NTKC)


def swiglu(gate: Float[Array, "..."], up: Float[Array, "..."]) -> Float[Array, "..."]:
    """SiLU of the gate times the other branch. Source: Shazeer 2020."""
    return jax.nn.silu(gate) * up


def decode_attention(
    query_BGKJC: Float[Array, "B G K J C"],
    prompt: tuple[Float[Array, "B P K C"], Float[Array, "B P K C"], Bool[Array, "B P"]],
    own: tuple[Float[Array, "B G K T C"], Float[Array, "B G K T C"], Bool[Array, "T"]],
    new: tuple[Float[Array, "B G K C"], Float[Array, "B G K C"]],
) -> Float[Array, "B G K J C"]:
    """Attention of one new token per completion over its prompt, its earlier tokens and itself.

    One softmax over three pieces, so that the prompt's keys and values are held and read once per group.

    Args:
        query_BGKJC: Queries of the new tokens.
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
    query = query_BGKJC * query_BGKJC.shape[-1] ** -0.5
    lowest = jnp.finfo(wide).min
    prompt_score = jnp.einsum("BGKJC,BPKC->BGKJP", query, prompt_key, preferred_element_type=wide)
    prompt_score = jnp.where(prompt_mask_BP[:, None, None, None, :], prompt_score, lowest)
    own_score = jnp.einsum("BGKJC,BGKTC->BGKJT", query, own_key, preferred_element_type=wide)
    own_score = jnp.where(own_mask_T[None, None, None, None, :], own_score, lowest)
    new_score = jnp.sum(query * new_key[:, :, :, None], axis=-1, keepdims=True).astype(wide)
    top = jnp.maximum(jnp.max(prompt_score, axis=-1, keepdims=True), jnp.max(own_score, axis=-1, keepdims=True))
    top = jnp.maximum(top, new_score)
    prompt_weight, own_weight = jnp.exp(prompt_score - top), jnp.exp(own_score - top)
    new_weight = jnp.exp(new_score - top)
    total = jnp.sum(prompt_weight, axis=-1, keepdims=True) + jnp.sum(own_weight, axis=-1, keepdims=True) + new_weight
    dtype = query.dtype
    output = jnp.einsum("BGKJP,BPKC->BGKJC", (prompt_weight / total).astype(dtype), prompt_value)
    output = output + jnp.einsum("BGKJT,BGKTC->BGKJC", (own_weight / total).astype(dtype), own_value)
    return output + (new_weight / total).astype(dtype) * new_value[:, :, :, None]
