"""One update of every loss of the table through the recipe with a tiny model, and the same update worked out plainly.

The plain side is computed on all rows at once, from whole logits, with nothing taken out.
"""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import multihost_utils

from grpo_jax import config as config_lib
from grpo_jax.algorithms import groups
from grpo_jax.algorithms import grpo as grpo_algorithm
from grpo_jax.models import decoder
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import mesh as mesh_lib
from grpo_jax.parallel import rules
from grpo_jax.rollout.engine import Rollout
from grpo_jax.training import grpo, recipe
from tests.contract import losses

B, G, P, T, V = 4, 4, 3, 8, 14
SPEC = ModelSpec(
    vocab_size=V, num_layers=1, d_model=8, num_heads=2, num_kv_heads=1, head_dim=4, d_ff=8, logprob_chunk_tokens=40
)
TEMPERATURE = 0.6
# The first moment of the first update is the gradient itself: b1 is 0 and the clip is out of reach.
GRADIENT_IN_MOMENT = config_lib.OptimizerConfig(b1=0.0, max_grad_norm=1e9)
# Group 0 is constant, group 2 has no usable verdict, and one completion of group 3 is invalid.
REWARDS = np.array([[0.35] * 4, [0, 1, 0, 0.5], [0.2, 0.7, 1, 0], [1, 0.5, 1, 0]], np.float32)
SECOND_REWARDS = np.array([[1] * 4, [0, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]], np.float32)
VALID = np.array([[True] * 4, [True] * 4, [False] * 4, [True, True, True, False]])
LENGTHS = np.array([[5] * 4, [1, 3, 5, 7], [7, 5, 3, 1], [7, 1, 3, 5]], np.int32)

# What looks across rows: the batch's spread and tokens, a ratio of whole completions, a KL in the reward.
ACROSS_ROWS = ("reinforce_plus_plus", "sequence_importance", "rloo")


def on_mesh(data=1, fsdp=1):
    """Makes the first devices the mesh in use; a mesh of one is this process's own."""
    sizes = {"data": data, "fsdp": fsdp, "tensor": 1, "context": 1, "expert": 1}
    devices = jax.devices() if data * fsdp > 1 else jax.local_devices()
    return jax.set_mesh(mesh_lib.make_mesh(sizes, devices[: data * fsdp]))


@functools.cache
def host_params(seed=0):
    spec = dataclasses.replace(SPEC, init_std=0.3, embedding_init_std=1.0)
    initial = jax.jit(decoder.init_params, static_argnames="spec")
    return jax.tree.map(np.asarray, initial(jax.random.key(seed), spec=spec))


def placed(params):
    return jax.tree.map(lambda array, like: jax.device_put(array, like.sharding), params, recipe.abstract_params(SPEC))


@functools.cache
def tokens():
    random = np.random.default_rng(0)
    return random.integers(0, V, (B, P)).astype(np.int32), random.integers(0, V, (B, G, T)).astype(np.int32)


@jax.jit
def dense_logprobs(params):
    """Log-probabilities of all rows at once from whole logits."""
    prompt_BP, token_BGT = tokens()
    token_NS = jnp.concatenate([np.repeat(prompt_BP, G, axis=0), token_BGT.reshape(B * G, T)], axis=1)
    position_NS = jnp.broadcast_to(jnp.arange(P + T)[None], token_NS.shape)
    hidden_NSD = decoder.forward(params, SPEC, token_NS, position_NS, jnp.ones(token_NS.shape, int))
    hidden_NSD = rules.shard(hidden_NSD, None, None, None)
    logprob_NSV = jax.nn.log_softmax(hidden_NSD @ params["unembedding"] / TEMPERATURE, axis=-1)
    index_NT = np.broadcast_to(np.arange(P, P + T)[None], (B * G, T))
    rows_N1 = np.arange(B * G)[:, None]
    return logprob_NSV[rows_N1, index_NT - 1, token_NS[rows_N1, index_NT]].reshape(B, G, T)


@jax.jit
def parameter_gradient(params, cotangent_BGT):
    return jax.vjp(dense_logprobs, params)[1](cotangent_BGT)[0]


@functools.cache
def logprobs_of(seed):
    with on_mesh():
        return np.asarray(dense_logprobs(host_params(seed)))


