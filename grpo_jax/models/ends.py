"""What stands before a decoder's first layer and behind its last: embedding, final norm, output projection."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from grpo_jax.algorithms import logprobs
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
    look_up = _looked_up if positions is None else _learned
    x: Any = look_up(params["embedding"], token, spec.compute_dtype, positions)
    return x if spec.embedding_scale == 1 else x * jnp.asarray(spec.embedding_scale, x.dtype)


def _looked_up(table_VD: jax.Array, token: jax.Array, dtype: Any, positions: str | None) -> jax.Array:
    table_VD = table_VD.astype(dtype)
    if not rules.has_mesh():
        return table_VD[token]
    ids, rows = _places(positions)
    held = functools.partial(_held, scattered=positions is not None)
    table_VD = rules.shard(table_VD, "vocab", None)
    return jax.shard_map(held, in_specs=(rules.partition(("vocab", None)), ids), out_specs=rows)(table_VD, token)


def _places(positions: str | None) -> tuple[jax.P, jax.P]:
    """Where token ids are, and their embeddings."""
    ids = (rules.BATCH, rules.POSITIONS if positions else None)
    return rules.partition(ids), rules.partition((rules.BATCH, positions, None))


def _held(table_VD: jax.Array, token: jax.Array, *, scattered: bool) -> jax.Array:
    """The sum over devices of what each has: one row for each token, zeros elsewhere."""
    index = token - jax.lax.axis_index("tensor") * len(table_VD)
    held = (index >= 0) & (index < len(table_VD))
    x = jnp.where(held[..., None], table_VD[jnp.clip(index, 0, len(table_VD) - 1)], 0)
    return (
        jax.lax.psum_scatter(x, "tensor", scatter_dimension=1, tiled=True) if scattered else jax.lax.psum(x, "tensor")
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _learned(table_VD: jax.Array, token: jax.Array, dtype: Any, positions: str) -> jax.Array:
    """As ``_looked_up``; a row's gradients, one for each place where its token stands, are added up in float32.

    In bfloat16 the last ones of a frequent token would change nothing.
    """
    return _looked_up(table_VD, token, dtype, positions)


def _learned_forward(
    table_VD: jax.Array, token: jax.Array, dtype: Any, positions: str
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _looked_up(table_VD, token, dtype, positions), (table_VD, token)


def _learned_backward(
    dtype: Any, positions: str, kept: tuple[jax.Array, jax.Array], cotangent: jax.Array
) -> tuple[jax.Array, None]:
    del dtype
    table_VD, token = kept
    wide = jnp.promote_types(table_VD.dtype, jnp.float32)
    # The zeros wait for the cotangent: otherwise they may lie there while layers are differentiated.
    zero, cotangent = jax.lax.optimization_barrier((jnp.zeros((), wide), cotangent))
    if not rules.has_mesh():
        total_VD = _added(zero, token, cotangent, len(table_VD))
    else:
        of_device = functools.partial(_added_by_device, rows=len(table_VD) // rules.shards("vocab"))
        places = (jax.P(), *_places(positions))
        out = rules.partition(("vocab", "embed"))
        total_VD = jax.shard_map(of_device, in_specs=places, out_specs=out)(zero, token, cotangent)
        total_VD = jax.sharding.reshard(total_VD, jax.typeof(table_VD).sharding.spec)
    return total_VD.astype(table_VD.dtype), None


def _added_by_device(zero: jax.Array, token: jax.Array, cotangent: jax.Array, *, rows: int) -> jax.Array:
    """A device's part of the table's gradient: of all tokens, for some coordinates of the rows that it has."""
    cotangent = jax.lax.all_gather(cotangent, "tensor", axis=1, tiled=True)
    total_VD = _added(zero, token - jax.lax.axis_index("tensor") * rows, cotangent, rows)
    total_VD = jax.lax.psum(total_VD, "data")
    return jax.lax.psum_scatter(total_VD, rules.RULES["embed"], scatter_dimension=1, tiled=True)


def _added(zero: jax.Array, index: jax.Array, cotangent: jax.Array, rows: int) -> jax.Array:
    # Rows that other devices have are dropped; an index below 0 would count from the end.
    index = jnp.where(index < 0, rows, index)
    return jnp.broadcast_to(zero, (rows, cotangent.shape[-1])).at[index].add(cotangent.astype(zero.dtype), mode="drop")


_learned.defvjp(_learned_forward, _learned_backward)


def final_norm(params: Parameters, spec: ModelSpec, x: jax.Array) -> jax.Array:
    """The norm behind the last layer."""
    scale_D = params["final_norm"] + spec.norm_offset if spec.norm_offset else params["final_norm"]
    return layers.rms_norm(x, scale_D, spec.norm_epsilon)


def unembedding(params: Parameters, spec: ModelSpec) -> Float[Array, "D V"]:
    """The output projection in the compute dtype, gathered over ``fsdp``."""
    table_DV = params["embedding"].T if spec.tie_embeddings else params["unembedding"]
    return rules.shard(table_DV.astype(spec.compute_dtype), None, "vocab")


def token_logprobs(
    params: Parameters,
    spec: ModelSpec,
    hidden_NTD: Float[Array, "N T D"],
    token_NT: Int[Array, "N T"],
    temperature: float,
) -> logprobs.TokenLogprobs:
    """Log-probabilities of given tokens, and entropies, from hidden states at the positions that predict them.

    Args:
        params: From ``init_params``.
        spec: Their spec.
        hidden_NTD: Final hidden states.
        token_NT: Token ids.
        temperature: Logits are divided by it.

    Returns:
        See ``logprobs.chunked``, which takes ``spec.logprob_chunk_tokens`` at a time.
    """
    return logprobs.chunked(
        hidden_NTD,
        unembedding(params, spec),
        token_NT,
        temperature=temperature,
        chunk_tokens=spec.logprob_chunk_tokens,
        gradient_place=rules.sharding("embed", "vocab"),
    )
