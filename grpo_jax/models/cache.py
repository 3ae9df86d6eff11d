"""Keys and values that decoding keeps, their positions in parts over the mesh as those of rows are."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Integer

from grpo_jax.models import moe
from grpo_jax.models.block import Extras
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import rules


class PromptCache(NamedTuple):
    """Keys and values of the prompts, held once per prompt and shared by its completions.

    Attributes:
        key_LBPKC: Keys.
        value_LBPKC: Values; of width 0 where they are the first coordinates of the keys.
        mask_BP: False at padding.
        length_B: Prompt lengths in tokens.
        choice_LBPA: Experts that each token visited in the layers that have some, or None where none are recorded.
    """

    key_LBPKC: Float[Array, "L B P K C"]
    value_LBPKC: Float[Array, "L B P K Cv"]
    mask_BP: Bool[Array, "B P"]
    length_B: Int[Array, "B"]
    choice_LBPA: Integer[Array, "Lr B P A"] | None = None


class CompletionCache(NamedTuple):
    """Keys and values of the completions so far.

    Attributes:
        key_LBGKTC: Keys; positions from ``step`` on are not written yet.
        value_LBGKTC: Values; of width 0 where they are the first coordinates of the keys.
        choice_LBGTA: Experts that each token visited in the layers that have some, or None where none are recorded.
    """

    key_LBGKTC: Float[Array, "L B G K T C"]
    value_LBGKTC: Float[Array, "L B G K T Cv"]
    choice_LBGTA: Integer[Array, "Lr B G T A"] | None = None


def empty_cache(
    spec: ModelSpec, prompts: int, completions: int, tokens: int, *, record_experts: bool = False
) -> CompletionCache:
    """Room for the keys and values of completions, on the mesh in use: for as many tokens as divide over it.

    Args:
        spec: The policy's spec.
        prompts: B.
        completions: G, for each prompt.
        tokens: T, for each completion, at least.
        record_experts: Make room for the experts that tokens visit.

    Returns:
        The cache before the first token.

    Raises:
        ValueError: if the prompts do not divide over the mesh.
    """
    heads, *widths = spec.cache_shape
    tokens += -tokens % rules.shards(rules.POSITIONS)
    # The one head of a latent cache is whole on every device.
    axes = ("layers", rules.BATCH, None, None if spec.latent else "heads", rules.POSITIONS, None)
    shape = (spec.num_layers, prompts, completions, heads, tokens)
    rules.check_cut("cache of completions", (*shape, widths[0]), axes)
    key, value = (rules.shard(jnp.zeros((*shape, width), spec.compute_dtype), *axes) for width in widths)
    if not record_experts:
        return CompletionCache(key, value)
    experts = spec.experts
    assert experts is not None
    choice = jnp.zeros((spec.routed_layers, prompts, completions, tokens, experts.per_token), moe.choice_dtype(experts))
    return CompletionCache(key, value, rules.shard(choice, None, rules.BATCH, None, rules.POSITIONS, None))


def written(cache: jax.Array, new: jax.Array, step: Int[Array, ""], *, axis: int) -> jax.Array:
    """Writes one token of every completion, in place where the cache's old value is not used again.

    Args:
        cache: One array of a ``CompletionCache``.
        new: Its value for these tokens: the same axes without that of the tokens.
        step: Index of the tokens.
        axis: That of the tokens.

    Returns:
        The cache.
    """
    new = jnp.expand_dims(new, axis)
    if not rules.has_mesh():
        return jax.lax.dynamic_update_slice_in_dim(cache, new, step, axis)

    def write(cache: jax.Array, new: jax.Array, step: jax.Array) -> jax.Array:
        # Of the devices that share the tokens one writes; the others write what is there already.
        size = cache.shape[axis]
        own = step - size * jax.lax.axis_index(rules.RULES[rules.POSITIONS])
        index = jnp.clip(own, 0, size - 1)
        there = jax.lax.dynamic_slice_in_dim(cache, index, 1, axis)
        return jax.lax.dynamic_update_slice_in_dim(cache, jnp.where(own == index, new, there), index, axis)

    place = jax.typeof(cache).sharding.spec
    return jax.shard_map(write, out_specs=place)(cache, new, step)


def kept_of(spec: ModelSpec, record_experts: bool) -> Callable[[Extras], tuple[jax.Array, jax.Array, jax.Array | None]]:
    """What decoding keeps of a layer.

    Args:
        spec: The policy's spec.
        record_experts: Keep the chosen experts too, of a layer that has some.

    Returns:
        From a layer's extras to its keys, its values, and the chosen experts or None.
    """

    def keep(extras: Extras) -> tuple[jax.Array, jax.Array, jax.Array | None]:
        if extras.routing is None or not record_experts:
            return extras.key, extras.value, None
        assert spec.experts is not None
        return extras.key, extras.value, extras.routing.choice.astype(moe.choice_dtype(spec.experts))

    return keep
