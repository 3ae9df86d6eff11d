"""One layer of the decoder: what parameters it has, and what it computes from them."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from grpo_jax.models import layers, mla, moe, rotary
from grpo_jax.models.declaration import Declaration, Reader, initializers
from grpo_jax.models.spec import ModelSpec

Attend = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""(scaled query, key, value) of the new positions -> attention output; the caller decides what else is seen."""


class Extras(NamedTuple):
    """What a layer gives besides its output.

    Attributes:
        key: Keys of the new positions, as a cache keeps them.
        value: Values of the new positions, as a cache keeps them.
        routing: What the router decided, or None in a layer without one.
    """

    key: jax.Array
    value: jax.Array
    routing: moe.Routing | None


def declarations(spec: ModelSpec, routed: bool) -> dict[str, Declaration]:
    """Shape, logical axes and initialiser of every parameter of one layer, in the order in which noise is drawn.

    Args:
        spec: The decoder's spec.
        routed: The layer's feed-forward network is the mixture of experts.

    Returns:
        One declaration for each name.
    """
    norm = Declaration((spec.d_model,), (None,), initializers(spec).norm)
    table = {"attention_norm": norm} | (mla.declarations(spec) if spec.latent else _attention(spec))
    if spec.post_norms:
        table["post_attention_norm"] = norm
    table["mlp_norm"] = norm
    table |= moe.declarations(spec) if routed else _feed_forward(spec)
    if spec.post_norms:
        table["post_mlp_norm"] = norm
    return table


def _attention(spec: ModelSpec) -> dict[str, Declaration]:
    D, K, J, C = spec.d_model, spec.num_kv_heads, spec.queries_per_kv_head, spec.head_dim
    init = initializers(spec)
    table = {
        "query": Declaration((D, K, J, C), ("embed", "heads", None, None), init.projection),
        "key": Declaration((D, K, C), ("embed", "heads", None), init.projection),
        "value": Declaration((D, K, C), ("embed", "heads", None), init.projection),
    }
    if spec.qkv_bias:
        table["query_bias"] = Declaration((K, J, C), ("heads", None, None), nn.initializers.zeros)
        table["key_bias"] = Declaration((K, C), ("heads", None), nn.initializers.zeros)
        table["value_bias"] = Declaration((K, C), ("heads", None), nn.initializers.zeros)
    if spec.qk_norm:
        table["query_norm"] = table["key_norm"] = Declaration((C,), (None,), init.norm)
    table["output"] = Declaration((K, J, C, D), ("heads", None, None, "embed"), init.residual)
    return table


def _feed_forward(spec: ModelSpec) -> dict[str, Declaration]:
    init = initializers(spec)
    return {
        "gate": Declaration((spec.d_model, spec.d_ff), ("embed", "mlp"), init.projection),
        "up": Declaration((spec.d_model, spec.d_ff), ("embed", "mlp"), init.projection),
        "down": Declaration((spec.d_ff, spec.d_model), ("mlp", "embed"), init.residual),
    }


class Block(nn.Module):
    """One layer: attention and a gated feed-forward network, each behind RMSNorm and a residual.

    Attributes:
        spec: The decoder's spec.
        routed: The feed-forward network is the mixture of experts.
        absorbed: (latent attention) attend to latent vectors themselves, as decoding with a cache does.
    """

    spec: ModelSpec
    routed: bool = False
    absorbed: bool = False

    @nn.compact
    def parameters(self) -> dict[str, jax.Array]:
        """The layer's parameters, float32 masters or a narrower copy of them."""
        table = declarations(self.spec, self.routed)
        return {name: self.param(name, one.initializer, one.shape, jnp.float32) for name, one in table.items()}

    def __call__(
        self,
        x: jax.Array,
        rotation: tuple[jax.Array, jax.Array],
        attend: Attend,
        adapters: dict[str, layers.Adapter],
        choice: jax.Array | None = None,
    ) -> tuple[jax.Array, Extras]:
        """Returns the layer's output, what a cache keeps of the new positions, and how they were routed."""
        spec, parameters = self.spec, self.parameters()

        def weight(name: str) -> jax.Array:
            return parameters[name].astype(x.dtype)

        def projection(name: str) -> layers.Projection:
            return layers.Projection(weight(name), adapters.get(name))

        def norm(name: str, y: jax.Array) -> jax.Array:
            scale = parameters[name] + spec.norm_offset if spec.norm_offset else parameters[name]
            return layers.rms_norm(y, scale, spec.norm_epsilon)

        read = Reader(spec, weight, projection, norm)
        place = layers.sharding_of(x)
        hidden = layers.whole_over_tensor(norm("attention_norm", x))
        if spec.latent:
            added, key, value = mla.attended(read, hidden, rotation, attend, absorbed=self.absorbed, out_sharding=place)
        else:
            added, key, value = _attended(read, hidden, rotation, attend, place)
        x = x + norm("post_attention_norm", added) if spec.post_norms else x + added
        hidden = layers.whole_over_tensor(norm("mlp_norm", x))
        routing = None
        if self.routed:
            added, routing = moe.feed_forward(spec, parameters, hidden, choice)
            added = added if place is None else jax.sharding.reshard(added, place)
        else:
            matrices = (projection("gate"), projection("up"), projection("down"))
            added = layers.feed_forward(hidden, matrices, spec.activation, place)
        x = x + norm("post_mlp_norm", added) if spec.post_norms else x + added
        return x, Extras(key, value, routing)


def _attended(
    read: Reader,
    hidden: jax.Array,
    rotation: tuple[jax.Array, jax.Array],
    attend: Attend,
    out_sharding: jax.P | None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What attention adds to the residual, and the new keys and values."""
    spec, project = read.spec, layers.project
    query, key, value = (project(hidden, read.projection(name)) for name in ("query", "key", "value"))
    if spec.qkv_bias:
        query = query + read.weight("query_bias")[None, None]
        key = key + read.weight("key_bias")[None, None]
        value = value + read.weight("value_bias")[None, None]
    if spec.qk_norm:
        query, key = read.norm("query_norm", query), read.norm("key_norm", key)
    cosine, sine = rotation
    query = rotary.rotate(query, cosine[..., None, :], sine[..., None, :])
    key = rotary.rotate(key, cosine, sine)
    out = attend(query * spec.query_scale, key, value)
    return project(out, read.projection("output"), inputs=3, out_sharding=out_sharding), key, value
