"""Programs lowered from shapes, with the arithmetic that they ask for."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
from jax.extend import core


class Program(NamedTuple):
    """A program that has not been compiled.

    Attributes:
        lowered: What a compiler is given.
        flops: Of its matrix products, on all devices together.
    """

    lowered: jax.stages.Lowered
    flops: float


def lower(jitted: Any, *arguments: Any, passes: int = 1, **named: Any) -> Program:
    """Lowers a jitted function.

    Args:
        jitted: The function.
        *arguments: Shapes of its arguments.
        passes: How often a loop runs whose length is only known when it does.
        **named: Further arguments.

    Returns:
        The program.
    """
    traced = jitted.trace(*arguments, **named)
    return Program(traced.lower(), matmul_flops(traced.jaxpr.jaxpr, passes))


def matmul_flops(jaxpr: core.Jaxpr, passes: int = 1) -> float:
    """Counts the arithmetic of matrix products, a multiplication and an addition as 2; loops count every time they run.

    Compilers count a loop's body once, and say nothing at all of programs for GPUs that are not there.

    Args:
        jaxpr: A traced program, with the shapes of whole arrays.
        passes: How often a loop runs whose length is only known when it does.

    Returns:
        Floating-point operations.
    """
    total = 0.0
    for equation in jaxpr.eqns:
        name, parameters = equation.primitive.name, equation.params
        if name == "dot_general":
            (contracted, _), _ = parameters["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2.0 * math.prod(equation.outvars[0].aval.shape) * math.prod(shape[axis] for axis in contracted)
        elif name == "ragged_dot_general":
            # Every row meets one of the matrices.
            total += 2.0 * math.prod(equation.invars[0].aval.shape) * equation.outvars[0].aval.shape[-1]
        elif name == "scan":
            total += parameters["length"] * matmul_flops(parameters["jaxpr"].jaxpr, passes)
        elif name == "while":
            total += passes * matmul_flops(parameters["body_jaxpr"].jaxpr, passes)
        elif name == "cond":
            total += max(matmul_flops(branch.jaxpr, passes) for branch in parameters["branches"])
        else:
            # Inside a shard_map shapes are those of one device.
            copies = parameters["mesh"].size if name == "shard_map" else 1
            total += copies * sum(matmul_flops(inner, passes) for inner in _inner(parameters))
    return total


def _inner(parameters: dict[str, Any]) -> Iterator[core.Jaxpr]:
    for value in parameters.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            if isinstance(one, core.ClosedJaxpr):
                yield one.jaxpr
            elif isinstance(one, core.Jaxpr):
                yield one
