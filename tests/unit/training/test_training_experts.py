"""Experts in training: loads that are counted, biases that even them out, routes that are replayed, a mesh axis."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from grpo_jax import config as config_lib
from grpo_jax.models import decoder, layers, moe
from grpo_jax.models.spec import Experts, LoRA, ModelSpec
from grpo_jax.parallel import rules
from grpo_jax.rollout.engine import SamplingParams, assemble
from grpo_jax.rollout.jax_engine import JaxEngine
from grpo_jax.training import completions, experts, grpo, judged, ppo, recipe
from tests.meshes import on_mesh

B, G, T, V, A, E = 4, 4, 6, 14, 2, 4
PROMPTS = [[5, 1, 2], [1, 2, 4, 6, 7, 8, 9], [10, 12, 13, 0, 1], [4]]
SPEC = ModelSpec(
    vocab_size=V,
    num_layers=2,
    d_model=8,
    num_heads=2,
    num_kv_heads=2,
    head_dim=4,
    d_ff=8,
    logprob_chunk_tokens=40,
    experts=Experts(E, A, 6, shared_d_ff=4, score="sigmoid", weight_scale=1.5, choice_bias=True, first_dense_layers=1),
)
DENSE = dataclasses.replace(SPEC, experts=None)
SPEED = 0.02
# The first moment of the first update is the gradient itself: b1 is 0 and the clip is out of reach.
GRADIENT_IN_MOMENT = config_lib.OptimizerConfig(b1=0.0, max_grad_norm=1e9)
# Groups 0 and 2 teach nothing: 8 of 16 rows take part, in two micro-batches of four.
REWARDS = np.array([[0] * 4, [0, 1, 0, 0], [0.35] * 4, [1, 1, 1, 0]], np.float32)
PPO = pytest.param("ppo", marks=pytest.mark.slow)
EVERYONE_IN_PPO = pytest.param("ppo", [True] * 4, marks=pytest.mark.slow)
SCORE = jax.jit(completions.completion_logprobs, static_argnames=("spec", "temperature"))


@pytest.fixture(autouse=True)
def one_device():
    with on_mesh():
        yield


@functools.cache
def host_params(seed=0):
    noise = np.random.default_rng(seed)

    def draw(path, leaf):
        name = path[-1].key
        middle, deviation = (
            (1, 0.2) if name.endswith("norm") else (0, {"embedding": 1, "router_bias": 0.1}.get(name, 0.4))
        )
        return (middle + deviation * noise.normal(size=leaf.shape)).astype(np.float32)

    shapes = jax.eval_shape(lambda key: decoder.init_params(key, SPEC), jax.random.key(0))
    return jax.tree_util.tree_map_with_path(draw, shapes)


def placed(params):
    return jax.tree.map(lambda array, like: jax.device_put(array, like.sharding), params, recipe.abstract_params(SPEC))


def bias_of(state):
    return np.array(state.params["blocks"]["router_bias"])


def with_block(params, **leaves):
    return params | {"blocks": params["blocks"] | leaves}


@functools.cache
def rollout(seed=0):
    """Sampled by the policy itself, in batches of two prompts, with the experts that were visited."""
    with on_mesh():
        engine = JaxEngine(SPEC, eos_ids=(3, 8, 11), pad_id=0, batch_completions=8, chunk_tokens=4, record_experts=True)
        engine.sync(placed(host_params(seed)), 0)
        groups = list(engine.generate(PROMPTS, sampling=SamplingParams(G, T), key=jax.random.key(1)))
    assert {group.length_G.min() for group in groups} != {T}
    return assemble(groups, PROMPTS, pad_id=0)


def outcome(reward_BG=REWARDS):
    return recipe.Outcome(reward_BG, reward_BG[:, :, None], np.ones(reward_BG.shape, bool))


@functools.cache
def run_config(optimizer=GRADIENT_IN_MOMENT, name="grpo", **algorithm):
    return config_lib.RunConfig(
        steps=10,
        recipe=name,
        rollout=config_lib.RolloutConfig(prompts_per_step=B, completions_per_prompt=G, max_new_tokens=T),
        algorithm=config_lib.AlgorithmConfig(**{"micro_batch_completions": 4, "old_logprobs": "trainer"} | algorithm),
        ppo=config_lib.PPOConfig(kl_beta=0.0, critic=optimizer),
        optimizer=optimizer,
    )


@functools.cache
def make_recipe(name="grpo", *, router_bias_update=SPEED, **settings):
    run = run_config(name=name, router_bias_update=router_bias_update, **settings)
    return {"grpo": grpo, "ppo": ppo}[name].make_recipe(run, SPEC)


def updated(made, state=None, judge=None, batch=None):
    """The state after one update, and its metrics."""
    state = made.init(placed(host_params())) if state is None else state
    prepared, metrics = made.prepare(state, batch or rollout(), judge or outcome(), 1)
    state, more = made.update(state, prepared)
    return state, jax.tree.map(float, jax.device_get({**metrics, **more}))


def rows_of(batch, replay=True):
    settings = config_lib.AlgorithmConfig(router_replay=replay)
    put = judged.judged_batch(batch, outcome(), settings)
    return put.rows(jnp.zeros(batch.token_BGT.shape), jnp.ones((B, G)))


def predicting_choice_NTA(batch):
    """The recorded experts of the token that each completion's token was predicted from; one layer has experts."""
    last_of_prompt = np.repeat(batch.prompt_choice_BPLA[:, None, -1:, 0], G, axis=1)
    return np.concatenate([last_of_prompt, batch.choice_BGTLA[:, :, :-1, 0]], axis=2).reshape(B * G, -1, A)


