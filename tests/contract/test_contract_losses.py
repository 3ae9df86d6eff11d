"""What every loss must do, in float64: the same suite over every preset and over every value of every choice.

Arrays are ``[B, G, T]`` as in the objective. Groups 0, 2 and 3 carry a signal; group 1 is inactive under every loss:
rewards, lengths and the distance to the reference are the same for all its completions.
"""

import dataclasses
import functools
import itertools
import typing
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.algorithms import presets
from grpo_jax.algorithms import groups, grpo, kl, logprobs
from grpo_jax.algorithms.settings import GRPOLossConfig
from tests.contract import losses

B, G, T = 4, 4, 8
LENGTHS = np.array([[1, 3, 5, 7], [5, 5, 5, 5], [7, 1, 3, 5], [3, 7, 1, 5]])
REWARDS = np.array([[1, 0, 0.5, 0.25], [0.35] * 4, [0, 1, 1, 0], [2, 0, 0, 0]])
SECOND_REWARDS = np.array([[0, 1, 0, 0], [0.7] * 4, [0, 0, 1, 1], [1, 1, 0, 1]], float)
ACTIVE = [0, 2, 3]
EXACT = {"rtol": 1e-10, "atol": 1e-10}
"""Results whose sums run in another order."""

FAST_COMPILE = {"xla_backend_optimization_level": 0}
"""Programs that run once or twice are not worth optimising."""

every_loss = pytest.mark.parametrize("name", losses.NAMES)


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


class Batch(NamedTuple):
    """A judged batch with its log-probabilities."""

    logprob: typing.Any
    old: typing.Any
    ref: typing.Any
    sampler: typing.Any
    length: typing.Any
    reward: typing.Any
    part: typing.Any
    valid: typing.Any

    @property
    def mask(self):
        return (jnp.arange(T)[None, None] < self.length[:, :, None]) & self.valid[:, :, None]


class Result(NamedTuple):
    """What the objective makes of a batch; a gradient is by the policy's log-probabilities."""

    loss: typing.Any
    sums: typing.Any
    gradient: typing.Any
    advantage: typing.Any
    weight: typing.Any
    active: typing.Any


@functools.cache
def standard_batch(seed=0):
    """Ratios on both sides of every bound: log-probabilities differ by up to 0.5 from token to token."""
    random = np.random.default_rng(seed)
    old = random.uniform(-3, -1, (B, G, T))
    near = lambda: old + random.uniform(-0.5, 0.5, (B, G, T))  # noqa: E731
    logprob, ref, sampler = near(), near(), near()
    ref[1] = old[1]
    part = np.stack([REWARDS, SECOND_REWARDS], axis=2)
    return Batch(logprob, old, ref, sampler, LENGTHS, REWARDS, part, np.ones((B, G), bool))


def weigh(batch, config):
    """Shapes rewards and weighs completions, as training does."""
    kl_BG = groups.completion_kl(batch.old, batch.ref, batch.mask, config.kl_estimator)
    shaped = groups.shaped_reward(batch.reward, batch.length, kl_BG, config=config)
    penalty = groups.shaped_reward(jnp.zeros_like(batch.reward), batch.length, kl_BG, config=config)
    parts = jnp.concatenate([batch.part, penalty[:, :, None]], axis=2)[:, :, -len(config.reward_weights) :]
    return groups.group_weights(shaped, jnp.sum(batch.mask, axis=2), batch.valid, parts, config=config)


def flattened(batch, weighed, advantage_fill=0.0):
    """The arguments of the objective, as N = B * G rows."""
    advantage = jnp.where(batch.mask, weighed.advantage_BG[:, :, None], advantage_fill)
    arrays = (batch.logprob, batch.old, batch.ref, batch.mask, advantage, weighed.weight_BG, batch.sampler)
    return [array.reshape(-1, *array.shape[2:]) for array in arrays]


def differentiated(rows, config):
    logprob, *others = rows
    (loss, sums), gradient = jax.value_and_grad(
        lambda logprob: grpo.grpo_objective(logprob, *others, config=config), has_aux=True
    )(logprob)
    return loss, sums, gradient


@functools.partial(jax.jit, static_argnames=("config", "micro_batches"), compiler_options=FAST_COMPILE)
def compiled(batch, advantage_fill, *, config, micro_batches):
    weighed = weigh(batch, config)
    rows = flattened(batch, weighed, advantage_fill)
    pieces = [array.reshape(micro_batches, -1, *array.shape[1:]) for array in rows]
    loss, sums, gradient = jax.lax.map(lambda piece: differentiated(piece, config), pieces)
    total = lambda share: jnp.sum(share, axis=0)  # noqa: E731
    gradient = gradient.reshape(batch.logprob.shape)
    return Result(total(loss), jax.tree.map(total, sums), gradient, *weighed)


