import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.config import ConfigError, LoRAConfig, ModelConfig
from grpo_jax.models import adapters, decoder
from grpo_jax.models.huggingface.peft import lora_of, peft_config, peft_tensors
from grpo_jax.models.layers import Adapter, Projection, project
from grpo_jax.models.presets import preset
from grpo_jax.models.spec import Experts, LoRA, ModelSpec
from grpo_jax.parallel import rules
from grpo_jax.parallel.mesh import AXES, make_mesh

EVERYTHING = ("query", "key", "value", "output", "gate", "up", "down")
SPEC = ModelSpec(
    vocab_size=16,
    num_layers=3,
    d_model=16,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    d_ff=24,
    init_std=0.3,
    embedding_init_std=1.0,
    qkv_bias=True,
    lora=LoRA(rank=3, scale=0.7, targets=EVERYTHING),
)
ROUTED = dataclasses.replace(
    SPEC,
    lora=LoRA(2, 1.5, ("query", "output", "down")),
    experts=Experts(count=4, per_token=2, d_ff=12, first_dense_layers=1),
)
N, S = 4, 7


def make(spec, *, zero=False, seed=0):
    """A policy whose adapters act, unless they are to be fresh ones."""
    params = decoder.init_params(jax.random.key(seed), spec)
    fresh = adapters.init_adapters(jax.random.key(seed + 1), spec)
    if not zero:
        fresh = jax.tree.map(
            lambda leaf: leaf + 0.2 * jax.random.normal(jax.random.key(leaf.size), leaf.shape, leaf.dtype), fresh
        )
    return adapters.attached(params, fresh)


def close(one, other):
    np.testing.assert_allclose(one, other, atol=1e-5)


def rows():
    random = np.random.default_rng(0)
    token_NS = random.integers(0, 16, (N, S)).astype(np.int32)
    position_NS = np.tile(np.arange(S, dtype=np.int32), (N, 1))
    return jnp.asarray(token_NS), jnp.asarray(position_NS), jnp.ones((N, S), jnp.int32)


hidden = jax.jit(decoder.forward, static_argnums=1)


@pytest.mark.parametrize("spec", [SPEC, ROUTED], ids=["dense", "experts"])
def test_the_merged_model_computes_what_the_adapters_do(spec):
    params = make(spec)
    with_adapters = hidden(params, spec, *rows())
    merged = adapters.merged(params, spec)
    assert jax.tree.map(jnp.shape, merged) == jax.tree.map(jnp.shape, adapters.without_adapters(params))
    np.testing.assert_allclose(hidden(merged, spec, *rows()), with_adapters, atol=2e-5)
    assert np.abs(with_adapters - hidden(adapters.without_adapters(params), spec, *rows())).max() > 0.1


def test_each_adapter_adds_its_scaled_product():
    params = make(SPEC)
    merged = adapters.merged(params, SPEC)
    for name, inputs in adapters.INPUTS.items():
        pair, weight = params["adapters"]["blocks"][name], np.asarray(params["blocks"][name])
        for layer in range(SPEC.num_layers):
            size = int(np.prod(weight.shape[1 : 1 + inputs]))
            product = np.asarray(pair["a"][layer]).reshape(size, 3) @ np.asarray(pair["b"][layer]).reshape(3, -1)
            wanted = weight[layer] + 0.7 * product.reshape(weight.shape[1:])
            np.testing.assert_allclose(merged["blocks"][name][layer], wanted, atol=1e-5)


def test_fresh_adapters_change_nothing_and_their_first_gradient_is_that_of_b():
    params = make(SPEC, zero=True)
    base = adapters.without_adapters(params)
    np.testing.assert_array_equal(hidden(params, SPEC, *rows()), hidden(base, SPEC, *rows()))

    def loss(trained):
        return jnp.sum(jnp.square(decoder.forward(adapters.with_trained(params, trained), SPEC, *rows())))

    gradient = jax.grad(loss)(adapters.trained(params))
    for pair in gradient["blocks"].values():
        np.testing.assert_array_equal(pair["a"], 0)
        assert np.abs(pair["b"]).min(axis=tuple(range(1, pair["b"].ndim))).max() > 0
        assert np.abs(pair["b"]).max() > 0


def test_the_start_of_a_is_uniform_and_that_of_layers_and_parameters_differs():
    fresh = adapters.init_adapters(jax.random.key(0), SPEC)["blocks"]
    for name, inputs in (("query", 16), ("output", 32), ("down", 24)):
        a = np.asarray(fresh[name]["a"])
        assert 0.8 < np.abs(a).max() * inputs**0.5 <= 1
        assert not np.array_equal(a[0], a[1])
    assert not np.array_equal(fresh["query"]["a"], fresh["key"]["a"])


def test_prefill_and_decoding_see_the_adapters():
    params, (token_NS, position_NS, segment_NS) = make(SPEC), rows()
    wanted = hidden(params, SPEC, token_NS, position_NS, segment_NS)
    last_BD, prompt = decoder.prefill(params, SPEC, token_NS[:, :4], jnp.full(N, 4))
    np.testing.assert_allclose(last_BD, wanted[:, 3], atol=2e-5)
    cache = decoder.empty_cache(SPEC, N, 1, 3)
    step = jax.jit(decoder.decode_step, static_argnums=1)
    for index in range(3):
        out_BGD, cache = step(params, SPEC, token_NS[:, 4 + index, None], jnp.int32(index), prompt, cache)
        np.testing.assert_allclose(out_BGD[:, 0], wanted[:, 4 + index], atol=2e-5)