def counted_load(batch, takes_part_B):
    """Choices by expert, counted on the host."""
    counted_NT = (batch.mask_BGT & np.asarray(takes_part_B)[:, None, None]).reshape(B * G, -1)
    return np.bincount(predicting_choice_NTA(batch)[counted_NT].reshape(-1), minlength=E)


# --- loads


@pytest.mark.parametrize(
    ("name", "takes_part_B"),
    [("grpo", [False, True, False, True]), EVERYONE_IN_PPO],
)
def test_the_load_is_that_of_the_tokens_that_were_trained_on(name, takes_part_B):
    _, metrics = updated(make_recipe(name))
    load_E = counted_load(rollout(), takes_part_B)
    assert load_E.sum() == A * metrics["trained_tokens"]
    share_E = load_E / load_E.sum()
    assert metrics["experts/load_max"] == pytest.approx(E * share_E.max(), rel=1e-5)
    used_E = share_E[share_E > 0]
    assert metrics["experts/load_entropy"] == pytest.approx(-np.sum(used_E * np.log(used_E)) / np.log(E), rel=1e-5)
    assert metrics["experts/idle_share"] == np.mean(load_E == 0)


def test_a_policy_without_experts_has_no_loads():
    rows = rows_of(rollout(), replay=False)
    scored = jax.eval_shape(lambda key: SCORE(decoder.init_params(key, DENSE), DENSE, rows, 1.0), jax.random.key(0))
    assert scored.load_LE is None


# --- biases


def test_an_update_moves_each_bias_by_the_speed_towards_even_load():
    state, _ = updated(make_recipe())
    load_E = counted_load(rollout(), [False, True, False, True])
    even = load_E.sum() / E
    assert load_E.min() < even < load_E.max()
    wanted = host_params()["blocks"]["router_bias"][0] + SPEED * np.sign(even - load_E).astype(np.float32)
    np.testing.assert_array_equal(bias_of(state)[0], wanted)


def test_nothing_else_moves_a_bias_neither_decay_nor_momentum():
    adam = config_lib.OptimizerConfig(learning_rate=0.1, warmup_steps=0, weight_decay=0.5)
    made = make_recipe(optimizer=adam, router_bias_update=0.0, kl_beta=0.0)
    state = made.init(placed(host_params()))
    for _ in range(3):
        state, metrics = updated(made, state)
        assert metrics["grad_norm"] > 0
    assert state.updates == 3
    np.testing.assert_array_equal(bias_of(state), host_params()["blocks"]["router_bias"])
    assert np.abs(np.asarray(state.params["blocks"]["router"]) - host_params()["blocks"]["router"]).max() > 0.01