def evaluate(batch, config, micro_batches=1, advantage_fill=0.0):
    batch = jax.tree.map(jnp.asarray, batch)
    return jax.tree.map(np.asarray, compiled(batch, advantage_fill, config=config, micro_batches=micro_batches))


@functools.partial(jax.jit, static_argnames="config", compiler_options=FAST_COMPILE)
def compiled_rows(rows, *, config):
    return differentiated(rows, config)


@functools.cache
def standard_result(name):
    result = evaluate(standard_batch(), losses.loss_config(name))
    np.testing.assert_array_equal(result.active, np.isin(range(B), ACTIVE))
    assert result.gradient.dtype == np.float64
    assert np.max(np.abs(result.gradient)) > 1e-3, "a gradient of nothing compares equal to anything"
    return result


def with_fills(batch, fill):
    """The batch with ``fill`` wherever the mask is False."""
    mask = np.asarray(batch.mask)
    hidden = {of: np.where(mask, getattr(batch, of), fill) for of in ("logprob", "old", "ref", "sampler")}
    return batch._replace(**hidden)


def some_invalid(batch):
    valid = np.ones((B, G), bool)
    valid[[0, 2, 3], [1, 3, 2]] = False
    return batch._replace(valid=valid)


# --- the table


def test_every_value_of_every_choice_and_every_preset_is_in_the_table():
    configs = [losses.loss_config(name) for name in losses.NAMES]
    hints = typing.get_type_hints(GRPOLossConfig)
    choices = {
        field: typing.get_args(hint) for field, hint in hints.items() if typing.get_origin(hint) is typing.Literal
    }
    assert len(choices) == 7
    for field, values in choices.items():
        missing = set(values) - {getattr(config, field) for config in configs}
        assert not missing, f"{field}={missing} is in no loss of tests/contract/losses.py"
    assert set(presets.PRESETS) <= set(losses.NAMES)
    assert any(config.dual_clip and config.clip_epsilon_high for config in configs)
    assert any(config.overlong_max_tokens for config in configs)
    assert any(config.advantage_ddof for config in configs)


def test_losses_of_the_table_differ():
    results = {name: float(standard_result(name).loss) for name in losses.NAMES}
    for one, other in itertools.combinations(losses.NAMES, 2):
        assert results[one] != results[other], (one, other)


# --- batching


@every_loss
@pytest.mark.parametrize("micro_batches", [2, 4])
def test_micro_batches_add_up_to_the_whole_batch(name, micro_batches):
    want, got = standard_result(name), evaluate(standard_batch(), losses.loss_config(name), micro_batches)
    np.testing.assert_allclose(got.loss, want.loss, **EXACT)
    np.testing.assert_allclose(got.gradient, want.gradient, **EXACT)
    for key, value in want.sums.items():
        np.testing.assert_allclose(got.sums[key], value, **EXACT, err_msg=key)


@every_loss
def test_rows_of_weight_zero_may_be_left_out(name):
    config, batch, want = losses.loss_config(name), standard_batch(), standard_result(name)
    weighed = groups.GroupWeights(want.advantage, want.weight, want.active)
    rows = flattened(jax.tree.map(jnp.asarray, batch), weighed)
    kept = np.flatnonzero(want.weight.reshape(-1))
    assert len(kept) == 3 * G
    loss, _, gradient = compiled_rows([array[kept] for array in rows], config=config)
    np.testing.assert_allclose(loss, want.loss, **EXACT)
    whole = np.zeros((B * G, T))
    whole[kept] = gradient
    np.testing.assert_allclose(whole.reshape(B, G, T), want.gradient, **EXACT)


@every_loss
def test_the_composed_loss_is_the_sum_of_its_halves(name):
    # It has one log-probability for sampler and trainer, and one reward.
    config = dataclasses.replace(losses.loss_config(name), reward_weights=(1.0,))
    batch = standard_batch()
    batch = some_invalid(batch._replace(sampler=batch.old))

    @jax.jit
    def composed(logprob):
        arrays = (batch.old, batch.ref, batch.mask, batch.reward, batch.length)
        return jax.value_and_grad(
            lambda logprob: grpo.grpo_loss(logprob, *arrays, config=config, valid_BG=batch.valid)[0]
        )(logprob)

    loss, gradient = composed(jnp.asarray(batch.logprob))
    if config.advantage == "decoupled_normalized":
        weighed = weigh_single_reward(batch, config)
        want_loss, _, want = compiled_rows(flattened(jax.tree.map(jnp.asarray, batch), weighed), config=config)
        want = want.reshape(B, G, T)
    else:
        want_loss, _, want, *_ = evaluate(batch, losses.loss_config(name))
    np.testing.assert_allclose(loss, want_loss, **EXACT)
    np.testing.assert_allclose(gradient, want, **EXACT)


