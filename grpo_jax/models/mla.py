"""Latent attention: keys and values of all heads come from one small vector per token.

Two orders of the same products. Whole rows make every head's keys and values first, which costs least per pair of
positions. Decoding attends to the cached vectors themselves (the matrix that would make the keys is applied to the
query, the one that would make the values to the result), so a token's cache is that vector and one rotated key.

Source: DeepSeek-V2 (2024), section 2.1.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from grpo_jax.models import layers, rotary
from grpo_jax.models.declaration import Declaration, Reader, initializers
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import rules


def declarations(spec: ModelSpec) -> dict[str, Declaration]:
    """The parameters of latent attention; the rotated coordinates are the last ones of queries and of ``latent_down``.

    Args:
        spec: A spec with ``latent``.

    Returns:
        One declaration for each name.
    """
    latent = spec.latent
    assert latent is not None
    init, ones = initializers(spec), nn.initializers.ones
    D, H, C = spec.d_model, spec.num_heads, spec.head_dim
    table = {}
    if latent.query_rank:
        table["query_down"] = Declaration((D, latent.query_rank), ("embed", None), init.projection)
        table["query_latent_norm"] = Declaration((latent.query_rank,), (None,), ones)
        table["query_up"] = Declaration((latent.query_rank, H, C), ("embed", "heads", None), init.projection)
    else:
        table["query"] = Declaration((D, H, C), ("embed", "heads", None), init.projection)
    table["latent_down"] = Declaration((D, latent.latent_dim + latent.rotary_dim), ("embed", None), init.projection)
    table["latent_norm"] = Declaration((latent.latent_dim,), (None,), ones)
    widths = C - latent.rotary_dim + latent.value_dim
    table["latent_up"] = Declaration((latent.latent_dim, H, widths), ("embed", "heads", None), init.projection)
    table["output"] = Declaration((H, latent.value_dim, D), ("heads", None, "embed"), init.residual)
    return table


def attended(
    read: Reader,
    hidden: jax.Array,
    rotation: tuple[jax.Array, jax.Array],
    attend: Callable[[jax.Array, jax.Array, jax.Array], jax.Array],
    *,
    absorbed: bool,
    out_sharding: jax.P | None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What attention adds to the residual, and what the cache keeps.

    Args:
        read: The layer's parameters.
        hidden: Normalised hidden states ``[rows, positions, D]``.
        rotation: Cosine and sine of the positions.
        attend: From scaled queries, keys and values of these positions to attention output.
        absorbed: Attend to latent vectors: keys and values then have one head, that of the cache.
        out_sharding: Where what is added to the residual lives.

    Returns:
        The sum's new term, the cached keys ``[..., 1, latent + rotary]`` and values of width 0: they are the first
        coordinates of the keys.
    """
    spec, latent = read.spec, read.spec.latent
    assert latent is not None
    plain_dim, latent_dim = spec.head_dim - latent.rotary_dim, latent.latent_dim
    cosine, sine = rotation
    if latent.query_rank:
        down = read.norm("query_latent_norm", jnp.einsum("...D,DR->...R", hidden, read.weight("query_down")))
        query = jnp.einsum("...R,RHC->...HC", down, read.weight("query_up"))
    else:
        query = jnp.einsum("...D,DHC->...HC", hidden, read.weight("query"))
    query = query * spec.query_scale
    plain_query, turned_query = query[..., :plain_dim], rotary.rotate(query[..., plain_dim:], cosine, sine)
    down = jnp.einsum("...D,DR->...R", hidden, read.weight("latent_down"))
    vector = read.norm("latent_norm", down[..., :latent_dim])[..., None, :]
    turned_key = rotary.rotate(down[..., None, latent_dim:], cosine, sine)
    cached = jnp.concatenate([vector, turned_key], axis=-1)
    up = read.weight("latent_up")
    if absorbed:
        query = jnp.einsum("...HC,RHC->...HR", plain_query, up[..., :plain_dim])
        query = jnp.concatenate([query, turned_query], axis=-1)[..., None, :, :]
        out = attend(query, cached, vector)[..., 0, :, :]
        out = jnp.einsum("...HR,RHC->...HC", out, up[..., plain_dim:])
    else:
        both = jnp.einsum("...R,RHC->...HC", vector[..., 0, :], up)
        shared = jnp.broadcast_to(turned_key, (*both.shape[:-1], latent.rotary_dim))
        shared = rules.shard(shared, rules.BATCH, rules.POSITIONS, "heads", None)
        key = jnp.concatenate([both[..., :plain_dim], shared], axis=-1)
        query = jnp.concatenate([plain_query, turned_query], axis=-1)[..., None, :]
        out = attend(query, key, both[..., plain_dim:])[..., 0, :]
    added = layers.project(out, layers.Projection(read.weight("output")), inputs=2, out_sharding=out_sharding)
    return added, cached, cached[..., :0]
