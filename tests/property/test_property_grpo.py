"""What must hold for any batch: invariances of advantages, and the loss against a plain float64 loop."""

import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from grpo_jax.algorithms import advantages, grpo, kl

B, G, T = 2, 4, 5
EPSILON = 1e-6
CONFIG = grpo.GRPOLossConfig(length_penalty=0.05, length_budget_tokens=2)
NO_KL = grpo.GRPOLossConfig(kl_beta=0.0)

# Tenths: differing rewards are far from the floors of activity, and most are not exact in binary.
rewards = st_numpy.arrays(np.int32, (B, G), elements=st.integers(-10, 10)).map(
    lambda tenths: (tenths / 10).astype(np.float32)
)
lengths = st_numpy.arrays(np.int32, (B, G), elements=st.integers(0, T))
validity = st_numpy.arrays(np.bool_, (B, G))
logprobs = st_numpy.arrays(np.float32, (B, G, T), elements=st.floats(-3, 0, width=32))
fills = st.sampled_from([1e6, -1e6, np.inf, np.nan])


@functools.partial(jax.jit, static_argnames="config")
def compiled(logprob, old, ref, reward_BG, length_BG, valid_BG, *, config):
    """Loss, metrics and the gradient with respect to the policy's log-probabilities."""

    def loss(logprob):
        mask_BGT = jnp.arange(T)[None, None] < length_BG[:, :, None]
        return grpo.grpo_loss(logprob, old, ref, mask_BGT, reward_BG, length_BG, config=config, valid_BG=valid_BG)

    return jax.value_and_grad(loss, has_aux=True)(logprob)


def run(*arrays, config=CONFIG):
    return jax.tree.map(np.asarray, compiled(*arrays, config=config))


normalized = jax.jit(functools.partial(advantages.group_normalized, variance_epsilon=EPSILON))
EVERYONE = np.ones((B, G), bool)


def filled(array_BGT, length_BG, fill):
    return np.where(np.arange(T) < length_BG[:, :, None], array_BGT, np.float32(fill))


def loss_by_loops(logprob, old, ref, reward_BG, length_BG, valid_BG):
    """The formula as it is written down, one completion after the other, in float64."""
    group_losses = []
    for b in range(B):
        members = [g for g in range(G) if valid_BG[b, g]]
        penalty = {
            g: CONFIG.length_penalty * max(0, int(length_BG[b, g]) - CONFIG.length_budget_tokens) for g in members
        }
        shaped = {g: float(reward_BG[b, g]) - penalty[g] for g in members}
        values = np.array(list(shaped.values()))
        if not members or values.std() <= EPSILON or np.ptp(values) <= 1e-6 * max(1, abs(values.mean())):
            continue
        completion_losses = []
        for g in members:
            advantage = (shaped[g] - values.mean()) / (values.std() + EPSILON)
            token_losses = []
            for t in range(length_BG[b, g]):
                new, past, anchor = (float(array[b, g, t]) for array in (logprob, old, ref))
                ratio = np.exp(new - past)
                policy = -min(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage)
                token_losses.append(policy + 0.04 * (np.exp(anchor - new) - (anchor - new) - 1))
            completion_losses.append(np.mean(token_losses) if token_losses else 0.0)
        group_losses.append(np.mean(completion_losses))
    return np.mean(group_losses) if group_losses else 0.0


@hypothesis.given(logprobs, logprobs, logprobs, rewards, lengths, validity)
def test_the_loss_is_the_formula(logprob, old, ref, reward, length, valid):
    (loss, _), _ = run(logprob, old, ref, reward, length, valid)
    want = loss_by_loops(logprob, old, ref, reward, length, valid)
    np.testing.assert_allclose(loss, want, rtol=2e-5, atol=2e-5)


@hypothesis.given(logprobs, logprobs, logprobs, rewards, lengths, validity, fills)
def test_pads_change_nothing_bit_for_bit(logprob, old, ref, reward, length, valid, fill):
    clean = run(*(filled(array, length, 0) for array in (logprob, old, ref)), reward, length, valid)
    dirty = run(*(filled(array, length, fill) for array in (logprob, old, ref)), reward, length, valid)
    jax.tree.map(np.testing.assert_array_equal, dirty, clean)
    _, gradient = dirty
    np.testing.assert_array_equal(gradient[np.arange(T) >= length[:, :, None]], 0)


@hypothesis.given(logprobs, rewards, lengths, validity, fills)
def test_what_invalid_completions_hold_changes_nothing_bit_for_bit(logprob, reward, length, valid, fill):
    poisoned = [np.where(valid[:, :, None], array, np.float32(fill)) for array in (logprob, logprob - 1, logprob + 1)]
    dirty = run(*poisoned, np.where(valid, reward, np.float32(fill)), length, valid)
    clean = run(logprob, logprob - 1, logprob + 1, reward, length, valid)
    jax.tree.map(np.testing.assert_array_equal, dirty, clean)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(dirty))


@hypothesis.given(rewards, st.permutations(range(G)))
def test_permuting_completions_permutes_advantages(reward, order):
    straight, permuted = normalized(reward, EVERYONE), normalized(reward[:, order], EVERYONE)
    np.testing.assert_array_equal(permuted.active_B, straight.active_B)
    np.testing.assert_allclose(permuted.advantage_BG, straight.advantage_BG[:, np.array(order)], atol=1e-5)