def weigh_single_reward(batch, config):
    shaped = groups.shaped_reward(jnp.asarray(batch.reward), jnp.asarray(batch.length), config=config)
    counts = jnp.sum(batch.mask, axis=2)
    return groups.group_weights(shaped, counts, jnp.asarray(batch.valid), shaped[:, :, None], config=config)


HIDDEN, UNEMBEDDING, TOKENS = (
    np.random.default_rng(1).normal(size=(B * G, T, 5)),
    np.random.default_rng(2).normal(size=(5, 11)),
    np.random.default_rng(3).integers(0, 11, (B * G, T)),
)


@functools.cache
def scored(chunk_tokens):
    """Log-probabilities of a last layer in chunks, and what takes their gradient to it."""

    def forward(hidden, unembedding):
        tokens = jnp.asarray(TOKENS)
        chunks = logprobs.chunked(hidden, unembedding, tokens, temperature=0.6, chunk_tokens=chunk_tokens)
        return chunks.logprob_NT.reshape(B, G, T)

    arrays = jnp.asarray(HIDDEN), jnp.asarray(UNEMBEDDING)
    logprob, backward = jax.vjp(jax.jit(forward), *arrays)
    return np.asarray(logprob), backward


@every_loss
def test_chunks_of_log_probabilities_leave_loss_and_gradient(name):
    # One position of two rows, three positions of all rows (which do not divide the eight), and everything.
    def of(chunk_tokens):
        logprob, backward = scored(chunk_tokens)
        whole, _ = scored(B * G * T)
        shift = whole - standard_batch().logprob
        batch = standard_batch()
        batch = batch._replace(
            logprob=logprob, old=batch.old + shift, ref=batch.ref + shift, sampler=batch.sampler + shift
        )
        result = evaluate(batch, losses.loss_config(name))
        return result.loss, *backward(jnp.asarray(result.gradient))

    want = of(B * G * T)
    assert np.max(np.abs(want[2])) > 1e-3
    for chunk_tokens in (2, 3 * B * G):
        for got, wanted in zip(of(chunk_tokens), want, strict=True):
            np.testing.assert_allclose(got, wanted, **EXACT)


# --- what is hidden


@every_loss
def test_pads_change_nothing_bit_for_bit(name):
    batch, config = some_invalid(standard_batch()), losses.loss_config(name)
    clean = evaluate(with_fills(batch, 0.0), config)
    assert np.isfinite(clean.loss)
    np.testing.assert_array_equal(clean.gradient[~np.asarray(batch.mask)], 0)
    for fill in (1e6, -1e6, np.nan):
        jax.tree.map(
            np.testing.assert_array_equal, evaluate(with_fills(batch, fill), config, advantage_fill=fill), clean
        )


@every_loss
def test_invalid_rows_are_out_of_statistics_and_denominators(name):
    # The last completion of each group: there but invalid, with NaN in all it holds, or not there at all.
    batch, config = standard_batch(), losses.loss_config(name)
    last = np.arange(G) == G - 1
    poisoned = batch._replace(
        reward=np.where(last, np.nan, batch.reward),
        part=np.where(last[:, None], np.nan, batch.part),
        valid=np.broadcast_to(~last, (B, G)),
    )
    got = evaluate(with_fills(poisoned, np.nan), config)
    want = evaluate(jax.tree.map(lambda array: array[:, :-1], batch), config)
    assert abs(want.loss - standard_result(name).loss) > 1e-6, "the last completions had no say anyway"
    np.testing.assert_allclose(got.loss, want.loss, **EXACT)
    np.testing.assert_array_equal(got.gradient[:, -1], 0)
    np.testing.assert_allclose(got.gradient[:, :-1], want.gradient, **EXACT)
    np.testing.assert_allclose(got.advantage[:, :-1], want.advantage, **EXACT)


@every_loss
def test_the_length_of_an_inactive_group_has_no_say(name):
    want, batch = standard_result(name), standard_batch()
    inactive = ~np.isin(np.arange(B), ACTIVE)[:, None]
    got = evaluate(batch._replace(length=np.where(inactive, 2, batch.length)), losses.loss_config(name))
    np.testing.assert_allclose(got.loss, want.loss, **EXACT)
    np.testing.assert_allclose(got.gradient, want.gradient, **EXACT)


