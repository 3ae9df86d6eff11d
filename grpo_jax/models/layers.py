"""The arithmetic of a decoder layer as pure functions."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

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
    multiplied = _summed if out_sharding is not None and rules.shards("mlp") > 1 else _contract
    added: Any = multiplied(x, projection.weight, inputs, out_sharding)
    adapter = projection.adapter
    if adapter is None:
        return added
    place = sharding_of(x)
    whole = None if place is None else jax.P(*place[: x.ndim - inputs], None)
    low = _contract(_thinned(x, adapter), adapter.a.astype(x.dtype), inputs, whole)
    return added + _contract(low, adapter.scale * adapter.b.astype(x.dtype), 1, out_sharding)


def _contract(x: jax.Array, weight: jax.Array, inputs: int, out_sharding: jax.P | None) -> jax.Array:
    axes = "DEFGHI"[: weight.ndim]
    equation = f"...{axes[:inputs]},{axes}->...{axes[inputs:]}"
    return jnp.einsum(equation, x, weight, out_sharding=out_sharding)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _summed(x: jax.Array, weight: jax.Array, inputs: int, out_sharding: jax.P | None) -> jax.Array:
    """A product whose sums go over devices; the gradient of its matrix is taken before that of ``x`` is used.

    Both need the gathered gradient of the result, which would lie there until XLA comes to the matrix.
    """
    return _contract(x, weight, inputs, out_sharding)


def _summed_forward(x: Any, weight: Any, inputs: int, out_sharding: jax.P | None) -> tuple[jax.Array, Any]:
    # What is static is told by the structure of what is kept.
    trained = () if weight.perturbed else None
    return _contract(x.value, weight.value, inputs, out_sharding), (x.value, weight.value, trained)


def _summed_backward(inputs: int, out_sharding: jax.P | None, kept: Any, cotangent: jax.Array) -> Any:
    x, weight, trained = kept
    multiply = functools.partial(_contract, inputs=inputs, out_sharding=out_sharding)
    (to_x,) = jax.linear_transpose(lambda x: multiply(x, weight), x)(cotangent)
    if trained is None:
        return to_x, None
    whole = jax.typeof(weight).sharding.spec
    # In parts, as the matrix is held: to wait for all of it would be to gather it on every device.
    held = jax.sharding.reshard(weight, jax.P(*whole[:-1], rules.RULES["embed"]))
    transposed = jax.linear_transpose(lambda held: multiply(x, jax.sharding.reshard(held, whole)), held)
    to_x, to_held = jax.lax.optimization_barrier((to_x, *transposed(cotangent)))
    return to_x, jax.sharding.reshard(to_held, whole)


_summed.defvjp(_summed_forward, _summed_backward, symbolic_zeros=True)


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


def sharding_of(x: jax.Array) -> jax.P | None:
    """Where an array lives, for what is added to it; None without a mesh."""
    return jax.typeof(x).sharding.spec if rules.has_mesh() else None


def whole_over_tensor(x: Float[Array, "N S D"]) -> Float[Array, "N S D"]:
    """Gathers what lies in parts over ``tensor`` between layers, for the matrices that are cut along their outputs."""
    place = sharding_of(x)
    if place is not None and place[1] == rules.RULES[rules.RESIDUAL]:
        return rules.shard(x, rules.BATCH, rules.POSITIONS, None)
    return x


def feed_forward(
    x: Float[Array, "N S D"],
    projections: tuple[Projection, Projection, Projection],
    activation: str,
    out_sharding: jax.P | None,
) -> Float[Array, "N S D"]:
    """A gated feed-forward network.

    Args:
        x: Normalised hidden states.
        projections: Gate, up and down.
        activation: See ``gated``.
        out_sharding: Where the result lives.

    Returns:
        What is added to the residual.
    """
    gate, up, down = projections
    hidden = gated(project(x, gate), project(x, up), activation)
    return project(hidden, down, out_sharding=out_sharding)
