"""Learning-rate schedules at their corners, and AdamW however its state is held."""

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.config import OptimizerConfig, ReferenceConfig, RunConfig
from grpo_jax.io.checkpoint import Checkpoints
from grpo_jax.models.spec import ModelSpec
from grpo_jax.training import optimizer as optimizer_lib
from grpo_jax.training import recipe
from tests.meshes import on_mesh

CONFIG = OptimizerConfig(learning_rate=0.8, warmup_steps=4, final_fraction=0.25)
TOTAL = 12


def learning_rates(**changes):
    schedule = optimizer_lib.learning_rate_schedule(dataclasses.replace(CONFIG, **changes), TOTAL)
    return np.array([schedule(update) for update in range(TOTAL + 1)])


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_the_warm_up_rises_in_equal_steps_and_its_last_update_has_the_peak(schedule):
    np.testing.assert_allclose(learning_rates(schedule=schedule)[:5], [0.2, 0.4, 0.6, 0.8, 0.8], rtol=1e-6)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("warmup_steps", [0, 1])
def test_without_a_warm_up_the_first_update_has_the_peak(schedule, warmup_steps):
    assert learning_rates(schedule=schedule, warmup_steps=warmup_steps)[0] == np.float32(0.8)


def test_constant_stays():
    np.testing.assert_array_equal(learning_rates(schedule="constant")[3:], np.float32(0.8))


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_decay_passes_the_middle_half_way_and_ends_at_its_final_fraction(schedule):
    rates = learning_rates(schedule=schedule)
    np.testing.assert_allclose([rates[4], rates[8], rates[12]], [0.8, 0.5, 0.2], rtol=1e-5)
    assert np.all(np.diff(rates[4:]) < 0)


def test_the_last_update_still_moves_when_the_decay_ends_at_zero():
    rates = learning_rates(schedule="linear", final_fraction=0.0)
    np.testing.assert_allclose([rates[TOTAL - 1], rates[TOTAL]], [0.1, 0], atol=1e-6)


# --- how gradients and state are held

SPEC = ModelSpec(vocab_size=16, num_layers=3, d_model=16, num_heads=2, num_kv_heads=2, head_dim=8, d_ff=16)
ADAM = OptimizerConfig(learning_rate=0.1, warmup_steps=2, weight_decay=0.1, max_grad_norm=0.5)
MESHES = [{}, {"fsdp": 2, "tensor": 2, "context": 2}]


def held(made, compute_dtype="float32"):
    """The first state of a policy whose parameters are the same for every optimizer."""
    params = recipe.init_sharded(jax.random.key(0), dataclasses.replace(SPEC, compute_dtype=compute_dtype))
    return jax.jit(lambda params: recipe.init_state(params, made, None))(params)


def updated(made, updates=3, compute_dtype="float32", last=True):
    """State after some updates with the same gradients for every optimizer; the last update may be refused."""
    state = held(made, compute_dtype)

    @jax.jit
    def update(state, key, wanted):
        scale = jax.random.uniform(key, minval=-1)
        gradients = jax.tree.map(lambda leaf: scale * jnp.cos(3 * leaf), made.differentiated(state.params))
        return recipe.apply_gradients(state, gradients, made, wanted)

    for number in range(updates):
        state, _ = update(state, jax.random.key(number), jnp.bool(last or number + 1 < updates))
    return state


def only(init):
    """A recipe of which nothing but the beginning is looked at."""
    unused = lambda *_: pytest.fail("called")  # noqa: E731
    return recipe.Recipe(init, unused, unused)


def close(a, b, **tolerance):
    jax.tree.map(lambda one, other: np.testing.assert_allclose(np.float32(one), np.float32(other), **tolerance), a, b)


def masters_of(state):
    return {name.split("/")[-1]: leaf for group in state.optimizer.masters.values() for name, leaf in group.items()}


@pytest.mark.parametrize("sizes", MESHES)
def test_a_streamed_update_is_the_resident_one(sizes):
    with on_mesh(**sizes):
        streamed = updated(optimizer_lib.make_optimizer(dataclasses.replace(ADAM, placement="host"), 10, "float32"))
        resident = updated(optimizer_lib.make_optimizer(ADAM, 10, "float32"))
    close(streamed.params, resident.params, rtol=1e-6, atol=1e-7)
    assert streamed.updates == resident.updates == 3
    np.testing.assert_array_equal(masters_of(streamed)["query"], streamed.params["blocks"]["query"])


