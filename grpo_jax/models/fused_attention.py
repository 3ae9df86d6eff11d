"""Attention over whole rows by the kernels of a platform: cuDNN's on NVIDIA GPUs, Pallas' splash attention on TPUs.

Both are exact and keep no scores. They are chosen where the mesh in use is of their platform and they can do what is
asked; everything else is ``attention.row_attention``'s blockwise form.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from grpo_jax.parallel import rules

KERNEL_DTYPES = ("bfloat16", "float16")
"""What cuDNN's kernel computes in."""

LARGEST_HEAD = 128
"""Coordinates of a head, on every GPU that has the kernel."""

TILE_TOKENS = 128
"""Positions of rows are filled up to a multiple of it."""

TPU_BLOCK_TOKENS = 512
"""Queries and keys of a block of the TPU's kernel, in rows that have as many."""

Kernel = Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]
"""(query_NSKJC, key_NSKC, value_NSKC, segment_NS) -> attention output; arrays are a device's own."""


def kernel_for(
    query_NSKJC: jax.Array, value_NSKC: jax.Array, window: int | jax.Array, *, packed: bool
) -> Kernel | None:
    """The kernel that computes causal attention on the platform of the mesh in use.

    Args:
        query_NSKJC: Queries, for their shape and dtype.
        value_NSKC: Values.
        window: Nearest positions that are seen; 0 for all.
        packed: Rows hold several sequences.

    Returns:
        The kernel, or None where there is none: on other platforms, for rows that are shared along ``context``, windows
        that differ from layer to layer and heads of other sizes; on GPUs also for float32 and packed rows.
    """
    head, platform = query_NSKJC.shape[-1], rules.platform()
    if head != value_NSKC.shape[-1] or not isinstance(window, int) or rules.shards(rules.POSITIONS) > 1:
        return None
    if platform in ("cuda", "gpu") and not packed:
        fits = query_NSKJC.dtype.name in KERNEL_DTYPES and head <= LARGEST_HEAD and head % 8 == 0
        return functools.partial(cudnn_attention, window=window, implementation="cudnn") if fits else None
    if platform == "tpu" and head % TILE_TOKENS == 0:
        return functools.partial(splash_attention, window=window)
    return None


def by_kernel(
    kernel: Kernel, query_NSKJC: jax.Array, key_NSKC: jax.Array, value_NSKC: jax.Array, segment_NS: jax.Array
) -> jax.Array:
    """Runs a kernel on each device's own rows and heads, filled up to whole tiles.

    Args:
        kernel: From ``kernel_for``.
        query_NSKJC: Queries, scaled already.
        key_NSKC: Keys.
        value_NSKC: Values.
        segment_NS: See ``attention.row_attention``.

    Returns:
        Attention output, placed as the queries.
    """
    S = segment_NS.shape[1]
    fill = lambda x: jnp.pad(x, [(0, 0), (0, -S % TILE_TOKENS)] + [(0, 0)] * (x.ndim - 2))  # noqa: E731
    run = lambda *arrays: kernel(*map(fill, arrays))[:, :S]  # noqa: E731
    if not rules.has_mesh():
        return run(query_NSKJC, key_NSKC, value_NSKC, segment_NS)
    names = ((rules.BATCH, None, "heads", None, None), *((rules.BATCH, None, "heads", None),) * 2, (rules.BATCH, None))
    arrays = (query_NSKJC, key_NSKC, value_NSKC, segment_NS)
    arrays = [rules.shard(array, *axes) for array, axes in zip(arrays, names, strict=True)]
    places = tuple(map(rules.partition, names))
    # Kernels do not say over which mesh axes their results vary.
    return jax.shard_map(run, in_specs=places, out_specs=places[0], check_vma=False)(*arrays)


def cudnn_attention(
    query_NSKJC: jax.Array,
    key_NSKC: jax.Array,
    value_NSKC: jax.Array,
    segment_NS: jax.Array,
    *,
    window: int,
    implementation: Literal["cudnn", "xla"],
) -> jax.Array:
    """Causal attention in rows of one run of tokens each, by ``jax.nn.dot_product_attention``.

    A kernel without masks sees padding in front of a row. So each row is turned until its first token comes first: what
    comes after its last is hidden from all of them by causality alone.

    Args:
        query_NSKJC: Queries, scaled already.
        key_NSKC: Keys.
        value_NSKC: Values.
        segment_NS: 1 at tokens, which are contiguous in each row; 0 is padding.
        window: Nearest positions that are seen; 0 for all.
        implementation: Of the function that is called.

    Returns:
        Attention output; what stands at padding has no meaning.
    """
    N, S, K, J, C = query_NSKJC.shape
    first_N = jnp.argmax(segment_NS > 0, axis=1)
    turned = jax.vmap(lambda row, by: jnp.roll(row, by, axis=0))
    query, key, value = (
        turned(array, -first_N) for array in (query_NSKJC.reshape(N, S, K * J, C), key_NSKC, value_NSKC)
    )
    out = jax.nn.dot_product_attention(
        query,
        key,
        value,
        scale=1.0,
        is_causal=True,
        local_window_size=(window - 1, 0) if window else None,
        implementation=implementation,
    )
    return turned(out, first_N).reshape(N, S, K, J, C)


def splash_attention(
    query_NSKJC: jax.Array,
    key_NSKC: jax.Array,
    value_NSKC: jax.Array,
    segment_NS: jax.Array,
    *,
    window: int,
    interpret: bool = False,
) -> jax.Array:
    """Causal attention inside segments, by Pallas' kernel for TPUs.

    Args:
        query_NSKJC: Queries, scaled already.
        key_NSKC: Keys.
        value_NSKC: Values.
        segment_NS: Sequence that a token belongs to; padding is one of its own.
        window: Nearest positions that are seen; 0 for all.
        interpret: Run without a TPU, slowly.

    Returns:
        Attention output.
    """
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    N, S, K, J, C = query_NSKJC.shape
    mask = masks.LocalMask((S, S), (window - 1, 0), 0) if window else masks.CausalMask((S, S))
    block = int(np.gcd(S, TPU_BLOCK_TOKENS))
    names = ("block_q", "block_kv", "block_kv_compute", "block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute")
    sizes = splash.BlockSizes(**dict.fromkeys((*names, "block_q_dq", "block_kv_dq"), block))
    kernel: Any = splash.make_splash_mha(
        masks.MultiHeadMask([mask] * (K * J)), block_sizes=sizes, head_shards=1, q_seq_shards=1, interpret=interpret
    )

    def row(query_SHC: jax.Array, key_SKC: jax.Array, value_SKC: jax.Array, segment_S: jax.Array) -> jax.Array:
        heads_first = (jnp.moveaxis(array, 1, 0) for array in (query_SHC, key_SKC, value_SKC))
        return jnp.moveaxis(kernel(*heads_first, splash.SegmentIds(segment_S, segment_S)), 0, 1)

    query = query_NSKJC.reshape(N, S, K * J, C)
    return jax.vmap(row)(query, key_NSKC, value_NSKC, segment_NS).reshape(N, S, K, J, C)