@functools.cache
def rollout():
    """Sampled by something near the policy, so that some ratios are within every bound and some are not."""
    prompt_BP, token_BGT = tokens()
    noise = np.random.default_rng(1).uniform(-0.3, 0.3, (B, G, T)).astype(np.float32)
    lengths = np.full(B, P, np.int32)
    return Rollout(prompt_BP, lengths, token_BGT, logprobs_of(0) + noise, LENGTHS, np.zeros_like(LENGTHS), 0)


@functools.cache
def make_recipe(name, micro_batch):
    run = losses.run_config(name)
    sampling = dataclasses.replace(run.rollout, prompts_per_step=B, completions_per_prompt=G, temperature=TEMPERATURE)
    algorithm = dataclasses.replace(run.algorithm, micro_batch_completions=micro_batch)
    run = dataclasses.replace(run, rollout=sampling, algorithm=algorithm, optimizer=GRADIENT_IN_MOMENT, steps=10)
    return grpo.make_recipe(run, SPEC)


def outcome(name):
    valid_BG1 = VALID[:, :, None]
    parts = np.stack([REWARDS, SECOND_REWARDS], axis=2)[:, :, : len(losses.run_config(name).verifier.weights)]
    # A judge that failed says nothing.
    return recipe.Outcome(np.where(VALID, REWARDS, 0), np.where(valid_BG1, parts, 0), VALID)


def updated(name, micro_batch, judged=None):
    """Gradient and metrics of one update through the recipe, of ``outcome(name)`` where no other is given."""
    made = make_recipe(name, micro_batch)
    state = made.init(placed(host_params()))
    state = state._replace(reference=state.reference and placed(host_params(1)))
    prepared, metrics = made.prepare(state, rollout(), judged or outcome(name), 1)
    state, more = made.update(state, prepared)
    gradient = optax.tree.get(state.optimizer, "mu")
    # Of several processes each gets the whole.
    return multihost_utils.process_allgather((gradient, {**metrics, **more}), tiled=True)


@functools.cache
def masked(name):
    """Gradient, loss, policy loss and weights of the objective over all rows; what takes no part has weight 0."""
    config, judge = losses.loss_config(name), outcome(name)
    sampler, policy, ref = map(jnp.asarray, (rollout().logprob_BGT, logprobs_of(0), logprobs_of(1)))
    old = policy if losses.run_config(name).algorithm.old_logprobs == "trainer" else sampler
    mask, lengths, valid = map(jnp.asarray, (rollout().mask_BGT, LENGTHS, VALID))

    @jax.jit
    def weigh(reward, part):
        kl_BG = groups.completion_kl(sampler, ref, mask, config.kl_estimator)
        penalty = groups.shaped_reward(jnp.zeros_like(reward), lengths, kl_BG, config=config)
        parts = jnp.concatenate([part, penalty[:, :, None]], axis=2)
        return groups.group_weights(reward + penalty, lengths, valid, parts, config=config)

    weighed = weigh(jnp.asarray(judge.reward_BG), jnp.asarray(judge.part_BGK))
    advantage_BGT = jnp.broadcast_to(weighed.advantage_BG[:, :, None], mask.shape)
    arrays = (old, ref, mask, advantage_BGT, weighed.weight_BG, sampler)
    rows = [array.reshape(-1, *array.shape[2:]) for array in arrays]

    @jax.jit
    def objective(logprob):
        value = lambda logprob: grpo_algorithm.grpo_objective(logprob.reshape(-1, T), *rows, config=config)  # noqa: E731
        return jax.value_and_grad(value, has_aux=True)(logprob)

    (loss, sums), cotangent = objective(policy)
    gradient = jax.tree.map(np.asarray, parameter_gradient(host_params(), cotangent))
    return gradient, float(loss), float(sums["policy_loss"]), np.asarray(weighed.weight_BG)


def assert_same_update(got, name, micro_batch):
    (gradient, metrics), (want, loss, policy_loss, weight_BG) = got, masked(name)
    chex.assert_trees_all_equal_structs(gradient, want)
    scale = max(float(np.max(np.abs(leaf))) for leaf in jax.tree.leaves(want))
    assert scale > 0.01, "a gradient of nothing compares equal to anything"
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=1e-5 * scale), gradient, want)
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(metrics["policy_loss"], policy_loss, rtol=1e-5, atol=1e-5)
    rows = np.sum(weight_BG > 0)
    assert 0 < rows < B * G - micro_batch or micro_batch > 4
    assert metrics["micro_batches"] == -(-rows // micro_batch)
