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


_ATTENTION_PRODUCTS = {"dot_product_attention_fwd_wrapper": 2, "dot_product_attention_bwd_wrapper": 5}
"""Matrix products in cuDNN's kernels."""


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

    Compilers count a loop's body once, and say nothing at all of programs for GPUs that are not there. Causal attention
    counts whole, also in kernels that leave half of it out.

    Args:
        jaxpr: A traced program, with the shapes of whole arrays.
        passes: How often a loop runs whose length is only known when it does.

    Returns:
        Floating-point operations.
    """
    return sum((_flops(equation, passes) for equation in jaxpr.eqns), 0.0)


def _flops(equation: core.JaxprEqn, passes: int) -> float:
    name, parameters = equation.primitive.name, equation.params
    if name in ("dot_general", "ragged_dot_general"):
        # Of a ragged product every row meets one of the matrices.
        left, out = (_shape(variable) for variable in (equation.invars[0], equation.outvars[0]))
        if name == "ragged_dot_general":
            return 2.0 * math.prod(left) * out[-1]
        (contracted, _), _ = parameters["dimension_numbers"]
        return 2.0 * math.prod(out) * math.prod(left[axis] for axis in contracted)
    if name in _ATTENTION_PRODUCTS:
        query, key = (_shape(variable) for variable in equation.invars[:2])
        return 2.0 * _ATTENTION_PRODUCTS[name] * math.prod(query) * key[2 if parameters["layout"] else 1]
    if name == "pallas_call":
        return math.prod(parameters["grid_mapping"].grid) * matmul_flops(parameters["jaxpr"], passes)
    if name == "scan":
        return parameters["length"] * matmul_flops(parameters["jaxpr"].jaxpr, passes)
    if name == "while":
        return passes * matmul_flops(parameters["body_jaxpr"].jaxpr, passes)
    if name == "cond":
        return max(matmul_flops(branch.jaxpr, passes) for branch in parameters["branches"])
    # Inside a shard_map shapes are those of one device.
    copies = parameters["mesh"].size if name == "shard_map" else 1
    return copies * sum((matmul_flops(inner, passes) for inner in _inner(parameters)), 0.0)


def _inner(parameters: dict[str, Any]) -> Iterator[core.Jaxpr]:
    for value in parameters.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            if isinstance(one, core.ClosedJaxpr):
                yield one.jaxpr
            elif isinstance(one, core.Jaxpr):
                yield one


def _shape(variable: Any) -> tuple[int, ...]:
    return variable.aval.shape
