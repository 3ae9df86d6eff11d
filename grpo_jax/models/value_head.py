"""The value head of a critic: a small parameter tree beside the decoder's."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from grpo_jax.models.parameters import Parameters
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import rules


def value_head_axes() -> Parameters:
    """Logical axes of every parameter, in the structure of ``init_value_head``."""
    return {"weight": ("embed",), "bias": ()}


def init_value_head(spec: ModelSpec) -> Parameters:
    """A head whose values are all 0, on the mesh in use.

    Args:
        spec: The backbone's spec.

    Returns:
        Dict of float32 arrays.
    """
    shapes = {"weight": (spec.d_model,), "bias": ()}
    axes = value_head_axes()
    return {name: rules.shard(jnp.zeros(shape), *axes[name]) for name, shape in shapes.items()}


def apply_value_head(head: Parameters, hidden_NTD: Float[Array, "N T D"]) -> Float[Array, "N T"]:
    """One number for each hidden state, in float32 whatever the backbone computes in.

    Args:
        head: From ``init_value_head``.
        hidden_NTD: Final hidden states.

    Returns:
        Values.
    """
    head = rules.gather_parameters(head, value_head_axes())
    value_NT = jnp.einsum("NTD,D->NT", hidden_NTD.astype(jnp.float32), head["weight"])
    return value_NT + head["bias"]
