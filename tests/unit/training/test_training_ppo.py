"""PPO's batches and updates of a tiny model: no batching, padding or sharding changes the result."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from grpo_jax import config as config_lib
from grpo_jax.algorithms import gae
from grpo_jax.algorithms import ppo as ppo_algorithm
from grpo_jax.models import decoder
from grpo_jax.models.spec import ModelSpec
from grpo_jax.models.value_head import value_head_axes
from grpo_jax.parallel import mesh as mesh_lib
from grpo_jax.parallel import rules
from grpo_jax.rollout.engine import Rollout
from grpo_jax.training import critic as critic_lib
from grpo_jax.training import ppo, recipe
from grpo_jax.training.judged import JudgedBatch
from grpo_jax.training.trainer import RECIPES

B, G, P, T, V = 4, 4, 6, 8, 14
SPEC = ModelSpec(
    vocab_size=V, num_layers=2, d_model=16, num_heads=2, num_kv_heads=2, head_dim=8, d_ff=16, logprob_chunk_tokens=40
)
TEMPERATURE, KL_BETA, GAMMA, GAE_LAMBDA = 0.6, 0.1, 0.95, 0.9
ADAM = config_lib.OptimizerConfig(learning_rate=0.01, warmup_steps=0, weight_decay=0.1)
# The first moment of the first update is the gradient itself: b1 is 0 and the clip is out of reach.
GRADIENT_IN_MOMENT = config_lib.OptimizerConfig(b1=0.0, max_grad_norm=1e9)
EVERYONE = np.ones((B, G), bool)
REWARDS = np.array([[1, 0, 0, 1], [0, 1, 0, 0], [0.2, 0.7, 1, 0], [1, 1, 1, 1]], np.float32)


def on_mesh(data=1, fsdp=1, tensor=1):
    """Makes the first devices the mesh in use."""
    sizes = {"data": data, "fsdp": fsdp, "tensor": tensor, "context": 1, "expert": 1}
    return jax.set_mesh(mesh_lib.make_mesh(sizes, jax.devices()[: data * fsdp * tensor]))


@pytest.fixture(autouse=True)
def one_device():
    with on_mesh():
        yield


@functools.cache
def host_params(seed=0):
    spec = dataclasses.replace(SPEC, init_std=0.3, embedding_init_std=1.0)
    return jax.tree.map(
        np.asarray, jax.jit(decoder.init_params, static_argnames="spec")(jax.random.key(seed), spec=spec)
    )


@functools.cache
def host_head():
    return {"weight": np.random.default_rng(5).normal(size=16).astype(np.float32), "bias": np.float32(0.3)}


def placed(params):
    return jax.tree.map(lambda array, like: jax.device_put(array, like.sharding), params, recipe.abstract_params(SPEC))


@functools.cache
def make_recipe(micro_batch=8, optimizer=GRADIENT_IN_MOMENT, kl_beta=KL_BETA, **algorithm):
    run = config_lib.RunConfig(
        steps=10,
        recipe="ppo",
        rollout=config_lib.RolloutConfig(prompts_per_step=B, completions_per_prompt=G, temperature=TEMPERATURE),
        algorithm=config_lib.AlgorithmConfig(micro_batch_completions=micro_batch, **algorithm),
        ppo=config_lib.PPOConfig(gamma=GAMMA, gae_lambda=GAE_LAMBDA, kl_beta=kl_beta, critic=optimizer),
        optimizer=optimizer,
    )
    run.validate()
    return RECIPES["ppo"](run, SPEC)


def fresh_state(made):
    """A state whose reference differs from the policy, and whose values are not 0; its buffers may be given away."""
    state = jax.jit(made.init)(placed(host_params()))
    head = {name: jax.device_put(host_head()[name], leaf.sharding) for name, leaf in value_head(state).items()}
    critic = state.critic._replace(params=state.critic.params | {"value_head": head})
    reference = state.actor.reference and placed(host_params(1))
    return ppo.PPOState(state.actor._replace(reference=reference), critic)


def value_head(state):
    return state.critic.params["value_head"]


@functools.cache
def rollout():
    random = np.random.default_rng(0)
    length_BG = np.tile(np.array([1, 3, 5, 7], np.int32), (B, 1))
    return Rollout(
        prompt_BP=random.integers(0, V, (B, P)).astype(np.int32),
        prompt_length_B=np.array([6, 2, 4, 1], np.int32),
        token_BGT=random.integers(0, V, (B, G, T)).astype(np.int32),
        logprob_BGT=random.uniform(-4, -1, (B, G, T)).astype(np.float32),
        length_BG=length_BG,
        finish_BG=np.zeros_like(length_BG),
        policy_version=0,
    )


def outcome(reward_BG=REWARDS, valid_BG=EVERYONE):
    """What a judge with a single reward says."""
    return recipe.Outcome(reward_BG, reward_BG[:, :, None], valid_BG)


def first_update(made, judgement=None, batch=None):
    """Gradients and metrics of one update."""
    state = fresh_state(made)
    prepared, metrics = made.prepare(state, batch or rollout(), judgement or outcome(), 1)
    state, updated = made.update(state, prepared)
    gradients = [optax.tree.get(part.optimizer, "mu") for part in state]
    return jax.tree.map(np.asarray, (gradients, {**metrics, **updated}))


@jax.jit
def dense(params, head):
    """Log-probabilities and values of all rows at once, right-padded, from whole logits."""
    batch, shape = rollout(), (B * G, P + T)
    token_NS = np.zeros(shape, np.int32)
    starts = np.repeat(batch.prompt_length_B, G)
    for n, start in enumerate(starts):
        token_NS[n, :start] = batch.prompt_BP[n // G, P - start :]
        token_NS[n, start : start + T] = batch.token_BGT[n // G, n % G]
    position_NS = np.broadcast_to(np.arange(P + T)[None], shape)
    hidden_NSD = decoder.forward(params, SPEC, jnp.array(token_NS), jnp.array(position_NS), jnp.ones(shape, int))
    hidden_NSD = rules.shard(hidden_NSD, None, None, None)
    logprob_NSV = jax.nn.log_softmax(hidden_NSD @ params["unembedding"] / TEMPERATURE, axis=-1)
    index_NT, rows_N1 = starts[:, None] + np.arange(T)[None], np.arange(B * G)[:, None]
    value_NS = hidden_NSD @ head["weight"] + head["bias"]
    return logprob_NSV[rows_N1, index_NT - 1, token_NS[rows_N1, index_NT]], value_NS[rows_N1, index_NT - 1]


@functools.cache
def whole_batch(valid=(True,) * (B * G)):
    """Gradients, losses and raw advantages on every row, without compaction, micro-batches or left padding."""
    batch, params, head = rollout(), host_params(), host_head()
    mask_NT = batch.mask_BGT.reshape(-1, T) & np.array(valid)[:, None]
    old_logprob_NT = jnp.array(batch.logprob_BGT.reshape(-1, T))
    (ref_logprob_NT, _), (_, old_value_NT) = dense(host_params(1), head), dense(params, head)
    reward_NT = np.zeros((B * G, T), np.float32)
    reward_NT[np.arange(B * G), batch.length_BG.reshape(-1) - 1] = REWARDS.reshape(-1)
    mask_NT, weight_N = jnp.array(mask_NT), jnp.full(B * G, 1 / mask_NT.sum(), jnp.float32)
    reward_NT = ppo_algorithm.kl_penalized(
        jnp.array(reward_NT), old_logprob_NT, ref_logprob_NT, mask_NT, kl_beta=KL_BETA
    )
    advantage_NT = gae.gae(reward_NT, old_value_NT, mask_NT, gamma=GAMMA, gae_lambda=GAE_LAMBDA)
    whitened_NT = gae.whitened(advantage_NT, mask_NT, deviation_epsilon=1e-4)

    def policy_loss(params):
        logprob_NT, _ = dense(params, head)
        return ppo_algorithm.policy_objective(
            logprob_NT, old_logprob_NT, mask_NT, whitened_NT, weight_N, clip_epsilon=0.2
        )[0]

    def value_loss(critic):
        unembedding = {"unembedding": params["unembedding"]}
        _, value_NT = dense(critic["backbone"] | unembedding, critic["value_head"])
        return ppo_algorithm.value_objective(
            value_NT, old_value_NT, advantage_NT + old_value_NT, mask_NT, weight_N, value_clip=0.2
        )[0]

    critic = {"backbone": {name: leaf for name, leaf in params.items() if name != "unembedding"}, "value_head": head}
    policy = jax.value_and_grad(policy_loss)(params)
    value = jax.value_and_grad(value_loss)(critic)
    return jax.tree.map(np.asarray, ([policy[1], value[1]], {"policy_loss": policy[0], "value_loss": value[0]}))


def assert_same_gradients(got, want):
    chex.assert_trees_all_equal_structs(got, want)
    for mine, theirs in zip(got, want, strict=True):
        scale = max(float(np.max(np.abs(leaf))) for leaf in jax.tree.leaves(theirs))
        assert scale > 0.01, "a gradient of nothing compares equal to anything"
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=1e-5 * scale), mine, theirs)  # noqa: B023


def assert_bit_equal(got, want):
    jax.tree.map(np.testing.assert_array_equal, got, want)


# --- micro-batches and shards


@pytest.mark.parametrize("micro_batch", [16, 8, 4])
def test_one_two_and_four_micro_batches_give_the_gradients_of_the_whole_batch(micro_batch):
    gradients, metrics = first_update(make_recipe(micro_batch))
    want, want_metrics = whole_batch()
    assert metrics["micro_batches"] == B * G // micro_batch
    assert_same_gradients(gradients, want)
    for name, value in want_metrics.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(metrics["grad_norm"], optax.tree.norm(want[0]), rtol=1e-5)
    np.testing.assert_allclose(metrics["value_grad_norm"], optax.tree.norm(want[1]), rtol=1e-5)


def test_shards_give_the_gradients_of_the_whole_batch():
    with on_mesh(data=2, fsdp=2, tensor=2):
        gradients, _ = first_update(make_recipe())
    assert_same_gradients(gradients, whole_batch()[0])


def test_every_group_counts_and_invalid_completions_do_not():
    valid_BG = EVERYONE.copy()
    valid_BG[0, 3] = valid_BG[3, 1] = False
    reward_BG = np.where(valid_BG, REWARDS, np.nan).astype(np.float32)
    gradients, metrics = first_update(make_recipe(4), outcome(reward_BG, valid_BG))
    assert metrics["micro_batches"] == 4
    assert (metrics["trained_tokens"], metrics["saved_tokens"]) == (54, 10)
    assert_same_gradients(gradients, whole_batch(tuple(valid_BG.reshape(-1).tolist()))[0])


def test_truncated_completions_are_left_out_where_the_configuration_says():
    cut = rollout()._replace(finish_BG=np.where(rollout().length_BG == 7, 1, 0).astype(np.int32))
    _, metrics = first_update(make_recipe(4, mask_truncated=True), batch=cut)
    assert (metrics["micro_batches"], metrics["saved_tokens"]) == (3, 4 * 7)


def test_length_penalties_act_on_the_reward():
    made = make_recipe(length_penalty=0.1, length_budget_tokens=3, overlong_max_tokens=7, overlong_cache_tokens=4)
    _, metrics = made.prepare(fresh_state(made), rollout(), outcome(), 1)
    # Lengths 1, 3, 5, 7: 0, 0, 0.2 and 0.4 for the budget, 0, 0, 0.5 and 1 for the overlong penalty.
    np.testing.assert_allclose(metrics["shaped_reward"], REWARDS.mean() - 2.1 / 4, rtol=1e-5)


def test_nan_and_other_ids_behind_the_end_change_nothing_bit_for_bit():
    mask_BGT = rollout().mask_BGT
    poisoned = rollout()._replace(
        logprob_BGT=np.where(mask_BGT, rollout().logprob_BGT, np.nan).astype(np.float32),
        token_BGT=np.where(mask_BGT, rollout().token_BGT, V - 1).astype(np.int32),
    )
    assert_bit_equal(first_update(make_recipe(), batch=poisoned), first_update(make_recipe()))


# --- the state


def test_the_critic_starts_as_the_policy_with_values_of_zero():
    made = make_recipe()
    state = jax.jit(made.init)(placed(host_params()))
    want = {name: leaf for name, leaf in host_params().items() if name != "unembedding"}
    assert_bit_equal(jax.tree.map(np.asarray, state.critic.params["backbone"]), want)
    assert_bit_equal(jax.tree.map(np.asarray, state.actor.reference), host_params())
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(value_head(state)))
    _, metrics = made.prepare(state, rollout(), outcome(), 1)
    assert metrics["value_mean"] == metrics["value_explained_variance"] == 0
    head, axes = value_head(state), value_head_axes()
    assert {name: leaf.ndim for name, leaf in head.items()} == {name: len(names) for name, names in axes.items()}


def test_without_a_weight_no_reference_is_held_and_no_kl_is_reported():
    made = make_recipe(kl_beta=0.0)
    state = fresh_state(made)
    _, metrics = made.prepare(state, rollout(), outcome(), 1)
    assert state.actor.reference is None
    assert "kl" not in metrics


def test_an_update_moves_both_models_and_not_the_reference():
    state = fresh_state(made := make_recipe(optimizer=ADAM))
    before = jax.tree.map(np.array, state)
    batch, _ = made.prepare(state, rollout(), outcome(), 1)
    state, metrics = made.update(state, batch)
    for part in ("actor", "critic"):
        now, then = getattr(state, part), getattr(before, part)
        assert now.updates == 1
        assert all(jax.tree.leaves(jax.tree.map(lambda x, y: bool(np.any(x != y)), now.params, then.params)))
    assert_bit_equal(state.actor.reference, before.actor.reference)
    assert state.params is state.actor.params
    np.testing.assert_allclose(metrics["loss"], metrics["policy_loss"] + metrics["value_loss"], rtol=1e-6)


def test_a_second_pass_over_the_batch_meets_frozen_log_probabilities_and_values():
    large = dataclasses.replace(ADAM, learning_rate=0.2, weight_decay=0.0)
    state = fresh_state(made := make_recipe(optimizer=large, old_logprobs="trainer", passes_per_batch=2))
    batch, _ = made.prepare(state, rollout(), outcome(), 1)
    frozen = jax.tree.map(np.array, batch)
    state, first = made.update(state, batch)
    state, second = made.update(state, batch)
    assert_bit_equal(jax.tree.map(np.asarray, batch), frozen)
    # At a ratio of 1 the policy loss is minus the mean advantage: 0.
    np.testing.assert_allclose(first["policy_loss"], 0, atol=1e-5)
    assert first["clip_ratio/region_mean"] == first["clip_ratio/value_mean"] == 0
    assert second["clip_ratio/region_mean"] > 0.05
    assert second["clip_ratio/value_mean"] > 0.05
    assert state.updates == state.critic.updates == 2


def stepped_state(made):
    """A state with moments and counters that are not zero."""
    state = fresh_state(made)
    batch, _ = made.prepare(state, rollout(), outcome(), 1)
    return made.update(state, batch)[0]


@pytest.mark.parametrize("broken", ["old_logprob_NT", "return_NT"])
def test_neither_model_moves_when_one_gradient_is_not_finite(broken):
    state = stepped_state(made := make_recipe(optimizer=ADAM))
    before = jax.tree.map(np.array, state)
    batch, _ = made.prepare(state, rollout(), outcome(), 1)
    poisoned = {broken: getattr(batch.micro_batches, broken) + jnp.nan}
    state, metrics = made.update(state, batch._replace(micro_batches=batch.micro_batches._replace(**poisoned)))
    assert_bit_equal(jax.tree.map(np.asarray, state), before)
    assert (metrics["nonfinite_update"], metrics["skipped_update"]) == (1, 0)


def test_nothing_moves_without_a_valid_completion():
    state = stepped_state(made := make_recipe(optimizer=ADAM))
    before = jax.tree.map(np.array, state)
    batch, _ = made.prepare(state, rollout(), outcome(valid_BG=~EVERYONE), 1)
    state, metrics = made.update(state, batch)
    assert_bit_equal(jax.tree.map(np.asarray, state), before)
    assert (metrics["nonfinite_update"], metrics["skipped_update"]) == (0, 1)


def test_the_critic_learns_what_the_batch_returned():
    fast = dataclasses.replace(ADAM, learning_rate=0.02, weight_decay=0.0)
    state = fresh_state(made := make_recipe(optimizer=fast))
    explained = []
    for _ in range(24):
        batch, metrics = made.prepare(state, rollout(), outcome(), 1)
        state, _ = made.update(state, batch)
        explained.append(float(metrics["value_explained_variance"]))
    assert explained[0] < 0.2
    assert explained[-1] > 0.7


def test_explained_variance():
    mask, target = jnp.array([True, True, False]), jnp.array([1.0, 3.0, jnp.nan])
    explained = lambda error: float(critic_lib.explained_variance(jnp.array(error), target, mask))  # noqa: E731
    assert explained([0.0, 0.0, jnp.nan]) == 1
    assert explained([0.5, 1.5, 0.0]) == 0.75
    assert explained([1.0, -1.0, 0.0]) == 0
    assert float(critic_lib.explained_variance(target, jnp.ones(3), mask)) == 0


# --- compilation and configuration


def test_prepare_and_update_lower_from_shapes_alone_and_steady_state_compiles_once():
    made = make_recipe()
    static = made.update.keywords["static"]
    state = jax.eval_shape(made.init, recipe.abstract_params(SPEC))
    arrays = (*rollout()[:5], REWARDS, REWARDS, REWARDS[:, :, None], EVERYONE)
    judged = JudgedBatch(*(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays))
    number = jax.ShapeDtypeStruct((), np.float32)
    batch, _ = ppo.prepare_batch.lower(state, judged, number, number, static=static).out_info
    assert batch.micro_batches.return_NT.shape == (2, 8, T)
    new_state, metrics = ppo.update_step.lower(state, batch, **made.update.keywords).out_info
    chex.assert_trees_all_equal_shapes_and_dtypes(new_state, state)
    assert metrics["loss"].shape == ()
    programs, state = [], fresh_state(made)
    for valid_BG in (EVERYONE, ~EVERYONE, EVERYONE):
        prepared, _ = made.prepare(state, rollout(), outcome(valid_BG=valid_BG), 1)
        state, _ = made.update(state, prepared)
        programs.append((ppo.prepare_batch._cache_size(), ppo.update_step._cache_size()))
    assert len(set(programs)) == 1, programs


@pytest.mark.parametrize(
    ("nested", "message"),
    [
        (
            {"ppo": {"gamma": 0.9}},
            r"config\.ppo\.gamma: got 0\.9, wanted 1\.0, its default: .*Set config\.recipe to 'ppo'",
        ),
        (
            {"recipe": "ppo", "algorithm": {"kl_beta": 0.0}},
            r"config\.algorithm\.kl_beta: got 0\.0, wanted 0\.04, .* not read when recipe is 'ppo'\. .* config\.ppo",
        ),
        ({"recipe": "ppo", "ppo": {"gae_lambda": 1.5}}, r"config\.ppo\.gae_lambda: got 1\.5, wanted a share"),
        ({"recipe": "ppo", "ppo": {"value_clip": 0.0}}, r"config\.ppo\.value_clip: got 0\.0, wanted None \(off\)"),
        ({"recipe": "ppo", "ppo": {"critic": {"b1": 1.0}}}, r"config\.ppo\.critic\.b1: got 1\.0, wanted less than 1"),
    ],
)
def test_settings_that_cannot_act_are_refused(nested, message):
    with pytest.raises(config_lib.ConfigError, match=message):
        config_lib.from_nested(config_lib.RunConfig, nested).validate()


def test_what_both_recipes_read_may_be_set():
    nested = {"recipe": "ppo", "algorithm": {"passes_per_batch": 2, "mask_truncated": True}, "ppo": {"gamma": 0.9}}
    config_lib.from_nested(config_lib.RunConfig, nested).validate()