def test_every_mesh_computes_what_one_device_computes():
    spec = dataclasses.replace(ROUTED, lora=dataclasses.replace(ROUTED.lora, dropout=0.4))
    params, keys = make(spec), jax.random.split(jax.random.key(3), N)

    def loss(trained, params, *batch):
        return jnp.mean(jnp.square(decoder.forward(adapters.with_trained(params, trained), spec, *batch)))

    value_and_grad = jax.jit(jax.value_and_grad(loss))
    wanted = value_and_grad(adapters.trained(params), params, *rows(), keys)
    axes = decoder.logical_axes(spec) | {"adapters": adapters.logical_axes(spec)}
    for sizes in ({"data": 2, "fsdp": 2, "tensor": 2}, {"fsdp": 2, "context": 2, "expert": 2}):
        with jax.set_mesh(make_mesh(dict.fromkeys(AXES, 1) | sizes)):
            placed = jax.tree.map(lambda leaf, names: rules.shard(leaf, *names), params, axes)
            batch = [rules.shard(jnp.asarray(array), rules.BATCH, None) for array in rows()]
            got = value_and_grad(adapters.trained(placed), placed, *batch, rules.shard(keys, rules.BATCH))
            merged = jax.jit(adapters.merged, static_argnums=1)(placed, spec)
            jax.tree.map(close, merged, adapters.merged(params, spec))
        jax.tree.map(close, got, wanted)


def test_dropout_follows_rows_and_leaves_the_mean_alone():
    spec = dataclasses.replace(SPEC, lora=dataclasses.replace(SPEC.lora, dropout=0.5, targets=("query",)))
    params, keys = make(spec), jax.random.split(jax.random.key(0), N)
    batch = rows()
    once = hidden(params, spec, *batch, keys)
    assert np.abs(once - hidden(params, spec, *batch)).max() > 0.01
    np.testing.assert_array_equal(once, hidden(params, spec, *batch, keys))
    order = np.array([2, 0, 3, 1])
    moved = hidden(params, spec, *(array[order] for array in batch), keys[order])
    np.testing.assert_allclose(moved, once[order], atol=1e-6)
    assert np.abs(hidden(params, spec, *batch, jax.random.split(jax.random.key(1), N)) - once).max() > 0.01

    x = jnp.ones((1, 1, 4000))
    pair = Adapter(jnp.eye(4000), jnp.eye(4000), 1.0, 0.25, jax.random.split(jax.random.key(2), 1))
    added = np.asarray(project(x, Projection(jnp.zeros((4000, 4000)), pair)))
    assert set(np.unique(added.round(5))) == {0.0, np.float32(1.33333)}
    assert abs(added.mean() - 1) < 0.04


def test_patterns_choose_by_published_names():
    spec = dataclasses.replace(SPEC, lora=None)
    ask = {"rank": 4, "alpha": 8.0, "rank_stabilized": False, "dropout": 0.0}
    assert lora_of(spec, targets=LoRAConfig().targets, **ask) == LoRA(4, 2.0, EVERYTHING)
    assert lora_of(spec, targets="[qv]_proj", **ask).targets == ("query", "value")
    stabilized = lora_of(spec, targets="o_proj", **ask | {"rank_stabilized": True})
    assert (stabilized.targets, stabilized.scale) == (("output",), 4.0)
    with pytest.raises(ValueError, match=r"model\.lora\.targets: got 'q', which matches nothing, .* down_proj, "):
        lora_of(spec, targets="q", **ask)
    assert lora_of(dataclasses.replace(ROUTED, lora=None), targets=".*", **ask).targets == EVERYTHING
    with pytest.raises(ValueError, match=r"model\.lora\.rank: got adapters for a model with latent attention"):
        lora_of(preset("deepseek-v3"), targets=".*", **ask)


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        ({"alpha": 16.0}, r"lora\.alpha: got 16\.0, wanted 32\.0, its default, since model\.lora\.rank is 0"),
        ({"rank": 4, "targets": "q_proj["}, r"lora\.targets: got 'q_proj\[', wanted a regular expression \("),
        ({"rank": 4, "dropout": 1.0}, r"lora\.dropout: got 1\.0, wanted less than 1"),
        ({"rank": -1}, r"lora\.rank: got -1, wanted 0 or more"),
        ({"rank": 4, "alpha": 0.0}, r"lora\.alpha: got 0\.0, wanted a positive number"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(lora, message):
    with pytest.raises(ConfigError, match=message):
        ModelConfig(lora=LoRAConfig(**lora)).validate("model")


def test_files_have_the_names_and_shapes_of_peft():
    params = make(ROUTED)
    tensors = peft_tensors(params, ROUTED)
    stem = "base_model.model.model.layers"
    assert {name: array.shape for name, array in tensors.items() if ".0." in name} == {
        f"{stem}.0.self_attn.q_proj.lora_A.weight": (2, 16),
        f"{stem}.0.self_attn.q_proj.lora_B.weight": (32, 2),
        f"{stem}.0.self_attn.o_proj.lora_A.weight": (2, 32),
        f"{stem}.0.self_attn.o_proj.lora_B.weight": (16, 2),
        f"{stem}.0.mlp.down_proj.lora_A.weight": (2, 24),
        f"{stem}.0.mlp.down_proj.lora_B.weight": (16, 2),
    }
    assert not any("layers.1.mlp" in name for name in tensors), "layers with experts have no adapters there"
    config = peft_config(ROUTED, "base")
    assert config["target_modules"] == ["down_proj", "o_proj", "q_proj"]
    assert config["lora_alpha"] / config["r"] == 1.5
