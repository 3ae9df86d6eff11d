"""The KL estimator, worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import kl


@pytest.mark.parametrize(
    ("difference", "wanted"), [(0.1, 0.0051709), (-0.1, 0.0048374), (1.0, 0.7182818), (-1.0, 0.3678794), (0.0, 0.0)]
)
def test_k3_of_reference_minus_policy(difference, wanted):
    for logprob in (0.0, -2.0):
        got = kl.k3(jnp.float32(logprob), jnp.float32(logprob + difference))
        np.testing.assert_allclose(got, wanted, atol=1.5e-7)


def test_the_gradient_is_one_minus_the_ratio_of_reference_to_policy():
    logprob, ref_logprob = jnp.array([-1.0, -2.0, -0.5]), jnp.array([-1.5, -1.0, -0.5])
    gradient = jax.grad(lambda logprob: jnp.sum(kl.k3(logprob, ref_logprob)))(logprob)
    np.testing.assert_allclose(gradient, 1 - np.exp([-0.5, 1.0, 0.0]), rtol=1e-5, atol=1e-7)


def test_the_mean_under_the_policy_is_the_reverse_kl():
    policy, reference = np.array([0.5, 0.2, 0.3]), np.array([0.1, 0.6, 0.3])
    k3 = kl.k3(jnp.log(policy), jnp.log(reference))
    np.testing.assert_allclose(np.sum(policy * k3), np.sum(policy * np.log(policy / reference)), rtol=1e-6)
