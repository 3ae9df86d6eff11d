"""Per-token estimators of KL(policy || reference) from samples of the policy."""

import jax.numpy as jnp
from beartype import beartype
from jaxtyping import Array, Float, jaxtyped


@jaxtyped(typechecker=beartype)
def k3(logprob: Float[Array, "..."], ref_logprob: Float[Array, "..."]) -> Float[Array, "..."]:
    """The low-variance estimator that is never negative.

    k3 = exp(logref - logpi) - (logref - logpi) - 1.

    Args:
        logprob: Natural log-probabilities under the policy.
        ref_logprob: The same tokens under the reference.

    Returns:
        The estimate per token, >= 0.

    Source: Schulman 2020, "Approximating KL Divergence".

    >>> round(float(k3(jnp.array(0.0), jnp.array(1.0))), 6)
    0.718282
    """
    difference = ref_logprob - logprob
    return jnp.expm1(difference) - difference
