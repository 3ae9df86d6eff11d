"""The critic: a decoder without its output projection, under a value head."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from grpo_jax.algorithms import reduce
from grpo_jax.models import decoder, value_head
from grpo_jax.models.spec import ModelSpec
from grpo_jax.training import completions


def init_critic(params: decoder.Parameters, spec: ModelSpec) -> decoder.Parameters:
    """A critic that starts as a copy of the policy's backbone, with a head whose values are all 0.

    Args:
        params: The policy's parameters.
        spec: Its spec.

    Returns:
        ``backbone`` and ``value_head``.
    """
    backbone = {name: leaf for name, leaf in params.items() if name != "unembedding"}
    # jnp.copy: the update reuses the policy's buffers, the critic must not share them.
    return {"backbone": jax.tree.map(jnp.copy, backbone), "value_head": value_head.init_value_head(spec)}


def values(critic: decoder.Parameters, spec: ModelSpec, rows: completions.Rows) -> Float[Array, "N T"]:
    """Values of the states in which each token of the completions was sampled.

    Args:
        critic: From ``init_critic``.
        spec: The backbone's spec.
        rows: N completions.

    Returns:
        Values; what stands behind a completion's end has no meaning.
    """
    # The critic's own router: the recorded experts are those of the policy that sampled.
    hidden_NTD, _ = completions.hidden_states(critic["backbone"], spec, rows.freely_routed)
    return value_head.apply_value_head(critic["value_head"], hidden_NTD)


def explained_variance(
    error: Float[Array, "..."], target: Float[Array, "..."], mask: Bool[Array, "..."]
) -> Float[Array, ""]:
    """1 - Var(error) / Var(target) over the counted tokens; 0 where the target does not vary.

    Args:
        error: Target minus value.
        target: What the values should have been.
        mask: Tokens that count.

    Returns:
        1 for a perfect critic, 0 for one that says the same everywhere.
    """

    def variance(value: jax.Array) -> jax.Array:
        return reduce.masked_mean(jnp.square(value - reduce.masked_mean(value, mask)), mask)

    of_target = variance(target)
    return jnp.where(of_target > 0, 1 - variance(error) / jnp.where(of_target > 0, of_target, 1), 0)