@hypothesis.given(rewards, validity)
def test_advantages_of_a_group_have_mean_zero_and_spread_one_or_are_zero(reward, valid):
    advantage = jax.tree.map(np.asarray, normalized(reward, valid))
    np.testing.assert_array_equal(advantage.advantage_BG[~valid], 0)
    for b in range(B):
        group, values = advantage.advantage_BG[b, valid[b]], reward[b, valid[b]]
        assert advantage.active_B[b] == (len(set(values.tolist())) > 1)
        if advantage.active_B[b]:
            np.testing.assert_allclose([group.sum(), group.std()], [0, 1], atol=1e-4)
        else:
            np.testing.assert_array_equal(group, 0)


@hypothesis.given(rewards, st.floats(-8, 8), st.floats(0.5, 8))
def test_shift_and_scale_of_rewards_leave_advantages_unchanged(reward, shift, scale):
    straight = normalized(reward, EVERYONE)
    for other in (reward + np.float32(shift), reward * np.float32(scale)):
        moved = normalized(other, EVERYONE)
        np.testing.assert_array_equal(moved.active_B, straight.active_B)
        # A sigma of at least 0.04: rounding of the shifted rewards and epsilon both stay below this.
        np.testing.assert_allclose(moved.advantage_BG, straight.advantage_BG, atol=2e-4)


@hypothesis.given(logprobs, rewards, lengths)
def test_a_ratio_of_one_gives_the_gradient_of_reinforce(logprob, reward, length):
    _, gradient = run(logprob, logprob, None, reward, length, EVERYONE, config=NO_KL)
    advantage = jax.tree.map(np.asarray, normalized(reward, EVERYONE))
    active = max(int(advantage.active_B.sum()), 1)
    per_token = -advantage.advantage_BG / (active * G * np.maximum(length, 1))
    want = np.where(np.arange(T) < length[:, :, None], per_token[:, :, None], 0)
    np.testing.assert_allclose(gradient, want, rtol=1e-5, atol=1e-7)


@hypothesis.given(
    st_numpy.arrays(np.float32, 64, elements=st.floats(-40, 0, width=32)),
    st_numpy.arrays(np.float32, 64, elements=st.floats(-40, 0, width=32)),
)
def test_k3_is_never_negative(logprob, ref_logprob):
    assert np.all(np.asarray(jax.jit(kl.k3)(jnp.asarray(logprob), jnp.asarray(ref_logprob))) >= 0)


@hypothesis.given(logprobs, logprobs, lengths, st.lists(st.floats(-2, 2, width=32), min_size=B, max_size=B))
def test_no_active_group_gives_a_loss_and_a_gradient_of_exactly_zero(logprob, old, length, level):
    reward = np.repeat(np.array(level, np.float32)[:, None], G, axis=1)
    config = grpo.GRPOLossConfig()
    (loss, metrics), gradient = run(logprob, old, old, reward, length, EVERYONE, config=config)
    assert loss == 0
    assert metrics["active_group_ratio"] == 0
    np.testing.assert_array_equal(gradient, 0)


SIZES = (2, 3, 4, 5, 6, 7, 8, 12, 16, 33, 64)


@jax.jit
def largest_advantages(reward_NG):
    """For groups of the first 2, 3, ..., 64 completions, and for groups that were made with some of these sizes."""
    rows, columns = reward_NG.shape
    first_SNG = jnp.broadcast_to(
        jnp.arange(columns)[None, None] < jnp.arange(2, columns + 1)[:, None, None], (columns - 1, rows, columns)
    )
    masked = normalized(jnp.tile(reward_NG, (columns - 1, 1)), first_SNG.reshape(-1, columns))
    whole = [normalized(reward_NG[:, :size], jnp.ones((rows, size), bool)) for size in SIZES]
    return jnp.stack([jnp.max(jnp.abs(result.advantage_BG)) for result in (masked, *whole)])


def parts_between(low, high):
    return st_numpy.arrays(np.float32, (8, 5), elements=st.floats(low, high, width=32))


# Sums of five such parts differ by less than the floor of activity, whatever their order; large ones by more than
# epsilon alone would stop.
parts = parts_between(-1, 1) | parts_between(0, 256)


@hypothesis.given(parts, st.randoms(use_true_random=False))
def test_equal_rewards_give_advantages_of_exactly_zero_for_any_group_size(parts, random):
    equal = np.repeat(np.sum(parts, axis=1, keepdims=True), 64, axis=1)
    reordered = np.zeros((8, 64), np.float32)
    for column in range(64):
        for part in random.sample(range(5), 5):
            reordered[:, column] += parts[:, part]
    for reward_BG in (equal, reordered):
        np.testing.assert_array_equal(largest_advantages(reward_BG), 0)


def test_the_classical_residues_are_exactly_zero():
    values = np.array([0.1, 0.2, 0.3, 0.35, 0.7, 1 / 3, 0.9, 1.1], np.float32)
    np.testing.assert_array_equal(largest_advantages(np.repeat(values[:, None], 64, axis=1)), 0)
