"""Routing against plain NumPy, both forms of the experts against computing them all, and the metrics of balance."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.models import decoder, grouped, layers, moe
from grpo_jax.models.spec import Experts, ModelSpec
from grpo_jax.parallel import mesh, rules

SOFTMAX = Experts(8, 3, 4, normalize=False)
SIGMOID = Experts(
    8,
    3,
    4,
    score="sigmoid",
    weight_scale=2.5,
    choice_bias=True,
    groups=4,
    groups_per_token=2,
    group_score="best_two",
)
VARIANTS = {
    "softmax": SOFTMAX,
    "normalized": dataclasses.replace(SOFTMAX, normalize=True),
    "best_groups": dataclasses.replace(SOFTMAX, groups=4, groups_per_token=2, weight_scale=1.3),
    "sigmoid": SIGMOID,
    "sigmoid_raw": dataclasses.replace(SIGMOID, normalize=False, groups=1),
}


def numpy_route(experts, logits_E, bias_E):
    exponential = np.exp(logits_E)
    score = 1 / (1 + 1 / exponential) if experts.score == "sigmoid" else exponential / exponential.sum()
    wanted = score + bias_E
    size = experts.count // experts.groups
    best = 2 if experts.group_score == "best_two" else 1
    by_group = [sorted(wanted[g * size : (g + 1) * size])[-best:] for g in range(experts.groups)]
    groups = np.argsort([-sum(values) for values in by_group])[: experts.groups_per_token]
    allowed = [e for e in range(experts.count) if experts.groups == 1 or e // size in groups]
    chosen = sorted(allowed, key=lambda e: -wanted[e])[: experts.per_token]
    total = sum(score[e] for e in chosen) if experts.normalize else 1
    return {e: score[e] / total * experts.weight_scale for e in chosen}


@pytest.mark.parametrize("experts", VARIANTS.values(), ids=VARIANTS.keys())
def test_routing_is_that_of_numpy(experts):
    random = np.random.default_rng(0)
    logits_NE = random.normal(size=(50, 8)).astype(np.float32)
    bias_E = random.normal(size=8).astype(np.float32) if experts.choice_bias else np.zeros(8, np.float32)
    routing = moe.route(experts, jnp.asarray(logits_NE), jnp.asarray(bias_E) if experts.choice_bias else None)
    for n in range(50):
        wanted = numpy_route(experts, logits_NE[n].astype(np.float64), bias_E)
        assert set(routing.choice[n].tolist()) == set(wanted)
        for expert, weight in zip(routing.choice[n].tolist(), routing.weight[n].tolist(), strict=True):
            assert weight == pytest.approx(wanted[expert], rel=1e-5)


def test_the_bias_of_choice_gets_no_gradient_and_the_logits_do():
    def loss(logits, bias):
        return jnp.sum(jnp.sin(moe.route(SIGMOID, logits, bias).weight))

    logits = jax.random.normal(jax.random.key(0), (5, 8))
    to_logits, to_bias = jax.grad(loss, argnums=(0, 1))(logits, jnp.linspace(-1, 1, 8))
    assert np.abs(to_logits).max() > 1e-3
    np.testing.assert_array_equal(to_bias, 0)


def parts(tokens=23, chosen=3, experts=6):
    keys = jax.random.split(jax.random.key(1), 5)
    x = jax.random.normal(keys[0], (tokens, 10))
    shapes = [(experts, 10, 7), (experts, 10, 7), (experts, 7, 10)]
    weights = tuple(jax.random.normal(key, shape) for key, shape in zip(keys[1:4], shapes, strict=True))
    # Choices outside 0 .. experts - 1 are held by other devices; expert 0 is never chosen.
    choice = jnp.argsort(jax.random.uniform(keys[4], (tokens, experts + 2)), axis=1)[:, :chosen] - 1
    choice = jnp.where(choice == 0, -2, choice)
    return x, moe.Routing(jax.random.uniform(keys[4], (tokens, chosen)), choice), weights


def every_expert(x, routing, weights, activation):
    """By computing all of them."""
    gate, up, down = weights
    chosen = routing.choice[:, :, None] == jnp.arange(len(gate))[None, None]
    share_NE = jnp.sum(jnp.where(chosen, routing.weight[:, :, None], 0), axis=1)
    hidden = layers.gated(jnp.einsum("ND,EDF->NEF", x, gate), jnp.einsum("ND,EDF->NEF", x, up), activation)
    return jnp.einsum("NEF,EFD->ND", hidden * share_NE[:, :, None], down)


def differentiated(form, x, routing, weights, activation):
    """Values and gradients in float64."""

    def loss(x, weight, weights):
        out = form(x, routing._replace(weight=weight), weights, activation)
        return jnp.sum(jnp.sin(out)), out

    with jax.enable_x64(True):
        arrays = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), (x, routing.weight, weights))
        return jax.tree.map(np.asarray, jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))(*arrays))


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("form", ["blocked", "ragged"])
@pytest.mark.parametrize("tokens", [1, 23, 300])
def test_only_chosen_experts_give_what_every_expert_gives(activation, form, tokens, monkeypatch):
    if form == "ragged":
        monkeypatch.setattr(grouped, "_blocked", grouped._ragged)
        monkeypatch.setattr(grouped, "_blocked_transposed", grouped._ragged_transposed)
    x, routing, weights = parts(tokens)
    if tokens > 1:
        assert set(np.unique(routing.choice)) == {-2, -1, 1, 2, 3, 4, 5, 6}
    wanted = differentiated(every_expert, x, routing, weights, activation)
    got = differentiated(moe.chosen_experts, x, routing, weights, activation)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12 * np.abs(other).max())
    assert np.abs(wanted[1][0]).max() > 1e-3
    np.testing.assert_array_equal(got[1][2][0][0], 0)


@pytest.mark.parametrize("kept", [1, 2, 6])
def test_experts_may_have_all_rows_or_none(kept):
    x, routing, weights = parts(40)
    routing = routing._replace(choice=jnp.minimum(jnp.abs(routing.choice), kept - 1))
    wanted = differentiated(every_expert, x, routing, weights, "silu")
    got = differentiated(moe.chosen_experts, x, routing, weights, "silu")
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12 * np.abs(other).max())


def test_without_experts_at_hand_nothing_is_added():
    x, routing, weights = parts()
    routing = routing._replace(choice=routing.choice * 0 - 1)
    for leaf in jax.tree.leaves(differentiated(moe.chosen_experts, x, routing, weights, "silu")):
        np.testing.assert_array_equal(leaf, 0)


def test_sums_over_blocks_do_not_stall_in_bfloat16():
    # 512 equal shares: added up in bfloat16, the sum would stand still at half of what it should be.
    rows = jnp.ones((512 * grouped.LARGEST_BLOCK, 2), jnp.bfloat16)
    weights, sizes = (jnp.full((1, 2, 2), 0.5, jnp.bfloat16),) * 3, jnp.array([len(rows)])
    _, pull = jax.vjp(lambda weights: grouped.network(rows, weights, sizes, "silu"), weights)
    to_down = pull(jnp.ones_like(rows))[0][2]
    assert to_down.dtype == jnp.bfloat16
    np.testing.assert_allclose(to_down.astype(np.float32), len(rows) / (1 + np.exp(-1)), rtol=0.01)


def test_blocks_follow_the_rows_of_an_expert():
    assert [grouped.block_rows(rows, 8) for rows in (1, 128, 255, 256, 600, 10_000)] == [8, 8, 8, 16, 32, 64]


SPEC = ModelSpec(
    vocab_size=16, num_layers=2, d_model=8, num_heads=2, num_kv_heads=2, head_dim=4, d_ff=8, experts=Experts(4, 2, 6)
)


@pytest.mark.parametrize("form", ["blocked", "ragged"])
def test_grouped_products_on_a_mesh_are_those_without_one(form, monkeypatch):
    if form == "ragged":
        monkeypatch.setattr(grouped, "_blocked", grouped._ragged)
        monkeypatch.setattr(grouped, "_blocked_transposed", grouped._ragged_transposed)
    axes = {name: names[1:] for name, names in decoder.logical_axes(SPEC)["blocks"].items()}
    blocks = decoder.init_params(jax.random.key(0), dataclasses.replace(SPEC, init_std=0.5))["blocks"]
    layer = {name: leaf[0] for name, leaf in blocks.items()}
    x = jax.random.normal(jax.random.key(1), (4, 5, 8))

    def loss(layer, x):
        out, routing = moe.feed_forward(SPEC, rules.gather_parameters(layer, axes), x)
        return jnp.sum(jnp.sin(out)), (out, routing)

    differentiate = jax.value_and_grad(loss, has_aux=True)
    wanted = jax.jit(differentiate)(layer, x)
    with jax.set_mesh(mesh.make_mesh(dict.fromkeys(mesh.AXES, 1) | {"data": 2, "tensor": 2, "expert": 2})):
        placed = {name: mesh.put(leaf, *rules.partition(axes[name])) for name, leaf in layer.items()}
        got = jax.jit(differentiate)(placed, mesh.put(x, rules.RULES[rules.BATCH]))
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("platform", "products"), [("cpu", 0), ("cuda", 0), ("tpu", 3)])
def test_tpus_get_grouped_products_and_others_blocks(monkeypatch, platform, products):
    monkeypatch.setattr(rules, "platform", lambda: platform)
    layer = {name: leaf[0] for name, leaf in decoder.init_params(jax.random.key(0), SPEC)["blocks"].items()}
    traced = jax.jit(lambda layer, x: moe.feed_forward(SPEC, layer, x)[0]).trace(layer, jnp.zeros((2, 3, 8)))
    assert traced.lower(lowering_platforms=(platform,)).as_text().count("ragged_dot") >= products
    assert bool(products) == ("ragged_dot" in str(traced.jaxpr))


def test_loads_count_real_tokens_and_balance_says_how_even_they_are():
    params = decoder.init_params(jax.random.key(0), SPEC)
    token_NS = jnp.arange(12).reshape(2, 6)
    segment_NS = jnp.array([[1] * 6, [1] * 4 + [0] * 2])
    position_NS = jnp.broadcast_to(jnp.arange(6)[None], (2, 6))
    load_LE = decoder.forward_with_load(params, SPEC, token_NS, position_NS, segment_NS, segment_NS > 0)[1]
    np.testing.assert_array_equal(jnp.sum(load_LE, axis=1), [10 * 2, 10 * 2])
    even = moe.balance(jnp.full((2, 4), 5.0))
    assert {name: float(value) for name, value in even.items()} == pytest.approx(
        {"experts/load_max": 1, "experts/load_entropy": 1, "experts/idle_share": 0}
    )
    one_sided = moe.balance(jnp.array([[10.0, 10.0, 0.0, 0.0]]))
    assert {name: float(value) for name, value in one_sided.items()} == pytest.approx(
        {"experts/load_max": 2, "experts/load_entropy": 0.5, "experts/idle_share": 0.5}
    )


def test_first_layers_without_experts_are_not_counted():
    spec = dataclasses.replace(SPEC, experts=Experts(4, 2, 6, first_dense_layers=1))
    row = (jnp.arange(6)[None], jnp.arange(6)[None], jnp.ones((1, 6), jnp.int32))
    params = decoder.init_params(jax.random.key(0), spec)
    load_LE = decoder.forward_with_load(params, spec, *row, row[2] > 0)[1]
    assert load_LE.shape == (1, 4)
    assert load_LE.sum() == 12
