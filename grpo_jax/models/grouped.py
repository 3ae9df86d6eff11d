"""A gated feed-forward network for rows that are sorted by the expert they go to.

TPUs have a grouped product for it (``jax.lax.ragged_dot``). On CPUs and GPUs XLA computes that product for every expert
and every row, so there the rows of each expert are gone through in blocks, whose number follows the rows that there
are. The derivative is written out, as a loop of which the number of rounds is not known has none.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from grpo_jax.models import layers
from grpo_jax.parallel import rules

Weights = tuple[Float[Array, "E D F"], Float[Array, "E D F"], Float[Array, "E F D"]]
"""Gate, up and down projections of every expert."""

SMALLEST_BLOCK = 8
"""Rows in a block. Below, products are slow."""

LARGEST_BLOCK, LARGEST_BLOCK_OF_ACCELERATORS = 64, 512
"""Above, products are no faster, and more rows are none of the expert's."""


class _Saved(NamedTuple):
    rows: jax.Array
    weights: Weights
    sizes: jax.Array
    gate: jax.Array
    up: jax.Array


class _Blocks(NamedTuple):
    """Where each block begins, how many of its rows are its expert's, whose they are, and how many blocks there are."""

    first: jax.Array
    rows: jax.Array
    expert: jax.Array
    count: jax.Array


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def network(
    rows: Float[Array, "M D"], weights: Weights, sizes: Int[Array, "E"], activation: str
) -> Float[Array, "M D"]:
    """The experts' networks on their own rows.

    Args:
        rows: The first expert's rows, then the second's, and so on; those behind the last expert's are nobody's.
        weights: Of the experts.
        sizes: Rows of each expert.
        activation: See ``layers.gated``.

    Returns:
        What each row's expert makes of it; what stands at nobody's rows has no meaning.
    """
    return _forward(rows, weights, sizes, activation)[0]


def _forward(rows: jax.Array, weights: Weights, sizes: jax.Array, activation: str) -> tuple[jax.Array, _Saved]:
    compute = _ragged if rules.platform() == "tpu" else _blocked
    out, gate, up = compute(rows, weights, sizes, activation=activation)
    return out, _Saved(rows, weights, sizes, gate, up)


def _backward(activation: str, saved: _Saved, out: jax.Array) -> tuple[jax.Array, Weights, None]:
    compute = _ragged_transposed if rules.platform() == "tpu" else _blocked_transposed
    to_rows, to_weights = compute(saved, out, activation=activation)
    return to_rows, to_weights, None


network.defvjp(_forward, _backward)


def _ragged(
    rows: jax.Array, weights: Weights, sizes: jax.Array, *, activation: str
) -> tuple[jax.Array, jax.Array, jax.Array]:
    gate, up = (jax.lax.ragged_dot(rows, matrix, sizes) for matrix in weights[:2])
    return jax.lax.ragged_dot(layers.gated(gate, up, activation), weights[2], sizes), gate, up


def _ragged_transposed(saved: _Saved, out: jax.Array, *, activation: str) -> tuple[jax.Array, Weights]:
    def transposed(rows: jax.Array, matrix: jax.Array, cotangent: jax.Array) -> tuple[jax.Array, jax.Array]:
        # Linear in each: the product itself is not computed again.
        product = lambda rows, matrix: jax.lax.ragged_dot(rows, matrix, saved.sizes)  # noqa: E731
        return jax.vjp(product, rows, matrix)[1](cotangent)

    hidden, pull = jax.vjp(functools.partial(layers.gated, activation=activation), saved.gate, saved.up)
    to_hidden, to_down = transposed(hidden, saved.weights[2], out)
    to_gated, to_upped = pull(to_hidden)
    through_gate, to_gate = transposed(saved.rows, saved.weights[0], to_gated)
    through_up, to_up = transposed(saved.rows, saved.weights[1], to_upped)
    return through_gate + through_up, (to_gate, to_up, to_down)


