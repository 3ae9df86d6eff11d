"""How a layer's parameters are declared: the one description that initialisation, sharding and loading read."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax

from grpo_jax.models.layers import Projection
from grpo_jax.models.spec import ModelSpec


class Declaration(NamedTuple):
    """One parameter of one layer.

    Attributes:
        shape: Its shape.
        axes: Logical axis of each of its axes.
        initializer: ``(key, shape, dtype) -> array``.
    """

    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    initializer: Any


class Reader(NamedTuple):
    """How a layer reads its parameters.

    Attributes:
        spec: The decoder's spec.
        weight: Name -> parameter in the compute dtype.
        projection: Name -> the same with what is learned beside it.
        norm: (name, array) -> RMSNorm of the array under the scale of that name.
    """

    spec: ModelSpec
    weight: Callable[[str], jax.Array]
    projection: Callable[[str], Projection]
    norm: Callable[[str, jax.Array], jax.Array]


class Initializers(NamedTuple):
    """Initialisers of a decoder's parameters.

    Attributes:
        projection: Of what reads the residual.
        residual: Of what writes to it: narrower, so that its variance does not grow with the number of layers.
        norm: Of scales of RMSNorm.
    """

    projection: Any
    residual: Any
    norm: Any


def initializers(spec: ModelSpec) -> Initializers:
    """The initialisers that a spec asks for."""
    return Initializers(
        nn.initializers.normal(spec.init_std),
        nn.initializers.normal(spec.init_std / (2 * spec.num_layers) ** 0.5),
        nn.initializers.constant(1.0 - spec.norm_offset),
    )
