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


@pytest.mark.parametrize(("name", "wanted"), [("k1", [0.5, -1.0]), ("k2", [0.125, 0.5])])
def test_k1_and_k2_of_policy_minus_reference(name, wanted):
    logprob, ref_logprob = jnp.array([-1.0, -2.0]), jnp.array([-1.5, -1.0])
    np.testing.assert_allclose(kl.estimate(name, logprob, ref_logprob, logprob), wanted, rtol=1e-6)


def test_the_unbiased_form_is_k3_times_the_ratio():
    logprob, ref_logprob, old_logprob = jnp.array([-1.0]), jnp.array([-2.0]), jnp.array([-1.5])
    got = kl.estimate("k3_unbiased", logprob, ref_logprob, old_logprob)
    np.testing.assert_allclose(got, np.exp(0.5) * np.exp(-1), rtol=1e-6)


FIVE_LOGITS = np.array([0.3, -1.2, 0.8, 0.0, -0.4])
FIVE_REFERENCE = np.array([0.1, 0.3, 0.15, 0.25, 0.2])
FIVE_OLD = {"on": None, "off": np.array([0.3, 0.25, 0.1, 0.15, 0.2])}


def expected_gradient(name, old_V):
    """By the logits, of the mean of an estimator over every symbol that ``old`` may sample."""
    old_V = np.exp(FIVE_LOGITS) / np.sum(np.exp(FIVE_LOGITS)) if old_V is None else old_V

    def mean(logits_V):
        logprob_V = jax.nn.log_softmax(logits_V)
        return jnp.sum(old_V * kl.estimate(name, logprob_V, jnp.log(FIVE_REFERENCE), jnp.log(old_V)))

    with jax.enable_x64(True):
        return np.asarray(jax.grad(mean)(jnp.asarray(FIVE_LOGITS)))


def reverse_kl_gradient():
    """d KL(pi || ref) / d logit_v = pi_v (log pi_v - log ref_v - KL), worked out on paper."""
    policy_V = np.exp(FIVE_LOGITS) / np.sum(np.exp(FIVE_LOGITS))
    log_ratio_V = np.log(policy_V / FIVE_REFERENCE)
    return policy_V * (log_ratio_V - np.sum(policy_V * log_ratio_V))


@pytest.mark.parametrize("sampled", FIVE_OLD)
def test_the_unbiased_form_has_the_expected_gradient_of_the_reverse_kl(sampled):
    np.testing.assert_allclose(expected_gradient("k3_unbiased", FIVE_OLD[sampled]), reverse_kl_gradient(), atol=1e-12)


def test_k2_has_it_on_the_policys_own_samples_only():
    np.testing.assert_allclose(expected_gradient("k2", FIVE_OLD["on"]), reverse_kl_gradient(), atol=1e-12)
    assert np.max(np.abs(expected_gradient("k2", FIVE_OLD["off"]) - reverse_kl_gradient())) > 0.05


def test_k3_has_the_gradient_of_the_forward_kl_and_k1_has_none():
    policy_V = np.exp(FIVE_LOGITS) / np.sum(np.exp(FIVE_LOGITS))
    np.testing.assert_allclose(expected_gradient("k3", None), policy_V - FIVE_REFERENCE, atol=1e-12)
    assert np.max(np.abs(expected_gradient("k3", None) - reverse_kl_gradient())) > 0.05
    np.testing.assert_allclose(expected_gradient("k1", None), 0, atol=1e-12)
