"""Routing against plain NumPy, both forms of the experts against each other, and the metrics of balance."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.models import decoder, moe
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


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_both_forms_of_the_experts_agree_in_values_and_gradients(activation):
    x, routing, weights = parts()
    assert set(np.unique(routing.choice)) == {-2, -1, 1, 2, 3, 4, 5, 6}

    def loss(form, x, weight, weights):
        out = form(x, routing._replace(weight=weight), weights, activation)
        return jnp.sum(jnp.sin(out)), out

    results = []
    for form in (moe.every_expert, moe.chosen_experts):
        differentiate = jax.jit(jax.value_and_grad(functools.partial(loss, form), argnums=(0, 1, 2), has_aux=True))
        results.append(differentiate(x, routing.weight, weights))
    for one, other in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * np.abs(other).max())
        assert np.abs(other).max() > 1e-3
    np.testing.assert_array_equal(results[1][1][2][0][0], 0)


SPEC = ModelSpec(
    vocab_size=16, num_layers=2, d_model=8, num_heads=2, num_kv_heads=2, head_dim=4, d_ff=8, experts=Experts(4, 2, 6)
)


def test_grouped_products_on_a_mesh_are_those_without_one(monkeypatch):
    monkeypatch.setattr(moe, "every_expert", moe.chosen_experts)
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
        got = jax.jit(differentiate)(placed, mesh.put(x, ("data", "fsdp")))
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_accelerators_get_grouped_products_and_the_cpu_does_not():
    layer = {name: leaf[0] for name, leaf in decoder.init_params(jax.random.key(0), SPEC)["blocks"].items()}
    traced = jax.jit(lambda layer, x: moe.feed_forward(SPEC, layer, x)[0]).trace(layer, jnp.zeros((2, 3, 8)))
    products = {
        platform: traced.lower(lowering_platforms=(platform,)).as_text().count("ragged_dot")
        for platform in ("cpu", "cuda", "tpu")
    }
    assert products["cpu"] == 0
    assert products["cuda"] >= 3
    assert products["tpu"] >= 3


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