@pytest.mark.parametrize("refused", ["skipped_update", "nonfinite_update"])
@pytest.mark.parametrize("name", ["grpo", PPO])
def test_an_update_that_is_not_applied_moves_no_bias(refused, name):
    made, params, judge = make_recipe(name), host_params(), outcome()
    if refused == "skipped_update":
        judge = judge._replace(valid_BG=np.zeros((B, G), bool))
    else:
        params = params | {"final_norm": params["final_norm"] * np.nan}
    state, metrics = updated(made, made.init(placed(params)), judge)
    assert metrics[refused] == 1
    np.testing.assert_array_equal(bias_of(state), host_params()["blocks"]["router_bias"])
    state, metrics = updated(made)
    assert metrics[refused] == 0
    assert np.abs(bias_of(state) - host_params()["blocks"]["router_bias"]).max() > SPEED / 2


def test_an_unbalanced_router_becomes_balanced_and_the_reference_keeps_its_own():
    made = make_recipe()
    skewed = np.array([[0.6, 0.3, -0.3, -0.6]], np.float32)
    state, loads = made.init(placed(with_block(host_params(), router_bias=skewed))), []
    for _ in range(60):
        state, metrics = updated(made, state)
        loads.append(metrics["experts/load_max"])
    assert loads[0] > 1.7
    assert np.mean(loads[-10:]) < 1.2
    np.testing.assert_array_equal(state.reference["blocks"]["router_bias"], skewed)


# --- replay


@functools.cache
def visited_NSA():
    """Experts of every token in the trainer's own forward pass, read off the loads of one token at a time."""
    rows = rows_of(rollout(), replay=False)
    P, S = rows.prompt_NP.shape[1], rows.prompt_NP.shape[1] + T
    index_NS = jnp.arange(S)[None] - (P - rows.prompt_length_N[:, None])
    token_NS = jnp.concatenate([rows.prompt_NP, rows.token_NT], axis=1)
    real_NS = (index_NS >= 0) & (index_NS < (rows.prompt_length_N + rows.length_N)[:, None])
    one_token = jnp.eye(B * G * S, dtype=bool).reshape(-1, B * G, S)

    @jax.jit
    def loads(params):
        row = (token_NS, jnp.maximum(index_NS, 0), real_NS.astype(jnp.int32))
        return jax.lax.map(lambda counted_NS: decoder.forward_with_load(params, SPEC, *row, counted_NS)[1], one_token)

    return np.asarray(loads(host_params())).reshape(B * G, S, E), np.asarray(real_NS)


def test_sampled_and_trained_routes_are_equal_for_every_token():
    batch = rollout()
    assert batch.choice_BGTLA.dtype == batch.prompt_choice_BPLA.dtype == np.uint8
    load_NSE, real_NS = visited_NSA()
    recorded_NSA = np.asarray(rows_of(batch).choice_NSLA)[:, :, 0]
    P = batch.prompt_BP.shape[1]
    # The last token of a completion is not read again by the sampler, and predicts nothing in training.
    read_NS = real_NS & (np.arange(P + T) < P + batch.length_BG.reshape(-1, 1) - 1)
    assert read_NS[:, :P].sum() == G * sum(map(len, PROMPTS))
    recorded_NSE = (recorded_NSA[:, :, :, None] == np.arange(E)).sum(axis=2)
    np.testing.assert_array_equal(recorded_NSE[read_NS], load_NSE[read_NS])
    assert len(np.unique(recorded_NSA[read_NS], axis=0)) > 3


