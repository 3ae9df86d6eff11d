"""In which numbers a decoder's parameters are held and computed: what is narrowed, and matrices of one byte.

Masters are float32. What a layer multiplies with is in the compute dtype; scales of norms, and what chooses experts,
stay in float32: rounded, some tokens would visit other experts.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from grpo_jax.parallel import rules

WIDE = ("norm", "router", "router_bias")
"""How names of parameters end that are never narrowed."""

QuantizedDtype = Literal["int8", "float8_e4m3fn"]
"""Numbers of one byte."""

_LARGEST = {"int8": 127.0, "float8_e4m3fn": 448.0}

DTYPES = tuple(_LARGEST)
"""The same at run time."""


class Quantized(NamedTuple):
    """A matrix of one byte per number, and what its numbers are multiplied by.

    Attributes:
        value: int8 or float8.
        scale: Float32, of the matrix's shape with 1 along its model axis.
    """

    value: jax.Array
    scale: jax.Array


def name_of(path: Any) -> str:
    """A parameter's own name, the last part of its path in a tree."""
    return path[-1].key


def narrowed(params: Any, dtype: Any) -> Any:
    """Parameters in the dtype that they are computed in, but for those that stay wide or have one byte.

    Args:
        params: Nested dict of arrays.
        dtype: Of the others.

    Returns:
        The same tree; an array that is narrow already is itself.
    """

    def narrow(path: Any, leaf: Any) -> Any:
        if isinstance(leaf, Quantized) or name_of(path).endswith(WIDE):
            return leaf
        return leaf.astype(dtype)

    return jax.tree_util.tree_map_with_path(narrow, params, is_leaf=lambda node: isinstance(node, Quantized))


def quantized(weight: jax.Array, axes: rules.LogicalAxes, dtype: QuantizedDtype) -> Quantized:
    """Rounds a matrix to one byte per number, with a scale for each of its vectors along the model axis.

    Args:
        weight: The matrix.
        axes: Its logical axes, one of which is the model axis.
        dtype: What it is rounded to.

    Returns:
        The rounded matrix; each number is within half a step (int8) or 1/16 (float8) of its own.
    """
    largest = _LARGEST[dtype]
    wide = weight.astype(jnp.float32)
    along = next(at for at, name in enumerate(axes) if name in rules.GATHERED)
    amplitude = jnp.max(jnp.abs(wide), axis=along, keepdims=True)
    scale = jnp.where(amplitude > 0, amplitude / largest, 1)
    steps = wide / scale
    steps = jnp.round(steps) if dtype == "int8" else steps
    return Quantized(jnp.clip(steps, -largest, largest).astype(dtype), scale)


def quantized_stacks(params: Any, axes: Any, dtype: QuantizedDtype) -> Any:
    """A decoder whose layers' matrices have become ``Quantized``; embeddings, norms, biases and routers stay.

    Args:
        params: From ``init_params``.
        axes: Their logical axes.
        dtype: Of the matrices.

    Returns:
        The decoder, for ``forward``.
    """

    def stack(block: dict[str, jax.Array], names: dict[str, Any]) -> dict[str, Any]:
        matrices = {name for name, own in names.items() if rules.GATHERED & set(own) and not name.endswith(WIDE)}
        return {name: quantized(leaf, names[name], dtype) if name in matrices else leaf for name, leaf in block.items()}

    return {name: stack(part, axes[name]) if isinstance(part, dict) else part for name, part in params.items()}


def ready(block: dict[str, Any], axes: dict[str, rules.LogicalAxes], dtype: Any) -> dict[str, jax.Array]:
    """One layer's parameters as it computes with them: on the device, narrowed, gathered, and only then widened.

    Args:
        block: The layer's parameters; matrices may be ``Quantized``, and anything may be in the host's memory.
        axes: Logical axes of each, without that of the layers.
        dtype: The compute dtype.

    Returns:
        Arrays.
    """

    def of(name: str, leaf: Any) -> jax.Array:
        gather = lambda part: rules.gather_parameters(part, axes[name])  # noqa: E731
        if isinstance(leaf, Quantized):
            return (gather(leaf.value).astype(jnp.float32) * gather(leaf.scale)).astype(dtype)
        return gather(leaf if name.endswith(WIDE) else leaf.astype(dtype))

    return {name: of(name, leaf) for name, leaf in rules.on_device(block).items()}