def block_rows(rows: int, experts: int) -> int:
    """Rows in a block: half of what an expert has on average, as a power of two within bounds."""
    half = max(rows // (2 * experts), 1)
    largest = LARGEST_BLOCK if rules.platform() == "cpu" else LARGEST_BLOCK_OF_ACCELERATORS
    return min(max(1 << (half.bit_length() - 1), SMALLEST_BLOCK), largest)


def _blocks(sizes: jax.Array, total: int, size: int) -> _Blocks:
    E = len(sizes)
    end_E, number_E = jnp.cumsum(sizes), -(-sizes // size)
    last_E = jnp.cumsum(number_E)
    index = jnp.arange(total // size + min(E, total))
    expert = jnp.minimum(jnp.sum(last_E[None] <= index[:, None], axis=1), E - 1)
    first = (end_E - sizes)[expert] + (index - (last_E - number_E)[expert]) * size
    return _Blocks(first, end_E[expert] - first, expert, last_E[-1])


def _room(rows: jax.Array, width: int, size: int) -> jax.Array:
    """Zeros for one more block than there are rows: the last one may reach beyond them."""
    return jnp.broadcast_to(jnp.zeros_like(rows[:1, :1]), (len(rows) + size, width))


def _write(room: jax.Array, block: jax.Array, first: jax.Array) -> jax.Array:
    """Writes a block; what it writes to the rows of later experts, their own blocks write again."""
    return jax.lax.dynamic_update_slice_in_dim(room, block, first, axis=0)


def _blocked(
    rows: jax.Array, weights: Weights, sizes: jax.Array, *, activation: str
) -> tuple[jax.Array, jax.Array, jax.Array]:
    size = block_rows(len(rows), len(sizes))
    blocks, padded = _blocks(sizes, len(rows), size), jnp.pad(rows, ((0, size), (0, 0)))
    F, D = weights[2].shape[1:]

    def body(index: jax.Array, done: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        first, expert = blocks.first[index], blocks.expert[index]
        x = jax.lax.dynamic_slice_in_dim(padded, first, size)
        gate, up = x @ weights[0][expert], x @ weights[1][expert]
        out = layers.gated(gate, up, activation) @ weights[2][expert]
        return tuple(_write(room, block, first) for room, block in zip(done, (out, gate, up), strict=True))

    out, gate, up = jax.lax.fori_loop(0, blocks.count, body, tuple(_room(rows, width, size) for width in (D, F, F)))
    return out[: len(rows)], gate[: len(rows)], up[: len(rows)]


def _blocked_transposed(saved: _Saved, out: jax.Array, *, activation: str) -> tuple[jax.Array, Weights]:
    rows, weights, count = saved.rows, saved.weights, len(saved.rows)
    size = block_rows(count, len(saved.sizes))
    blocks = _blocks(saved.sizes, count, size)
    padded = [jnp.pad(leaf, ((0, size), (0, 0))) for leaf in (rows, out, saved.gate, saved.up)]

    def body(index: jax.Array, done: tuple[jax.Array, Weights]) -> tuple[jax.Array, Weights]:
        first, expert = blocks.first[index], blocks.expert[index]
        own = (jnp.arange(size) < blocks.rows[index])[:, None]
        # Rows of later experts are 0 here, so that they add nothing to this one's weights.
        x, to_out, gate, up = (jnp.where(own, jax.lax.dynamic_slice_in_dim(leaf, first, size), 0) for leaf in padded)
        hidden, pull = jax.vjp(functools.partial(layers.gated, activation=activation), gate, up)
        to_gated, to_upped = pull(to_out @ weights[2][expert].T)
        through = to_gated @ weights[0][expert].T + to_upped @ weights[1][expert].T

        def added(total: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
            share = jnp.einsum("MD,MF->DF", left, right, preferred_element_type=total.dtype)
            return jax.lax.dynamic_update_index_in_dim(total, total[expert] + share, expert, axis=0)

        to_rows, (to_gate, to_up, to_down) = done
        to_weights = added(to_gate, x, to_gated), added(to_up, x, to_upped), added(to_down, hidden, to_out)
        return _write(to_rows, through, first), to_weights

    # Sums over blocks are kept in float32 at least.
    zeros = lambda matrix: jnp.zeros_like(matrix, jnp.promote_types(matrix.dtype, jnp.float32))  # noqa: E731
    begin = (_room(rows, rows.shape[1], size), tuple(map(zeros, weights)))
    to_rows, to_weights = jax.lax.fori_loop(0, blocks.count, body, begin)
    return to_rows[:count], tuple(total.astype(matrix.dtype) for total, matrix in zip(to_weights, weights, strict=True))