@every_loss
def test_without_an_active_group_loss_and_gradient_are_zero(name):
    batch = standard_batch()
    level = np.array([[0.1], [0.35], [1 / 3], [1]])
    equal = batch._replace(
        ref=batch.old,
        length=np.full((B, G), 5),
        reward=np.broadcast_to(level, (B, G)),
        part=np.broadcast_to(level[:, :, None], (B, G, 2)),
    )
    result = evaluate(equal, losses.loss_config(name))
    assert result.loss == 0
    for zeros in (result.gradient, result.advantage, result.weight, result.active):
        np.testing.assert_array_equal(zeros, 0)


# --- advantages


@every_loss
def test_permuting_completions_permutes_advantages_and_leaves_the_loss(name):
    want = standard_result(name)
    order = np.array([[2, 0, 3, 1], [1, 0, 2, 3], [3, 2, 1, 0], [1, 2, 3, 0]])
    permute = lambda array: array[np.arange(B)[:, None], order]  # noqa: E731
    got = evaluate(Batch(*map(permute, standard_batch())), losses.loss_config(name))
    np.testing.assert_allclose(got.loss, want.loss, **EXACT)
    np.testing.assert_allclose(got.advantage, permute(want.advantage), **EXACT)
    np.testing.assert_allclose(got.weight, permute(want.weight), **EXACT)
    np.testing.assert_allclose(got.gradient, permute(want.gradient), **EXACT)


@every_loss
def test_advantages_of_a_group_add_up_to_zero(name):
    # Under every estimator: each one scales deviations from the mean of the group's valid completions by numbers
    # that all of them share. That holds for the batch's spread as well, with and without invalid completions.
    for result in (standard_result(name), evaluate(some_invalid(standard_batch()), losses.loss_config(name))):
        assert np.all(np.max(np.abs(result.advantage[ACTIVE]), axis=1) > 0.1)
        np.testing.assert_allclose(np.sum(result.advantage, axis=1), 0, atol=1e-10)


@every_loss
def test_a_shift_of_rewards_leaves_everything(name):
    batch, want = standard_batch(), standard_result(name)
    got = evaluate(batch._replace(reward=batch.reward - 2.5, part=batch.part + 10.5), losses.loss_config(name))
    np.testing.assert_array_equal(got.active, want.active)
    np.testing.assert_allclose(got.advantage, want.advantage, **EXACT)
    np.testing.assert_allclose(got.loss, want.loss, **EXACT)


@every_loss
def test_a_scale_of_rewards_leaves_normalised_advantages_up_to_epsilon(name):
    config, batch = losses.loss_config(name), standard_batch()

    def advantage(scale, epsilon):
        reward, part = scale * jnp.asarray(batch.reward), scale * jnp.asarray(batch.part)
        counts, valid = jnp.asarray(batch.length), jnp.asarray(batch.valid)
        settings = dataclasses.replace(config, variance_epsilon=epsilon)
        weights = len(config.reward_weights)
        return np.asarray(groups.group_weights(reward, counts, valid, part[:, :, :weights], config=fitted(settings))[0])

    def fitted(settings):
        return dataclasses.replace(settings, reward_weights=settings.reward_weights[:2])

    unscaled = config.advantage in ("group_centered", "leave_one_out")
    for scale in (0.25, 3.0):
        want = advantage(1.0, 1e-6) * (scale if unscaled else 1)
        np.testing.assert_allclose(advantage(scale, 1e-6), want, rtol=0 if unscaled else 2e-5, atol=1e-10)
        want = advantage(1.0, 1e-13) * (scale if unscaled else 1)
        np.testing.assert_allclose(advantage(scale, 1e-13), want, **EXACT)


# --- gradients and signs


@every_loss
def test_a_ratio_of_one_gives_the_gradient_of_reinforce(name):
    config = dataclasses.replace(losses.loss_config(name), kl_beta=0.0)
    batch = standard_batch()
    result = evaluate(batch._replace(logprob=batch.old, sampler=batch.old), config)
    want = -result.weight[:, :, None] * result.advantage[:, :, None] * np.asarray(batch.mask)
    assert np.max(np.abs(want)) > 1e-2
    np.testing.assert_allclose(result.gradient, want, **EXACT)


@every_loss
def test_the_kl_is_never_negative(name):
    result, config, batch = standard_result(name), losses.loss_config(name), standard_batch()
    assert result.sums["kl"] > 0, "k3 is what every loss reports"
    token_kl = kl.estimate(config.kl_estimator, *map(jnp.asarray, (batch.logprob, batch.ref, batch.old)))
    if config.kl_estimator != "k1":
        assert np.all(np.asarray(token_kl) >= 0)
    in_loss = config.kl_beta > 0 and config.kl_placement == "loss"
    weighted = np.sum(result.weight[:, :, None] * np.asarray(batch.mask * token_kl)) if in_loss else 0
    np.testing.assert_allclose(result.loss - result.sums["policy_loss"], config.kl_beta * weighted, **EXACT)