@pytest.mark.parametrize("sizes", MESHES)
def test_masters_and_moments_stay_in_host_memory_and_the_policy_in_the_compute_dtype(sizes):
    with on_mesh(**sizes):
        made = optimizer_lib.make_optimizer(dataclasses.replace(ADAM, placement="host"), 10, "bfloat16")
        state = updated(made, compute_dtype="bfloat16")
    memories = jax.tree.map(lambda leaf: leaf.sharding.memory_kind, state)
    assert set(jax.tree.leaves(memories.params)) == {"device"}
    assert set(jax.tree.leaves(memories.optimizer.masters)) == {"pinned_host"}
    assert memories.optimizer.moments["blocks"][0].mu["blocks/query"] == "pinned_host"
    assert memories.optimizer.moments["resident"][0].mu["final_norm"] == "device"
    dtypes = jax.tree.map(lambda leaf: str(leaf.dtype), state.params)
    assert (dtypes["blocks"]["query"], dtypes["embedding"]) == ("bfloat16", "bfloat16")
    assert (dtypes["blocks"]["mlp_norm"], dtypes["final_norm"]) == ("float32", "float32")
    np.testing.assert_array_equal(masters_of(state)["query"].astype("bfloat16"), state.params["blocks"]["query"])


@pytest.mark.parametrize("changes", [{}, {"placement": "host"}, {"placement": "host", "moments_dtype": "bfloat16"}])
def test_a_refused_update_changes_nothing(changes):
    with on_mesh():
        made = optimizer_lib.make_optimizer(dataclasses.replace(ADAM, **changes), 10, "float32")
        before, after = updated(made, updates=2), updated(made, updates=3, last=False)
    jax.tree.map(np.testing.assert_array_equal, before, after)


@pytest.mark.parametrize("placement", ["device", "host"])
def test_narrow_moments_take_half_the_bytes_and_are_near_the_wide_ones(placement):
    with on_mesh():
        changed = dataclasses.replace(ADAM, moments_dtype="bfloat16", placement=placement)
        narrow = updated(optimizer_lib.make_optimizer(changed, 10, "float32"))
        wide = updated(optimizer_lib.make_optimizer(dataclasses.replace(ADAM, placement=placement), 10, "float32"))
    moments = narrow.optimizer.moments if placement == "host" else narrow.optimizer
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(moments) if leaf.ndim} == {"bfloat16"}
    close(narrow.params, wide.params, atol=0.02)


def test_rounding_at_random_is_right_on_average_and_leaves_what_bfloat16_holds():
    value = 1 + 0.3 / 128  # 3/10 of the way between two neighbours
    rounded = optimizer_lib._rounded_at_random(jnp.full(20_000, value), jax.random.key(1)).astype(jnp.float32)
    assert set(np.unique(rounded)) == {1.0, np.float32(1 + 1 / 128)}
    np.testing.assert_allclose(np.mean(rounded), value, atol=3 * 0.46 / 128 / 20_000**0.5)
    exact = jnp.array([0.0, -2.5, 96.0])
    np.testing.assert_array_equal(optimizer_lib._rounded_at_random(exact, jax.random.key(2)).astype(jnp.float32), exact)


def test_gradients_are_taken_in_the_dtype_that_was_asked_for_and_applied_in_float32():
    with on_mesh():
        made = optimizer_lib.make_optimizer(dataclasses.replace(ADAM, gradient_dtype="bfloat16"), 10, "bfloat16")
        state = held(made, "bfloat16")
        differentiated = jax.tree.map(lambda leaf: str(leaf.dtype), made.differentiated(state.params))
        state = updated(made, compute_dtype="bfloat16")
    assert (differentiated["blocks"]["up"], differentiated["blocks"]["mlp_norm"]) == ("bfloat16", "float32")
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(state.params)} == {"float32"}


def test_an_abstract_state_says_in_which_memory_everything_is():
    with on_mesh(**{"fsdp": 2}):
        made = optimizer_lib.make_optimizer(dataclasses.replace(ADAM, placement="host"), 10, "float32")
        init = lambda params: recipe.init_state(params, made, None)  # noqa: E731
        abstract = recipe.abstract_state(only(init), SPEC)
        state = held(made)
    place = lambda leaf: (leaf.shape, leaf.dtype, leaf.sharding)  # noqa: E731
    assert jax.tree.map(place, abstract) == jax.tree.map(place, state)


def test_a_checkpoint_comes_back_into_the_memory_that_it_was_in(tmp_path):
    settings = dataclasses.replace(ADAM, placement="host", moments_dtype="bfloat16")
    kept = ReferenceConfig(dtype="float8_e4m3fn", placement="host")
    made = optimizer_lib.make_optimizer(settings, 10, "float32")
    init = lambda params: recipe.init_policy(params, SPEC, made, RunConfig(reference=kept), 0.04)  # noqa: E731
    with on_mesh(**{"fsdp": 2}):
        state = jax.jit(init)(recipe.init_sharded(jax.random.key(0), SPEC))
        with contextlib.closing(Checkpoints(tmp_path, keep=1)) as checkpoints:
            checkpoints.save(1, state, {})
            checkpoints.wait()
            restored = checkpoints.restore(recipe.abstract_state(only(init), SPEC))
    assert restored is not None
    jax.tree.map(np.testing.assert_array_equal, restored.state, state)
    place = lambda leaf: (leaf.dtype, leaf.sharding)  # noqa: E731
    assert jax.tree.map(place, restored.state) == jax.tree.map(place, state)
    assert state.reference["blocks"]["up"].value.sharding.memory_kind == "pinned_host"