def test_replay_with_the_same_parameters_changes_no_log_probability():
    batch, params = rollout(), placed(host_params())
    free, replayed = (
        np.asarray(SCORE(params, SPEC, rows_of(batch, replay), 1.0).logprob_NT)[batch.mask_BGT.reshape(B * G, T)]
        for replay in (False, True)
    )
    np.testing.assert_allclose(replayed, free, rtol=0, atol=1e-6)
    np.testing.assert_allclose(replayed, batch.logprob_BGT[batch.mask_BGT], rtol=0, atol=1e-5)


def along(choice_NSA):
    """A mixture of experts by plain sums over all of them, along given routes."""

    def feed_forward(spec, parameters, x, choice=None):
        score = jax.nn.sigmoid(x @ parameters["router"])
        weight = score * jnp.any(jnp.asarray(choice_NSA)[..., None] == jnp.arange(E)[None, None, None], axis=2)
        weight = spec.experts.weight_scale * weight / jnp.sum(weight, axis=-1, keepdims=True)
        # Rows and experts share a mesh axis.
        gate, up, down = (rules.replicate(parameters[f"expert_{name}"]) for name in ("gate", "up", "down"))
        hidden = jax.nn.silu(jnp.einsum("NSD,EDF->NSEF", x, gate))
        hidden = hidden * jnp.einsum("NSD,EDF->NSEF", x, up) * weight[..., None]
        place = layers.sharding_of(x)
        out = jnp.einsum("NSEF,EFD->NSD", hidden, down, out_sharding=place)
        shared = jax.nn.silu(x @ parameters["shared_gate"]) * (x @ parameters["shared_up"])
        return out + jnp.einsum("NSF,FD->NSD", shared, parameters["shared_down"], out_sharding=place), None

    return feed_forward


def test_a_router_that_has_moved_since_is_trained_along_the_recorded_routes(monkeypatch):
    batch, moved = rollout(), host_params()
    noise = np.random.default_rng(5).normal(size=moved["blocks"]["router"].shape).astype(np.float32)
    moved = with_block(moved, router=moved["blocks"]["router"] + noise)
    mask_NT = batch.mask_BGT.reshape(B * G, T)

    def total(params, rows):
        logprob_NT = completions.completion_logprobs(params, SPEC, rows, 1.0).logprob_NT
        return jnp.sum(jnp.where(mask_NT, logprob_NT, 0)), logprob_NT

    differentiate = lambda: jax.jit(jax.value_and_grad(total, has_aux=True))  # noqa: E731
    rows = rows_of(batch)
    (_, free), _ = jax.device_get(differentiate()(moved, rows.freely_routed))
    (_, got), gradient = jax.device_get(differentiate()(moved, rows))
    assert np.abs(got - free)[mask_NT].max() > 0.01
    monkeypatch.setattr(moe, "feed_forward", along(np.asarray(rows.choice_NSLA)[:, :-1, 0]))
    (_, wanted), wanted_gradient = jax.device_get(differentiate()(moved, rows.freely_routed))
    np.testing.assert_allclose(got[mask_NT], wanted[mask_NT], rtol=0, atol=1e-5)
    for (path, one), other in zip(
        jax.tree_util.tree_leaves_with_path(gradient), jax.tree.leaves(wanted_gradient), strict=True
    ):
        scale = np.abs(other).max()
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4 * max(scale, 1e-3), err_msg=str(path))
    assert np.abs(gradient["blocks"]["router"]).max() > 0.01


def stale():
    """A policy whose router is no longer that of the sampler."""
    return with_block(host_params(), router=host_params(3)["blocks"]["router"])


@pytest.mark.parametrize("name", ["grpo", PPO])
def test_old_log_probabilities_and_updates_follow_the_routes_and_the_reference_does_not(name):
    scored = {}
    for replay in (False, True):
        made = make_recipe(name, router_replay=True) if replay else make_recipe(name)
        prepared, _ = made.prepare(made.init(placed(stale())), rollout(), outcome(), 1)
        scored[replay] = prepared.micro_batches
        assert (scored[replay].rows.choice_NSLA is not None) == replay
    count = 2 if name == "grpo" else 4
    moved = np.abs(scored[True].old_logprob_NT - scored[False].old_logprob_NT)[:count]
    assert moved.max() > 0.01
    rows = jax.tree.map(lambda leaf: leaf[0], scored[True].rows)
    wanted = SCORE(placed(stale()), SPEC, rows, 1.0).logprob_NT
    np.testing.assert_allclose(scored[True].old_logprob_NT[0], wanted, rtol=0, atol=1e-5)
    fixed = "ref_logprob_NT" if name == "grpo" else "old_value_NT"
    np.testing.assert_array_equal(getattr(scored[True], fixed), getattr(scored[False], fixed))


