"""Low-rank adapters (LoRA): small matrices beside a decoder's frozen ones.

A policy with adapters is the decoder's tree with one more entry, ``adapters``. Everything that runs a decoder takes
it as it is, and the tree without that entry is the model that the adapters started from: a reference for free.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from grpo_jax.models.block import declarations
from grpo_jax.models.declaration import Declaration
from grpo_jax.models.layers import Adapter
from grpo_jax.models.parameters import Parameters, Stack, stacks
from grpo_jax.models.spec import LoRA, ModelSpec
from grpo_jax.parallel import rules

ADAPTERS = "adapters"
"""Their entry in a policy's tree."""

INPUTS = {"query": 1, "key": 1, "value": 1, "output": 3, "gate": 1, "up": 1, "down": 1}
"""Parameters that can have one, and how many of their axes are inputs."""


def adapted(spec: ModelSpec, stack: Stack) -> dict[str, Declaration]:
    """The parameters of a stack's layers that have adapters.

    Args:
        spec: The decoder's spec.
        stack: One of its stacks.

    Returns:
        Their declarations by name.
    """
    targets = spec.lora.targets if spec.lora else ()
    return {name: one for name, one in declarations(spec, stack.routed).items() if name in targets}


def logical_axes(spec: ModelSpec) -> Parameters:
    """Logical axes of every array of ``init_adapters``."""
    return {
        stack.name: {
            name: {
                "a": ("layers", *one.axes[: INPUTS[name]], None),
                "b": ("layers", None, *one.axes[INPUTS[name] :]),
            }
            for name, one in table.items()
        }
        for stack in stacks(spec)
        if (table := adapted(spec, stack))
    }


def init_adapters(key: jax.Array, spec: ModelSpec) -> Parameters:
    """Adapters that change nothing yet, on the mesh in use: ``b`` is 0, ``a`` uniform within 1 / sqrt(inputs).

    Args:
        key: PRNG key.
        spec: A spec with ``lora``.

    Returns:
        Stack -> parameter -> ``a`` and ``b``, float32 with a leading layer axis.
    """
    lora, axes = spec.lora, logical_axes(spec)
    assert lora is not None

    def init(one: Declaration, name: str, number: int, layers: int) -> Parameters:
        inputs, outputs = one.shape[: INPUTS[name]], one.shape[INPUTS[name] :]
        bound = float(np.prod(inputs)) ** -0.5
        noise_key = jax.random.fold_in(key, number)
        return {
            "a": jax.random.uniform(noise_key, (layers, *inputs, lora.rank), minval=-bound, maxval=bound),
            "b": jnp.zeros((layers, lora.rank, *outputs)),
        }

    tables = {stack: adapted(spec, stack) for stack in stacks(spec)}
    made = {
        stack.name: {
            name: init(one, name, len(INPUTS) * stack.first + number, stack.end - stack.first)
            for number, (name, one) in enumerate(table.items())
        }
        for stack, table in tables.items()
        if table
    }
    return jax.tree.map(lambda leaf, names: rules.shard(leaf, *names), made, axes)


def attached(params: Parameters, adapters: Parameters) -> Parameters:
    """A policy with adapters beside its parameters."""
    return {**params, ADAPTERS: adapters}


def trained(params: Parameters) -> Parameters:
    """The part of a policy that training changes: its adapters, or all of it where it has none."""
    return params.get(ADAPTERS, params)


def with_trained(params: Parameters, new: Parameters) -> Parameters:
    """The policy with another trained part."""
    return attached(params, new) if ADAPTERS in params else new


def without_adapters(params: Parameters) -> Parameters:
    """The model that a policy's adapters started from; the same arrays."""
    return {name: leaf for name, leaf in params.items() if name != ADAPTERS}


def merged(params: Parameters, spec: ModelSpec) -> Parameters:
    """A policy whose adapters have become part of its matrices.

    Args:
        params: A policy, with or without adapters.
        spec: Its spec.

    Returns:
        Float32 parameters of an ordinary decoder that computes the same.
    """
    if ADAPTERS not in params:
        return params
    lora = spec.lora
    assert lora is not None

    def merge(weight: jax.Array, pair: Parameters) -> jax.Array:
        a, b = pair["a"], pair["b"]
        product = jax.vmap(lambda a, b: jnp.tensordot(a, b, axes=1))(a, b)
        return weight + lora.scale * product

    result = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), without_adapters(params))
    for stack, table in params[ADAPTERS].items():
        result[stack] = result[stack] | {name: merge(result[stack][name], pair) for name, pair in table.items()}
    return result


def of_stack(params: Parameters, stack: Stack) -> Any:
    """What a scan over a stack's layers takes along: adapters and the number of each layer; None without adapters."""
    table = params.get(ADAPTERS, {}).get(stack.name)
    return None if table is None else (table, jnp.arange(stack.first, stack.end))


def of_layer(slices: Any, spec: ModelSpec, stack: Stack, dropout_key_N: jax.Array | None) -> dict[str, Adapter]:
    """One layer's adapters, ready for use.

    Args:
        slices: The layer's slice of ``of_stack``.
        spec: The decoder's spec.
        stack: The layer's stack.
        dropout_key_N: One PRNG key for each row, or None for no dropout.

    Returns:
        Adapters by the name of the parameter that they belong to.
    """
    lora: LoRA | None = spec.lora
    if slices is None or lora is None:
        return {}
    table, number = slices
    axes = {
        name: {part: names[1:] for part, names in pair.items()} for name, pair in logical_axes(spec)[stack.name].items()
    }
    table = rules.gather_parameters(table, axes)

    def keys(position: int) -> jax.Array | None:
        if dropout_key_N is None or not lora.dropout:
            return None
        place = len(INPUTS) * number + position
        return jax.vmap(lambda key: jax.random.fold_in(key, place))(dropout_key_N)

    return {
        name: Adapter(table[name]["a"], table[name]["b"], lora.scale, lora.dropout, keys(position))
        for position, name in enumerate(INPUTS)
        if name in table
    }
