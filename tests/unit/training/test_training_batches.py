"""Batch preparation and updates of a tiny model: no batching, padding, sharding or compaction changes the result."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from grpo_jax import config as config_lib
from grpo_jax.algorithms import grpo as grpo_algorithm
from grpo_jax.models import decoder
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import mesh as mesh_lib
from grpo_jax.parallel import rules
from grpo_jax.rollout.engine import Rollout
from grpo_jax.training import completions, grpo, recipe
from grpo_jax.training import optimizer as optimizer_lib
from grpo_jax.training.judged import JudgedBatch

B, G, P, T, V = 4, 4, 6, 8, 14
SPEC = ModelSpec(
    vocab_size=V, num_layers=2, d_model=16, num_heads=2, num_kv_heads=2, head_dim=8, d_ff=16, logprob_chunk_tokens=40
)
TEMPERATURE = 0.6
ADAM = config_lib.OptimizerConfig(learning_rate=0.01, warmup_steps=0, weight_decay=0.1)
# The first moment of the first update is the gradient itself: b1 is 0 and the clip is out of reach.
GRADIENT_IN_MOMENT = config_lib.OptimizerConfig(b1=0.0, max_grad_norm=1e9)


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


def placed(params):
    return jax.tree.map(lambda array, like: jax.device_put(array, like.sharding), params, recipe.abstract_params(SPEC))


@functools.cache
def make_recipe(micro_batch=8, optimizer=GRADIENT_IN_MOMENT, old_logprobs="sampler", kl_beta=0.04):
    run = config_lib.RunConfig(
        steps=10,
        rollout=config_lib.RolloutConfig(prompts_per_step=B, completions_per_prompt=G, temperature=TEMPERATURE),
        algorithm=config_lib.AlgorithmConfig(
            micro_batch_completions=micro_batch, old_logprobs=old_logprobs, kl_beta=kl_beta
        ),
        optimizer=optimizer,
    )
    return grpo.make_recipe(run, SPEC)


def fresh_state(made):
    """A state whose reference differs from the policy; its buffers may be given away."""
    state = made.init(placed(host_params()))
    return state._replace(reference=state.reference and placed(host_params(1)))


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


MIXED = np.array([[1, 0, 0, 1], [0, 1, 0, 0], [0.2, 0.7, 1, 0], [1, 1, 1, 0]], np.float32)
TWO_ACTIVE = np.array([[0, 0, 0, 0], [0, 1, 0, 0], [0.35] * 4, [1, 1, 1, 0]], np.float32)
NONE_ACTIVE = np.array([[0] * 4, [1] * 4, [0.35] * 4, [0.7] * 4], np.float32)
EVERYONE = np.ones((B, G), bool)


def outcome(reward_BG, valid_BG):
    """What a judge with a single reward says."""
    return recipe.Outcome(reward_BG, reward_BG[:, :, None], valid_BG)


def first_update(made, reward_BG=MIXED, valid_BG=EVERYONE, batch=None):
    """Gradient and metrics of one update."""
    state = fresh_state(made)
    prepared, metrics = made.prepare(state, rollout() if batch is None else batch, outcome(reward_BG, valid_BG), 1)
    state, updated = made.update(state, prepared)
    gradient = optax.tree.get(state.optimizer, "mu")
    return jax.tree.map(np.asarray, (gradient, {**metrics, **updated}))


@jax.jit
def dense_logprobs(params):
    """Log-probabilities of all rows at once, right-padded, from whole logits."""
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
    index_NT = starts[:, None] + np.arange(T)[None]
    rows_N1 = np.arange(B * G)[:, None]
    return logprob_NSV[rows_N1, index_NT - 1, token_NS[rows_N1, index_NT]].reshape(B, G, T)


@jax.jit
def whole_gradient(params, ref_BGT, reward_BG, valid_BG):
    batch = rollout()

    def loss(params):
        return grpo_algorithm.grpo_loss(
            dense_logprobs(params),
            batch.logprob_BGT,
            ref_BGT,
            batch.mask_BGT,
            reward_BG,
            batch.length_BG,
            config=grpo_algorithm.GRPOLossConfig(),
            valid_BG=valid_BG,
        )

    return jax.grad(loss, has_aux=True)(params)


def whole_batch(reward_BG=MIXED, valid_BG=EVERYONE):
    """Gradient and metrics of the composed loss on every row, without compaction, micro-batches or left padding."""
    gradient = whole_gradient(host_params(), dense_logprobs(host_params(1)), reward_BG, valid_BG)
    return jax.tree.map(np.asarray, gradient)


@functools.cache
def whole_mixed_batch():
    return whole_batch()


def assert_same_gradient(got, want):
    chex.assert_trees_all_equal_structs(got, want)
    scale = max(float(np.max(np.abs(leaf))) for leaf in jax.tree.leaves(want))
    assert scale > 0.01, "a gradient of nothing compares equal to anything"
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=1e-5 * scale), got, want)


def assert_bit_equal(got, want):
    jax.tree.map(np.testing.assert_array_equal, got, want)


# --- micro-batches and shards


@pytest.mark.parametrize("micro_batch", [16, 8, 4])
def test_one_two_and_four_micro_batches_give_the_gradient_of_the_whole_batch(micro_batch):
    gradient, metrics = first_update(make_recipe(micro_batch))
    want, want_metrics = whole_mixed_batch()
    assert metrics["micro_batches"] == B * G // micro_batch
    assert_same_gradient(gradient, want)
    for name in ("loss", "policy_loss", "kl", "active_group_ratio"):
        np.testing.assert_allclose(metrics[name], want_metrics[name], rtol=1e-5, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(metrics["grad_norm"], optax.tree.norm(want), rtol=1e-5)


@pytest.mark.parametrize(
    "axes", [{"data": 2}, {"data": 4}, {"data": 8}, {"fsdp": 4}, {"data": 2, "fsdp": 2, "tensor": 2}], ids=str
)
def test_shards_give_the_gradient_of_the_whole_batch(axes):
    with on_mesh(**axes):
        gradient, _ = first_update(make_recipe())
    assert_same_gradient(gradient, whole_mixed_batch()[0])


def test_all_groups_of_one_shard_inactive():
    # Eight devices hold one row of a micro-batch each; only groups 1 and 3 are active.
    want, _ = whole_batch(TWO_ACTIVE)
    with on_mesh(data=8):
        gradient, metrics = first_update(make_recipe(), TWO_ACTIVE)
    assert metrics["micro_batches"] == 1
    assert_same_gradient(gradient, want)


# --- compaction


def test_compacted_batch_equals_the_masked_computation_over_all_rows():
    gradient, metrics = first_update(make_recipe(), TWO_ACTIVE)
    want, want_metrics = whole_batch(TWO_ACTIVE)
    assert_same_gradient(gradient, want)
    assert metrics["micro_batches"] == 1
    assert metrics["active_group_ratio"] == want_metrics["active_group_ratio"] == 0.5
    assert metrics["trained_tokens"] == metrics["saved_tokens"] == 2 * (1 + 3 + 5 + 7)
    np.testing.assert_allclose(metrics["loss"], want_metrics["loss"], rtol=1e-5)


def test_invalid_completions_are_left_out():
    valid_BG = EVERYONE.copy()
    valid_BG[0, 0] = valid_BG[3, 3] = valid_BG[3, 1] = False
    reward_BG = np.where(valid_BG, MIXED, np.nan).astype(np.float32)
    gradient, metrics = first_update(make_recipe(), reward_BG, valid_BG)
    want, _ = whole_batch(reward_BG, valid_BG)
    assert metrics["active_group_ratio"] == 0.75, "group 3 is constant without its invalid completions"
    assert_same_gradient(gradient, want)


def test_rows_that_take_part_come_first_and_keep_their_order():
    state = fresh_state(made := make_recipe(4))
    batch, _ = made.prepare(state, rollout(), outcome(TWO_ACTIVE, EVERYONE), 1)
    rows = jax.tree.map(lambda array: np.asarray(array).reshape(-1, *array.shape[2:]), batch.micro_batches.rows)
    order = [*range(4, 8), *range(12, 16), *range(0, 4), *range(8, 12)]
    np.testing.assert_array_equal(rows.token_NT, rollout().token_BGT.reshape(16, T)[order])
    np.testing.assert_array_equal(rows.prompt_NP, np.repeat(rollout().prompt_BP, G, axis=0)[order])
    np.testing.assert_array_equal(rows.weight_N > 0, np.arange(16) < 8)
    assert batch.count == 2


def test_log_probabilities_of_inactive_micro_batches_are_not_computed():
    state = fresh_state(made := make_recipe(4, old_logprobs="trainer"))
    batch, _ = made.prepare(state, rollout(), outcome(TWO_ACTIVE, EVERYONE), 1)
    for logprob_MNT in (batch.micro_batches.old_logprob_NT, batch.micro_batches.ref_logprob_NT):
        assert np.all(np.asarray(logprob_MNT)[:2] < 0)
        np.testing.assert_array_equal(logprob_MNT[2:], 0)


def test_the_objective_runs_once_for_each_micro_batch_that_takes_part():
    visited, stacked = [], jnp.array([2.0, 5, jnp.nan, jnp.nan])
    optimizer = optimizer_lib.make_optimizer(ADAM, 10, "float32")

    def objective(params, micro):
        jax.debug.callback(lambda value: visited.append(float(value)), micro)
        return params["weight"] * micro, {"largest_max": micro}

    @jax.jit
    def accumulate(count):
        return completions.accumulate_gradients(
            objective, {"weight": jnp.float32(3)}, stacked, count, optimizer=optimizer
        )

    gradient, sums = accumulate(jnp.int32(2))
    jax.effects_barrier()
    assert gradient == {"weight": 7}
    assert sums == {"loss": 21, "largest_max": 5}
    assert sorted(set(visited)) == [2, 5]
    assert accumulate(jnp.int32(0))[0] == {"weight": 0}


def test_nan_in_rows_and_pads_that_take_no_part_changes_nothing_bit_for_bit():
    takes_part = rollout().mask_BGT & np.array([False, True, False, True])[:, None, None]
    poisoned = rollout()._replace(
        logprob_BGT=np.where(takes_part, rollout().logprob_BGT, np.nan).astype(np.float32),
        token_BGT=np.where(takes_part, rollout().token_BGT, V - 1).astype(np.int32),
    )
    # The last token of a micro-batch's rows fills it up: 8 rows of 16.
    made = make_recipe(16)
    assert_bit_equal(first_update(made, TWO_ACTIVE, batch=poisoned), first_update(made, TWO_ACTIVE))


# --- steps that must not move


def stepped_state(made):
    """A state with moments and a counter that are not zero."""
    state = fresh_state(made)
    batch, _ = made.prepare(state, rollout(), outcome(MIXED, EVERYONE), 1)
    state, metrics = made.update(state, batch)
    assert metrics["skipped_update"] == metrics["nonfinite_update"] == 0
    assert state.updates == 1
    return state


def test_without_an_active_group_nothing_moves():
    state = stepped_state(made := make_recipe(optimizer=ADAM))
    before = jax.tree.map(np.array, state)
    assert any(np.any(leaf != 0) for leaf in jax.tree.leaves(optax.tree.get(before.optimizer, "mu")))
    batch, prepared = made.prepare(state, rollout(), outcome(NONE_ACTIVE, EVERYONE), 1)
    state, metrics = made.update(state, batch)
    assert_bit_equal(jax.tree.map(np.asarray, state), before)
    assert prepared["micro_batches"] == prepared["active_group_ratio"] == prepared["trained_tokens"] == 0
    assert metrics["skipped_update"] == 1
    assert metrics["loss"] == metrics["grad_norm"] == metrics["nonfinite_update"] == 0


def test_an_update_moves_parameters_counters_and_decays_weights_only():
    made = make_recipe(optimizer=ADAM)
    state = stepped_state(made)
    moved = jax.tree.map(lambda after, before: np.any(np.asarray(after) != before), state.params, host_params())
    assert all(jax.tree.leaves(moved))
    optimizer = optimizer_lib.make_optimizer(ADAM, 10, "float32")
    params = {"weight": jnp.ones(2), "final_norm": jnp.ones(2), "query_bias": jnp.ones(2)}
    params, state = optimizer.init(params)
    moved, _ = optimizer.apply(optax.tree.zeros_like(params), jnp.float32(0), state, params, jnp.bool(True))
    np.testing.assert_allclose(1 - moved["weight"], 0.001, rtol=1e-4)
    np.testing.assert_array_equal([moved["final_norm"], moved["query_bias"]], 1)


def test_a_gradient_that_is_not_finite_is_refused_and_flagged():
    state = stepped_state(made := make_recipe(optimizer=ADAM))
    before = jax.tree.map(np.array, state)
    broken = rollout().logprob_BGT.copy()
    broken[1, 1, 0] = np.nan
    batch, _ = made.prepare(state, rollout()._replace(logprob_BGT=broken), outcome(MIXED, EVERYONE), 1)
    state, metrics = made.update(state, batch)
    assert_bit_equal(jax.tree.map(np.asarray, state), before)
    assert (metrics["nonfinite_update"], metrics["skipped_update"]) == (1, 0)


# --- several passes


def test_a_second_pass_over_the_batch_meets_frozen_old_log_probabilities():
    large = dataclasses.replace(ADAM, learning_rate=0.2, weight_decay=0.0)
    state = fresh_state(made := make_recipe(optimizer=large, old_logprobs="trainer"))
    batch, _ = made.prepare(state, rollout(), outcome(MIXED, EVERYONE), 1)
    frozen = np.array(batch.micro_batches.old_logprob_NT)
    state, first = made.update(state, batch)
    state, second = made.update(state, batch)
    np.testing.assert_array_equal(batch.micro_batches.old_logprob_NT, frozen)
    # At a ratio of 1 the policy loss is minus the mean advantage of each active group: 0.
    np.testing.assert_allclose(first["policy_loss"], 0, atol=1e-5)
    assert first["clip_ratio/region_mean"] == 0
    assert abs(second["policy_loss"]) > 0.01
    assert second["clip_ratio/region_mean"] > 0.05
    sides = second["clip_ratio/low_mean"] + second["clip_ratio/high_mean"]
    np.testing.assert_allclose(second["clip_ratio/region_mean"], sides, rtol=1e-6)
    assert state.updates == 2


def test_old_log_probabilities_come_from_where_the_configuration_says():
    state = fresh_state(made := make_recipe())
    sampler, _ = made.prepare(state, rollout(), outcome(MIXED, EVERYONE), 1)
    trainer, _ = make_recipe(old_logprobs="trainer").prepare(state, rollout(), outcome(MIXED, EVERYONE), 1)

    def flat(batch):
        return np.asarray(batch.micro_batches.old_logprob_NT).reshape(B, G, T)

    mask_BGT = rollout().mask_BGT
    np.testing.assert_array_equal(flat(sampler), rollout().logprob_BGT)
    want = dense_logprobs(host_params())
    np.testing.assert_allclose(flat(trainer)[mask_BGT], np.asarray(want)[mask_BGT], atol=1e-5)


# --- tokens and padding


def test_the_mask_comes_from_lengths_and_not_from_ids():
    # Pad and end-of-sequence share id 2; the second row has it in its middle too.
    token_NT = jnp.array([[5, 2, 2, 2], [2, 5, 2, 2]])
    ones = jnp.ones(2)
    empty = jnp.zeros((2, 4))
    rows = completions.Rows(
        token_NT[:, :1], jnp.array([1, 1]), token_NT, jnp.array([2, 3]), empty, empty + 1, ones, jnp.arange(2)
    )
    np.testing.assert_array_equal(rows.mask_NT, [[1, 1, 0, 0], [1, 1, 1, 0]])

    def loss(logprob_NT):
        config = grpo_algorithm.GRPOLossConfig(kl_beta=0.0)
        return grpo_algorithm.grpo_objective(logprob_NT, empty, None, rows.mask_NT, empty + 1, ones, config=config)[0]

    np.testing.assert_array_equal(jax.grad(loss)(empty), [[-1, -1, 0, 0], [-1, -1, -1, 0]])


def test_a_row_of_weight_zero_is_masked_out():
    tokens = jnp.zeros((2, 3), int)
    rows = completions.Rows(
        tokens,
        jnp.array([3, 3]),
        tokens,
        jnp.array([3, 3]),
        *[jnp.zeros((2, 3))] * 2,
        jnp.array([0.0, 0.5]),
        jnp.arange(2),
    )
    np.testing.assert_array_equal(rows.mask_NT, [[0, 0, 0], [1, 1, 1]])


@jax.jit
def padded_logprobs(params, prompt_NP, prompt_length_N, token_NT, length_N):
    nothing = jnp.zeros(token_NT.shape)
    rows = completions.Rows(
        prompt_NP, prompt_length_N, token_NT, length_N, nothing, nothing, nothing[:, 0], jnp.arange(len(length_N))
    )
    return completions.completion_logprobs(params, SPEC, rows, TEMPERATURE)


def test_left_padded_prompts_give_the_log_probabilities_of_unpadded_rows():
    batch = rollout()
    first = batch.token_BGT[:, 0]
    full = np.full(B, T, np.int32)
    padded = padded_logprobs(host_params(), batch.prompt_BP, batch.prompt_length_B, first, full)
    want = dense_logprobs(host_params())[:, 0]
    np.testing.assert_allclose(padded.logprob_NT, want, atol=1e-5)


@pytest.mark.parametrize("fill", [0, V - 1])
def test_what_pads_hold_changes_no_log_probability(fill):
    batch = rollout()
    lengths = np.array([1, 3, 5, 7], np.int32)
    is_pad_NP = np.arange(P) < P - batch.prompt_length_B[:, None]
    is_counted_NT = np.arange(T) < lengths[:, None]
    tokens = batch.token_BGT[:, 0]
    clean = padded_logprobs(host_params(), batch.prompt_BP, batch.prompt_length_B, tokens, lengths)
    other = padded_logprobs(
        host_params(),
        np.where(is_pad_NP, fill, batch.prompt_BP).astype(np.int32),
        batch.prompt_length_B,
        np.where(is_counted_NT, tokens, fill).astype(np.int32),
        lengths,
    )
    for got, want in zip(other[:2], clean[:2], strict=True):
        np.testing.assert_array_equal(np.asarray(got)[is_counted_NT], np.asarray(want)[is_counted_NT])


# --- compilation


def test_steady_state_compiles_once():
    made = make_recipe()
    state = fresh_state(made)
    programs = []
    for reward_BG in (MIXED, TWO_ACTIVE, NONE_ACTIVE, MIXED):
        batch, _ = made.prepare(state, rollout(), outcome(reward_BG, EVERYONE), 1)
        state, _ = made.update(state, batch)
        programs.append((grpo.prepare_batch._cache_size(), grpo.update_step._cache_size()))
    assert len(set(programs)) == 1, programs


def test_prepare_and_update_lower_from_shapes_alone():
    made = make_recipe()
    static = made.update.keywords["static"]
    params = recipe.abstract_params(SPEC)
    state = jax.eval_shape(made.init, params)
    arrays = (*rollout()[:5], MIXED, MIXED, MIXED[:, :, None], EVERYONE)
    judged = JudgedBatch(*(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays))
    number = jax.ShapeDtypeStruct((), np.float32)
    weighed, _ = grpo.weigh_groups.lower(state.reference, judged, number, number, static=static).out_info
    batch = grpo.prepare_batch.lower(
        state.params, state.reference, judged, judged.sampler_logprob_BGT, weighed.weight_BG, static=static
    ).out_info
    assert batch.micro_batches.old_logprob_NT.shape == (2, 8, T)
    new_state, metrics = grpo.update_step.lower(state, batch, **made.update.keywords).out_info
    chex.assert_trees_all_equal_shapes_and_dtypes(new_state, state)
    assert metrics["loss"].shape == ()
