"""Per-token estimators of KL(policy || reference) from samples of the policy.

Source of k1, k2 and k3: Schulman 2020, "Approximating KL Divergence".
"""

from typing import Literal

import jax.numpy as jnp
from beartype import beartype
from jaxtyping import Array, Float, jaxtyped

KLName = Literal["k1", "k2", "k3", "k3_unbiased"]


@jaxtyped(typechecker=beartype)
def k1(logprob: Float[Array, "..."], ref_logprob: Float[Array, "..."]) -> Float[Array, "..."]:
    """The plain estimator: k1 = logpi - logref. Unbiased, of either sign, high variance.

    Args:
        logprob: Natural log-probabilities under the policy.
        ref_logprob: The same tokens under the reference.

    Returns:
        The estimate per token.
    """
    return logprob - ref_logprob


@jaxtyped(typechecker=beartype)
def k2(logprob: Float[Array, "..."], ref_logprob: Float[Array, "..."]) -> Float[Array, "..."]:
    """Half the squared log-ratio: k2 = (logpi - logref)^2 / 2. Its gradient, on samples of pi, is that of the KL.

    Args:
        logprob: Natural log-probabilities under the policy.
        ref_logprob: The same tokens under the reference.

    Returns:
        The estimate per token, >= 0.
    """
    return jnp.square(logprob - ref_logprob) / 2


@jaxtyped(typechecker=beartype)
def k3(logprob: Float[Array, "..."], ref_logprob: Float[Array, "..."]) -> Float[Array, "..."]:
    """The low-variance estimator that is never negative.

    k3 = exp(logref - logpi) - (logref - logpi) - 1. As a loss on samples of pi its gradient is that of the forward KL.

    Args:
        logprob: Natural log-probabilities under the policy.
        ref_logprob: The same tokens under the reference.

    Returns:
        The estimate per token, >= 0.

    >>> round(float(k3(jnp.array(0.0), jnp.array(1.0))), 6)
    0.718282
    """
    difference = ref_logprob - logprob
    return jnp.expm1(difference) - difference


@jaxtyped(typechecker=beartype)
def k3_unbiased(
    logprob: Float[Array, "..."], ref_logprob: Float[Array, "..."], old_logprob: Float[Array, "..."]
) -> Float[Array, "..."]:
    """k3 times the ratio to the policy that sampled, with the gradient through both.

    Its expectation over samples of ``old`` is the reverse KL of the policy that is trained, so its expected gradient is
    that of the reverse KL, on and off the policy that sampled.

    Args:
        logprob: Natural log-probabilities under the policy.
        ref_logprob: The same tokens under the reference.
        old_logprob: The same tokens under the policy that sampled.

    Returns:
        The estimate per token, >= 0.

    Source: DeepSeek-AI 2025 (DeepSeek-V3.2), section 3.1.
    """
    return jnp.exp(logprob - old_logprob) * k3(logprob, ref_logprob)


@jaxtyped(typechecker=beartype)
def estimate(
    name: KLName, logprob: Float[Array, "..."], ref_logprob: Float[Array, "..."], old_logprob: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Calls the estimator of that name.

    Args:
        name: Which one.
        logprob: Natural log-probabilities under the policy.
        ref_logprob: The same tokens under the reference.
        old_logprob: The same tokens under the policy that sampled; only ``k3_unbiased`` looks at them.

    Returns:
        The estimate per token.
    """
    if name == "k3_unbiased":
        return k3_unbiased(logprob, ref_logprob, old_logprob)
    return {"k1": k1, "k2": k2, "k3": k3}[name](logprob, ref_logprob)