def test_along_its_routes_the_update_of_a_stale_router_has_ratios_of_one():
    # Old log-probabilities and update are both computed along the recorded routes: nothing has moved in between.
    made = make_recipe(router_replay=True)
    state = made.init(placed(stale()))
    prepared, _ = made.prepare(state, rollout(), outcome(), 1)
    _, metrics = made.update(state, prepared)
    assert metrics["policy_loss"] == pytest.approx(0, abs=1e-6)
    assert metrics["sampling/sampling_logp_difference/max"] > 0.01


def test_replay_without_recorded_experts_is_refused():
    batch = rollout()._replace(choice_BGTLA=None, prompt_choice_BPLA=None)
    with pytest.raises(ValueError, match=r"config\.algorithm\.router_replay: got True, wanted False, since the engine"):
        rows_of(batch)


# --- meshes


@functools.cache
def on_one_device():
    with on_mesh():
        state, metrics = updated(make_recipe(router_replay=True))
        return jax.device_get(optax.tree.get(state.optimizer, "mu")), metrics, bias_of(state)


@pytest.mark.parametrize(
    "sizes",
    [
        {"data": 2, "expert": 2},
        pytest.param({"fsdp": 2, "context": 2, "expert": 2}, marks=pytest.mark.slow),
        pytest.param({"data": 2, "tensor": 2, "expert": 2}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_an_update_with_experts_on_several_devices_is_that_of_one(sizes):
    wanted, wanted_metrics, wanted_bias = on_one_device()
    with on_mesh(**sizes):
        state, metrics = updated(make_recipe(router_replay=True))
    scale = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(wanted))
    assert scale > 0.01
    got = jax.device_get(optax.tree.get(state.optimizer, "mu"))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * scale), got, wanted)
    assert metrics["loss"] == pytest.approx(wanted_metrics["loss"], abs=1e-5)
    for metric in ("experts/load_max", "experts/load_entropy", "experts/idle_share"):
        assert metrics[metric] == pytest.approx(wanted_metrics[metric], rel=1e-6)
    np.testing.assert_array_equal(bias_of(state), wanted_bias)


@pytest.mark.parametrize(
    ("spec", "devices", "algorithm", "message"),
    [
        (DENSE, 2, {}, r"config\.mesh\.expert: got 2, wanted 1, since the policy has no experts\. Give"),
        (SPEC, 8, {}, r"config\.mesh\.expert: got 8, wanted a divisor of the policy's 4 experts\. Give"),
        (DENSE, 1, {"router_replay": True}, r"config\.algorithm\.router_replay: got True, wanted False, since the po"),
        (DENSE, 1, {"router_bias_update": 0.1}, r"config\.algorithm\.router_bias_update: got 0\.1, wanted 0, since"),
        (
            dataclasses.replace(SPEC, experts=Experts(E, A, 6)),
            1,
            {"router_bias_update": 0.001},
            r"config\.algorithm\.router_bias_update: got 0\.001, wanted 0, since the policy's choice",
        ),
        (
            dataclasses.replace(SPEC, lora=LoRA(2, 2.0, ("query",))),
            1,
            {"router_bias_update": 0.001},
            r"config\.algorithm\.router_bias_update: got 0\.001, wanted 0, since model\.lora freezes",
        ),
    ],
)
def test_what_a_policy_cannot_have_is_refused(spec, devices, algorithm, message):
    with on_mesh(expert=devices), pytest.raises(config_lib.ConfigError, match=message):
        experts.check(run_config(**algorithm), spec)
