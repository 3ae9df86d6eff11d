"""Training of adapters beside a frozen model."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from grpo_jax import config as config_lib
from grpo_jax.models import adapters, decoder
from grpo_jax.models.spec import LoRA, ModelSpec
from grpo_jax.parallel import rules
from grpo_jax.rollout.engine import Rollout
from grpo_jax.training import recipe as recipe_lib
from grpo_jax.training.trainer import RECIPES
from tests.meshes import on_mesh

B, G, P, T, V = 4, 2, 4, 6, 16
SPEC = ModelSpec(
    vocab_size=V,
    num_layers=2,
    d_model=16,
    num_heads=2,
    num_kv_heads=2,
    head_dim=8,
    d_ff=16,
    init_std=0.3,
    embedding_init_std=1.0,
    lora=LoRA(2, 2.0, ("query", "value", "output", "down")),
)
WITH_DROPOUT = dataclasses.replace(SPEC, lora=dataclasses.replace(SPEC.lora, dropout=0.3))
# The first moment of an update is the gradient itself: b1 is 0 and the clip is out of reach.
OPTIMIZER = config_lib.OptimizerConfig(learning_rate=0.01, b1=0.0, max_grad_norm=1e9, warmup_steps=0)
REWARD_BG = np.array([[1, 0], [0, 1], [1, 1], [0.5, 1]], np.float32)


def make_recipe(spec=SPEC, micro_batch=8, name="grpo"):
    config = config_lib.RunConfig(
        steps=10,
        recipe=name,
        rollout=config_lib.RolloutConfig(prompts_per_step=B, completions_per_prompt=G),
        algorithm=config_lib.AlgorithmConfig(micro_batch_completions=micro_batch),
        optimizer=OPTIMIZER,
    )
    return RECIPES[name](config, spec)


@functools.cache
def rollout():
    random = np.random.default_rng(0)
    length_BG = random.integers(2, T + 1, (B, G)).astype(np.int32)
    return Rollout(
        prompt_BP=random.integers(0, V, (B, P)).astype(np.int32),
        prompt_length_B=np.array([4, 2, 3, 1], np.int32),
        token_BGT=random.integers(0, V, (B, G, T)).astype(np.int32),
        logprob_BGT=random.uniform(-3, -2, (B, G, T)).astype(np.float32),
        length_BG=length_BG,
        finish_BG=np.zeros_like(length_BG),
        policy_version=0,
    )


def shifted(tree, by):
    """The same arrays with other values: adapters that act."""
    noise = np.random.default_rng(by)
    return jax.tree.map(lambda leaf: leaf + 0.1 * noise.normal(size=leaf.shape).astype(leaf.dtype), tree)


def started(recipe, spec):
    axes = decoder.logical_axes(spec)
    params = decoder.init_params(jax.random.key(0), spec)
    placed = jax.tree.map(lambda leaf, names: rules.shard(leaf, *names), params, axes)
    state = jax.jit(recipe.init)(placed)
    return state._replace(params=adapters.attached(state.params, shifted(adapters.trained(state.params), 1)))


def updated(spec=SPEC, micro_batch=8, updates=1):
    recipe = make_recipe(spec, micro_batch)
    state, metrics = started(recipe, spec), {}
    outcome = recipe_lib.Outcome(REWARD_BG, REWARD_BG[:, :, None], np.ones((B, G), bool))
    for step in range(updates):
        batch, prepared = recipe.prepare(state, rollout(), outcome, step + 1)
        state, metrics = recipe.update(state, batch)
        metrics = prepared | metrics
    return jax.tree.map(np.asarray, (state, metrics))


def test_only_adapters_move_and_only_they_have_moments():
    with on_mesh():
        recipe = make_recipe()
        before = jax.tree.map(np.asarray, started(recipe, SPEC))
        after, metrics = updated()
    jax.tree.map(np.testing.assert_array_equal, *map(adapters.without_adapters, (before.params, after.params)))
    moved = jax.tree.map(
        lambda one, other: not np.array_equal(one, other), *map(adapters.trained, (before.params, after.params))
    )
    assert all(jax.tree.leaves(moved))
    trained = sum(leaf.size for leaf in jax.tree.leaves(adapters.trained(after.params)))
    moments = [optax.tree.get(after.optimizer, name) for name in ("mu", "nu")]
    assert sum(leaf.size for leaf in jax.tree.leaves(moments)) == 2 * trained
    assert metrics["grad_norm"] > 0
    assert after.updates == 1


def test_the_frozen_model_is_the_reference_and_is_held_once():
    with on_mesh():
        state = started(make_recipe(), SPEC)
        reference = recipe_lib.reference_params(state)
        assert state.reference is None
        held = jax.tree.leaves(adapters.without_adapters(state.params))
        assert all(one is other for one, other in zip(jax.tree.leaves(reference), held, strict=True))
        _, metrics = updated()
    assert metrics["kl"] > 1e-3, "the adapters have moved the policy from it"


def test_the_frozen_model_is_in_the_compute_dtype_and_adapters_are_not():
    spec = dataclasses.replace(SPEC, compute_dtype="bfloat16")
    with on_mesh():
        state = jax.eval_shape(make_recipe(spec).init, recipe_lib.abstract_params(spec))
    assert state.params["blocks"]["query"].dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(adapters.trained(state.params))} == {jnp.dtype("float32")}


def test_micro_batches_and_shards_change_nothing():
    spec = WITH_DROPOUT
    with on_mesh():
        wanted = optax.tree.get(updated(spec)[0].optimizer, "mu")
        compare(optax.tree.get(updated(spec, micro_batch=2)[0].optimizer, "mu"), wanted)
    with on_mesh(data=2, context=2, tensor=2):
        compare(optax.tree.get(updated(spec)[0].optimizer, "mu"), wanted)


def compare(got, wanted):
    scale = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(wanted))
    assert scale > 1e-3, "a gradient of nothing compares equal to anything"
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * scale), got, wanted)


def test_dropout_acts_on_the_update_alone_and_its_noise_is_new_each_time():
    with on_mesh():
        plain, with_dropout = updated(SPEC), updated(WITH_DROPOUT)
        assert plain[1]["kl"] != with_dropout[1]["kl"]
        recipe = make_recipe(WITH_DROPOUT)
        state = started(recipe, WITH_DROPOUT)
        outcome = recipe_lib.Outcome(REWARD_BG, REWARD_BG[:, :, None], np.ones((B, G), bool))
        batch, _ = recipe.prepare(state, rollout(), outcome, 1)
        same, _ = make_recipe(SPEC).prepare(state, rollout(), outcome, 1)
        jax.tree.map(np.testing.assert_array_equal, batch, same)
        copies = [jax.tree.map(jnp.copy, state)._replace(updates=jnp.int32(n)) for n in (0, 0, 1)]
        losses = [float(recipe.update(copy, batch)[1]["policy_loss"]) for copy in copies]
    assert losses[0] == losses[1] != losses[2]


def test_the_actor_of_ppo_may_have_adapters():
    with on_mesh():
        recipe = make_recipe(name="ppo")
        state = jax.jit(recipe.init)(decoder.init_params(jax.random.key(0), SPEC))
        before = jax.tree.map(np.asarray, state)
        outcome = recipe_lib.Outcome(REWARD_BG, REWARD_BG[:, :, None], np.ones((B, G), bool))
        batch, _ = recipe.prepare(state, rollout(), outcome, 1)
        after, metrics = recipe.update(state, batch)
    assert np.isfinite(metrics["loss"])
    jax.tree.map(np.testing.assert_array_equal, *(adapters.without_adapters(one.params) for one in (before, after)))
    assert adapters.ADAPTERS not in after.critic.params["backbone"]
    assert np.abs(after.critic.params["value_head"]["weight"]).max() > 0
    assert np.abs(after.params["adapters"]["blocks"]["query"]["b"]).max() > 0
