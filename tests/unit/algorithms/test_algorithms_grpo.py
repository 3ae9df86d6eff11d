"""The composed loss, worked by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.algorithms import groups, grpo

# One group of two completions, of one and three tokens; rewards 1 and 0 make advantages +1 and -1.
OLD = np.full((1, 2, 3), -1.0, np.float32)
MASK = np.array([[[1, 0, 0], [1, 1, 1]]])
LENGTH = np.array([[1, 3]])
REWARD = np.array([[1.0, 0.0]])
PLAIN = grpo.GRPOLossConfig(kl_beta=0.0)


@functools.partial(jax.jit, static_argnames="config")
def compiled(logprob, old, ref, mask, reward, length, valid, *, config):
    def value(logprob):
        return grpo.grpo_loss(logprob, old, ref, mask, reward, length, config=config, valid_BG=valid)

    return jax.value_and_grad(value, has_aux=True)(logprob)


def both(logprob, *, ref=None, mask=MASK, reward=REWARD, length=LENGTH, valid=None, old=OLD, config=PLAIN):
    return compiled(jnp.asarray(logprob, jnp.float32), old, ref, mask, reward, length, valid, config=config)


def loss(logprob, **settings):
    return both(logprob, **settings)[0]


def gradient(logprob, **settings):
    return both(logprob, **settings)[1]


def test_defaults_are_those_of_the_documentation():
    assert grpo.GRPOLossConfig() == grpo.GRPOLossConfig(0.2, 0.04, 1e-5, 8192, 1e-6)


def test_loss_and_gradient_at_a_ratio_of_one():
    # Completion means are -1 and +1. Each token of a completion has weight 1 / (2 completions * its tokens).
    value, metrics = loss(OLD)
    np.testing.assert_allclose(value, 0, atol=1e-6)
    np.testing.assert_allclose(gradient(OLD), np.array([[[-1 / 2, 0, 0], [1 / 6, 1 / 6, 1 / 6]]]), rtol=1e-5, atol=1e-7)
    wanted = {"kl": 0, "active_group_ratio": 1, "mean_advantage": 0, "mean_reward": 0.5, "policy_loss": 0, "loss": 0}
    assert metrics.keys() == wanted.keys()
    for name, want in wanted.items():
        np.testing.assert_allclose(metrics[name], want, atol=1e-6, err_msg=name)


def test_loss_with_a_clip_and_a_kl_term_by_hand():
    # Completion 0: ratio 1.5, clipped to 1.2, loss -1.2. Completion 1: ratios 0.5 (clipped to 0.8), 1 and 1.5.
    logprob = OLD + np.log([[[1.5, 1, 1], [0.5, 1, 1.5]]])
    ref = (logprob + np.array([[[1.0, 9, 9], [0.1, -0.1, -1]]])).astype(np.float32)
    config = grpo.GRPOLossConfig(kl_beta=0.5)
    value, metrics = loss(logprob, ref=ref, config=config)
    policy_loss = (-1.2 + 3.3 / 3) / 2
    k3 = np.array([0.7182818, 0.0051709, 0.0048374, 0.3678794])
    kl_loss = (k3[0] + np.mean(k3[1:])) / 2
    np.testing.assert_allclose(metrics["policy_loss"], policy_loss, atol=1e-6)
    np.testing.assert_allclose(metrics["kl"], np.mean(k3), atol=1e-6)
    np.testing.assert_allclose(value, policy_loss + 0.5 * kl_loss, atol=1e-6)


def test_sequence_mean_of_minus_one_and_three_ones_is_zero():
    value, _ = loss(OLD)
    np.testing.assert_allclose(value, 0, atol=1e-6)


def test_the_mean_runs_over_active_groups_only():
    def twice(array):
        return np.concatenate([array, array])

    logprob = OLD + np.log([[[1.1, 1, 1], [1, 1, 1]]])
    alone, _ = loss(logprob)
    beside_equal_rewards, metrics = loss(
        twice(logprob), old=twice(OLD), mask=twice(MASK), reward=np.array([[1.0, 0], [1, 1]]), length=twice(LENGTH)
    )
    np.testing.assert_allclose(alone, -0.05, atol=1e-6)
    np.testing.assert_allclose(beside_equal_rewards, alone, rtol=1e-6)
    assert metrics["active_group_ratio"] == 0.5


def test_the_kl_term_vanishes_for_inactive_groups_and_is_still_measured():
    value, metrics = loss(OLD, ref=OLD + 1, reward=np.array([[1.0, 1]]), config=grpo.GRPOLossConfig())
    assert value == 0
    np.testing.assert_allclose(metrics["kl"], 0.7182818, atol=1e-6)


def test_length_regularisation_acts_before_the_group_statistics():
    config = grpo.GRPOLossConfig(kl_beta=0.0, length_penalty=0.5, length_budget_tokens=1)
    # Equal raw rewards; the longer completion loses 2 * 0.5.
    np.testing.assert_allclose(
        gradient(OLD, reward=np.array([[1.0, 1]]), config=config)[0, :, 0], [-1 / 2, 1 / 6], rtol=1e-5
    )
    _, metrics = loss(OLD, reward=np.array([[1.0, 1]]), config=config)
    assert metrics["mean_reward"] == 1, "rewards are reported raw"


def test_old_and_reference_log_probabilities_get_no_gradient():
    def of_all(logprob, old, ref):
        return grpo.grpo_loss(logprob, old, ref, MASK, REWARD, LENGTH, config=grpo.GRPOLossConfig())[0]

    arrays = [jnp.asarray(OLD) + shift for shift in (0.1, 0.0, 0.3)]
    policy, old, ref = jax.jit(jax.grad(of_all, argnums=(0, 1, 2)))(*arrays)
    assert jnp.any(policy != 0)
    np.testing.assert_array_equal(old, 0)
    np.testing.assert_array_equal(ref, 0)


def test_an_invalid_completion_is_out_of_statistics_loss_and_metrics():
    reward, valid = np.array([[1.0, 0, np.nan]]), np.array([[True, True, False]])

    def wide(array, fill):
        return np.concatenate([array, np.full((1, 1, *array.shape[2:]), fill, array.dtype)], axis=1)

    settings = {
        "old": wide(OLD, np.nan),
        "ref": wide(OLD + np.float32(0.5), np.nan),
        "mask": wide(MASK, 1),
        "reward": reward,
        "length": wide(LENGTH, 3),
        "valid": valid,
        "config": grpo.GRPOLossConfig(),
    }
    value, metrics = loss(wide(OLD, np.nan), **settings)
    want, want_metrics = loss(OLD, ref=OLD + np.float32(0.5), config=grpo.GRPOLossConfig())
    assert value == want
    assert metrics == want_metrics
    got_gradient = gradient(wide(OLD, np.nan), **settings)
    np.testing.assert_array_equal(got_gradient[:, 2], 0)
    assert jnp.all(jnp.isfinite(got_gradient))


def test_without_a_reference_kl_reads_zero():
    _, metrics = loss(OLD, ref=None)
    assert metrics["kl"] == 0


def test_with_beta_zero_a_reference_is_measured_and_not_trained_on():
    value, metrics = loss(OLD, ref=OLD + 1)
    assert value == loss(OLD)[0]
    np.testing.assert_allclose(metrics["kl"], 0.7182818, atol=1e-6)


def test_a_missing_reference_is_refused_where_the_loss_needs_one():
    with pytest.raises(ValueError, match=r"kl_beta=0\.04 needs reference log-probabilities, got None"):
        loss(OLD, config=grpo.GRPOLossConfig())


def test_the_objective_counts_clipped_tokens_on_both_sides():
    ratio = jnp.array([[1.5, 0.5, 1.0], [1.5, 0.5, 0.5]])
    mask = jnp.array([[True, True, True], [True, True, False]])
    zeros = jnp.zeros((2, 3))
    _, sums = grpo.grpo_objective(
        jnp.log(ratio), zeros, None, mask, jnp.array([[1.0] * 3, [-1.0] * 3]), jnp.array([0.1, 0.1]), config=PLAIN
    )
    counts = {name: float(sums[name]) for name in ("clipped_high", "clipped_low", "tokens")}
    assert counts == {"clipped_high": 1, "clipped_low": 1, "tokens": 5}


def test_shares_of_the_objective_add_up_to_the_loss():
    keys = jax.random.split(jax.random.key(1), 3)
    logprob, old, ref = (-jnp.abs(jax.random.normal(key, (2, 4, 5))) for key in keys)
    length = jnp.array([[1, 5, 3, 2], [4, 4, 1, 5]])
    mask = jnp.arange(5)[None, None] < length[:, :, None]
    reward = jnp.array([[1.0, 0, 0, 1], [0, 0.5, 0, 1]])
    config = grpo.GRPOLossConfig()
    whole, _ = loss(logprob, old=old, ref=ref, mask=mask, reward=reward, length=length, config=config)
    shaped = groups.shaped_reward(reward, length, config=config)
    weighed = groups.group_weights(shaped, length, jnp.ones_like(reward, bool), config=config)
    advantage = jnp.broadcast_to(weighed.advantage_BG[:, :, None], logprob.shape)
    arrays = [array.reshape(8, *array.shape[2:]) for array in (logprob, old, ref, mask, advantage, weighed.weight_BG)]
    objective = jax.jit(functools.partial(grpo.grpo_objective, config=config))
    for rows in (1, 2, 4, 8):
        shares = [objective(*(array[start : start + rows] for array in arrays))[0] for start in range(0, 8, rows)]
        np.testing.assert_allclose(sum(shares), whole, rtol=1e-5)


# --- variants of the composed loss, against a loop in float64

ROWS = [(1.0, 1), (0.0, 3), (0.5, 5), (0.25, 7)]  # reward and length of each completion


def arrays_of_one_group():
    random = np.random.default_rng(3)
    logprob, old, ref = random.uniform(-1.5, -0.5, (3, 1, 4, 7))
    length = np.array([[tokens for _, tokens in ROWS]])
    reward = np.array([[reward for reward, _ in ROWS]])
    return logprob, old, ref, np.arange(7)[None, None] < length[:, :, None], reward, length


def by_loops(advantage_of, token_loss, weight_of):
    """Sum of weight * token loss, one token after the other; both get indices of one completion."""
    logprob, old, ref, *_, length = arrays_of_one_group()
    total = 0.0
    for g in range(4):
        for t in range(length[0, g]):
            total += weight_of(g) * token_loss(advantage_of(g), logprob[0, g, t], old[0, g, t], ref[0, g, t], g)
    return total


def total_of_variant(**settings):
    logprob, old, ref, mask, reward, length = arrays_of_one_group()
    with jax.enable_x64(True):
        config = grpo.GRPOLossConfig(**settings)
        return float(grpo.grpo_loss(logprob, old, ref, mask, reward, length, config=config)[0])


REWARDS = np.array([reward for reward, _ in ROWS])
LENGTHS = np.array([tokens for _, tokens in ROWS])


def test_dr_grpo_by_loops():
    def token_loss(advantage, new, old, ref, g):
        ratio = np.exp(new - old)
        return -min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)

    want = by_loops(lambda g: REWARDS[g] - REWARDS.mean(), token_loss, lambda g: 1 / 4 / 10)
    got = total_of_variant(
        advantage="group_centered", aggregation="constant_length", constant_length_tokens=10, kl_beta=0.0
    )
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_dapo_by_loops():
    overlong = np.array([0.0, 0.0, -0.5, -1.0])  # lengths 1, 3, 5, 7 with a maximum of 6 and a cache of 2
    shaped = REWARDS + overlong

    def token_loss(advantage, new, old, ref, g):
        ratio = np.exp(new - old)
        return -min(ratio * advantage, min(max(ratio, 0.8), 1.28) * advantage)

    want = by_loops(lambda g: (shaped[g] - shaped.mean()) / (shaped.std() + 1e-6), token_loss, lambda g: 1 / 16)
    got = total_of_variant(
        aggregation="token_mean",
        clip_epsilon_high=0.28,
        overlong_max_tokens=6,
        overlong_cache_tokens=2,
        kl_beta=0.0,
    )
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_gspo_by_loops():
    logprob, old, *_ = arrays_of_one_group()

    def token_loss(advantage, new, old_, ref, g):
        ratio = np.exp(np.mean((logprob - old)[0, g, : LENGTHS[g]]))
        return -min(ratio * advantage, min(max(ratio, 0.9), 1.1) * advantage)

    want = by_loops(
        lambda g: (REWARDS[g] - REWARDS.mean()) / (REWARDS.std() + 1e-6), token_loss, lambda g: 1 / 4 / LENGTHS[g]
    )
    np.testing.assert_allclose(total_of_variant(ratio="sequence", clip_epsilon=0.1, kl_beta=0.0), want, rtol=1e-12)


def test_rloo_with_the_kl_in_the_reward_by_loops():
    _, old, ref, *_ = arrays_of_one_group()
    shaped = REWARDS - 0.05 * np.array([np.sum((old - ref)[0, g, : LENGTHS[g]]) for g in range(4)])

    def token_loss(advantage, new, old_, ref_, g):
        ratio = np.exp(new - old_)
        return -min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)

    want = by_loops(lambda g: shaped[g] - np.mean(np.delete(shaped, g)), token_loss, lambda g: 1 / 4 / LENGTHS[g])
    got = total_of_variant(advantage="leave_one_out", kl_beta=0.05, kl_estimator="k1", kl_placement="reward")
    np.testing.assert_allclose(got, want, rtol=1e-9)


def test_sapo_with_the_unbiased_kl_by_loops():
    def token_loss(advantage, new, old, ref, g):
        ratio, tau = np.exp(new - old), 1.0 if advantage > 0 else 1.05
        policy = -4 / tau / (1 + np.exp(-tau * (ratio - 1))) * advantage
        return policy + 0.1 * ratio * (np.exp(ref - new) - (ref - new) - 1)

    want = by_loops(
        lambda g: (REWARDS[g] - REWARDS.mean()) / (REWARDS.std(ddof=1) + 1e-6), token_loss, lambda g: 1 / 4 / LENGTHS[g]
    )
    got = total_of_variant(policy_loss="sapo", kl_beta=0.1, kl_estimator="k3_unbiased", advantage_ddof=1)
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_importance_weights_scale_the_policy_term_and_not_the_kl():
    logprob, old, ref, *_ = (jnp.asarray(array[0], jnp.float32) for array in arrays_of_one_group()[:3])
    mask, weight = jnp.ones((4, 7), bool), jnp.full(4, 1 / 28)
    config = grpo.GRPOLossConfig(importance="token", importance_cap=2.0)
    objective = functools.partial(grpo.grpo_objective, logprob, old, ref, mask, jnp.ones((4, 7)), weight)
    plain, sums = objective(config=grpo.GRPOLossConfig())
    doubled, doubled_sums = objective(old - 5, config=config)
    np.testing.assert_allclose(doubled_sums["policy_loss"], 2 * sums["policy_loss"], rtol=1e-5)
    np.testing.assert_allclose(doubled - doubled_sums["policy_loss"], plain - sums["policy_loss"], atol=1e-6)


def test_a_missing_sampler_is_our_fault_where_a_correction_needs_it():
    flat = jnp.zeros((2, 3))
    with pytest.raises(AssertionError, match="needs the sampler's log-probabilities"):
        grpo.grpo_objective(
            flat,
            flat,
            None,
            flat == 0,
            flat,
            jnp.ones(2),
            config=grpo.GRPOLossConfig(kl_beta=0.0, importance="token"),
        )


@pytest.mark.parametrize("poison", [-200.0, -np.inf, np.nan])
def test_an_inactive_group_cannot_poison_the_loss(poison):
    # The second group's rewards are equal, so whatever its log-probabilities hold has no part in the loss.
    ones = jnp.ones((2, 2, 3), bool)
    logprob = -jnp.abs(jax.random.normal(jax.random.key(0), (2, 2, 3)))
    reward, length = jnp.array([[0.0, 1.0], [1.0, 1.0]]), jnp.full((2, 2), 3)

    def both(logprob, old):
        config = grpo.GRPOLossConfig(kl_beta=0.04)
        return grpo.grpo_loss(logprob, old, logprob - 0.1, ones, reward, length, config=config)[0]

    clean = jax.value_and_grad(both)(logprob, logprob)
    broken = jax.value_and_grad(both)(logprob, logprob.at[1].set(poison))
    for got, want in zip(broken, clean, strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_ratio_that_overflows_has_a_finite_gradient():
    ones = jnp.ones((1, 2, 1), bool)
    old = jnp.full((1, 2, 1), -200.0)
    reward, length = jnp.array([[0.0, 1.0]]), jnp.ones((1, 2), int)
    config = grpo.GRPOLossConfig(kl_beta=0.0)
    loss = lambda logprob: grpo.grpo_loss(logprob, old, None, ones, reward, length, config=config)[0]  # noqa: E731
    gradient = jax.grad(loss)(jnp.full((1, 2, 1), -1.0))
    assert np.isfinite(gradient).all()
    assert gradient[0, 1, 0] == 0


def test_a_reward_that_is_not_finite_takes_no_part():
    ones = jnp.ones((1, 4, 2), bool)
    zeros, reward = jnp.zeros((1, 4, 2)), jnp.array([[1.0, 0.0, jnp.nan, 1.0]])
    config = grpo.GRPOLossConfig(kl_beta=0.0)
    _, metrics = grpo.grpo_loss(zeros, zeros, None, ones, reward, jnp.full((1, 4), 2), config=config)
    np.testing.assert_allclose(metrics["mean_reward"], 2 / 3, rtol=1e-6)
    assert metrics["active_group_ratio"] == 1


def test_settings_that_would_be_ignored_are_refused():
    with pytest.raises(ValueError, match=r"GRPOLossConfig\.kl_beta: got -1"):
        grpo.GRPOLossConfig(kl_beta=-1.0)
    with pytest.raises(ValueError, match=r"GRPOLossConfig\.clip_epsilon: got 0.0, wanted more than 0"):
        grpo.GRPOLossConfig(clip_epsilon=0.0)
