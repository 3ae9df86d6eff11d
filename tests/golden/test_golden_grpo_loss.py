"""The default objective against float64 results of an independent implementation (see README.md)."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import groups, grpo

CASES = {
    case["name"]: case
    for case in json.loads((pathlib.Path(__file__).parent / "grpo_loss.json").read_text(encoding="utf-8"))["cases"]
}
METRICS = {
    "loss": "loss",
    "kl": "mean_kl",
    "active_group_ratio": "active_group_ratio",
    "mean_advantage": "mean_advantage",
    "mean_reward": "mean_reward",
}
REWARDS_BEYOND_FLOAT32 = "std_just_above_eps"
every_case = pytest.mark.parametrize("name", CASES)


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


def run(name, dtype, reward_BG=None):
    """Loss, metrics, advantages, active groups and gradient of one case, as NumPy arrays."""
    case = CASES[name]
    settings = case["config"]
    config = grpo.GRPOLossConfig(
        clip_epsilon=settings["clip_eps"],
        kl_beta=settings["kl_beta"],
        length_penalty=settings["length_penalty_coef"],
        length_budget_tokens=settings["target_token_budget"],
        variance_epsilon=settings["eps_variance"],
    )
    logprob, old, ref = (jnp.asarray(case[f"{of}logprob_BGT"], dtype) for of in ("", "old_", "ref_"))
    reward_BG = jnp.asarray(case["reward_BG"] if reward_BG is None else reward_BG, dtype)
    mask_BGT, length_BG = jnp.asarray(case["mask_BGT"]), jnp.asarray(case["length_BG"])

    @jax.jit
    def compute(logprob):
        def loss(logprob):
            return grpo.grpo_loss(logprob, old, ref, mask_BGT, reward_BG, length_BG, config=config)

        (_, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(logprob)
        shaped_BG = groups.shaped_reward(reward_BG, length_BG, config=config)
        valid_BG = jnp.ones_like(reward_BG, bool)
        weighed = groups.group_weights(shaped_BG, jnp.sum(mask_BGT, axis=2), valid_BG, config=config)
        return metrics, weighed.advantage_BG, weighed.active_B, gradient

    return jax.tree.map(np.asarray, compute(logprob))


def expected(name):
    expect = CASES[name]["expect"]
    metrics = {ours: expect[theirs] for ours, theirs in METRICS.items()}
    return metrics, *(np.array(expect[key]) for key in ("advantage_BG", "active_B", "grad_logprob_BGT"))


def assert_agree(got, want, *, absolute, relative):
    """Compares results; ``relative`` is a share of the largest wanted gradient, advantage or metric."""
    got_metrics, got_advantage_BG, got_active_B, got_gradient_BGT = got
    want_metrics, want_advantage_BG, want_active_B, want_gradient_BGT = want
    for metric, value in want_metrics.items():
        np.testing.assert_allclose(got_metrics[metric], value, rtol=relative, atol=absolute, err_msg=metric)
    np.testing.assert_array_equal(got_active_B, want_active_B)
    for got_array, want_array in ((got_advantage_BG, want_advantage_BG), (got_gradient_BGT, want_gradient_BGT)):
        scale = float(np.max(np.abs(want_array)))
        np.testing.assert_allclose(got_array, want_array, rtol=0, atol=max(absolute, relative * scale))
    np.testing.assert_array_equal(got_advantage_BG[~want_active_B], 0)
    np.testing.assert_array_equal(got_gradient_BGT[~want_active_B], 0)


@every_case
def test_float64_agrees_with_the_golden_values_to_1e_9(name, float64):
    got = run(name, jnp.float64)
    assert got[0]["loss"].dtype == got[-1].dtype == np.float64
    assert_agree(got, expected(name), absolute=1e-9, relative=0)


@every_case
def test_float32_agrees_with_the_golden_values_to_1e_5(name):
    got = run(name, jnp.float32)
    assert got[0]["loss"].dtype == got[-1].dtype == np.float32, "float64 leaked out of another test"
    want = expected(name)
    if name == REWARDS_BEYOND_FLOAT32:
        with jax.enable_x64(True):
            rounded_BG = np.array(CASES[name]["reward_BG"], np.float32).astype(np.float64)
            want = run(name, jnp.float64, rounded_BG)
    assert_agree(got, want, absolute=1e-7, relative=1e-5)


def test_float32_cannot_hold_the_rewards_of_the_case_it_is_excused_from():
    reward_BG = np.array(CASES[REWARDS_BEYOND_FLOAT32]["reward_BG"])
    rounded_BG = reward_BG.astype(np.float32).astype(np.float64)
    spread, rounded_spread = np.ptp(reward_BG, axis=1), np.ptp(rounded_BG, axis=1)
    assert np.max(np.abs(rounded_spread / spread - 1)) > 1e-4


def test_the_cases_cover_what_they_are_for():
    active = {name: case["expect"]["active_B"] for name, case in CASES.items()}
    assert not any(active["no_active_group"])
    assert active["all_pass_and_mixed"] == [False, True]
    assert all(active["length_penalty_breaks_ties"])
    assert all(active[REWARDS_BEYOND_FLOAT32])
    assert CASES["no_kl"]["config"]["kl_beta"] == 0
