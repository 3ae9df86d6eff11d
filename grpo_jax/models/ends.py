"""What stands before a decoder's first layer and behind its last: embedding, final norm, output projection."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from grpo_jax.models import layers
from grpo_jax.models.parameters import Parameters
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import rules


def embed(params: Parameters, spec: ModelSpec, token: jax.Array, positions: str | None = None) -> jax.Array:
    """Embeddings of tokens, each looked up where its part of the table is.

    Args:
        params: From ``init_params``.
        spec: Their spec.
        token: Ids; the first axis is that of the batch.
        positions: Logical axis of the second: ``rules.RESIDUAL`` for whole rows.

    Returns:
        Embeddings.
    """
    table_VD = params["embedding"].astype(spec.compute_dtype)
    if rules.has_mesh():
        inside = rules.POSITIONS if positions else None
        places = (rules.partition(("vocab", None)), rules.partition((rules.BATCH, inside)))
        out = rules.partition((rules.BATCH, positions, None))
        look_up = functools.partial(_looked_up, scattered=positions is not None)
        x = jax.shard_map(look_up, in_specs=places, out_specs=out)(rules.shard(table_VD, "vocab", None), token)
    else:
        x = table_VD[token]
    return x if spec.embedding_scale == 1 else x * jnp.asarray(spec.embedding_scale, x.dtype)


def _looked_up(table_VD: jax.Array, token: jax.Array, *, scattered: bool) -> jax.Array:
    """The sum over devices of what each has: one row for each token, zeros elsewhere."""
    index = token - jax.lax.axis_index("tensor") * len(table_VD)
    held = (index >= 0) & (index < len(table_VD))
    x = jnp.where(held[..., None], table_VD[jnp.clip(index, 0, len(table_VD) - 1)], 0)
    return (
        jax.lax.psum_scatter(x, "tensor", scatter_dimension=1, tiled=True) if scattered else jax.lax.psum(x, "tensor")
    )


def final_norm(params: Parameters, spec: ModelSpec, x: jax.Array) -> jax.Array:
    """The norm behind the last layer."""
    scale_D = params["final_norm"] + spec.norm_offset if spec.norm_offset else params["final_norm"]
    return layers.rms_norm(x, scale_D, spec.norm_epsilon)


def unembedding(params: Parameters, spec: ModelSpec) -> Float[Array, "D V"]:
    """The output projection in the compute dtype, gathered over ``fsdp``."""
    table_DV = params["embedding"].T if spec.tie_embeddings else params["unembedding"]
    return rules.shard(table_DV.astype(spec.compute_dtype), None, "vocab")
