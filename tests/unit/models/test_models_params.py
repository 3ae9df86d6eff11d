"""Parameters, their logical axes, their numerics, and specs from configurations."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.config import ModelConfig
from grpo_jax.models import decoder
from grpo_jax.models.spec import ModelSpec, RopeScaling, from_config
from grpo_jax.parallel import rules

SPEC = ModelSpec(
    vocab_size=96,
    num_layers=3,
    d_model=64,
    num_heads=8,
    num_kv_heads=4,
    head_dim=16,
    d_ff=128,
    init_std=0.05,
    embedding_init_std=0.7,
)
SMALL = dataclasses.replace(
    SPEC, vocab_size=16, d_model=16, num_heads=2, num_kv_heads=1, head_dim=8, d_ff=16, tie_embeddings=True
)

init_params = jax.jit(decoder.init_params, static_argnames="spec")
forward = jax.jit(decoder.forward, static_argnames="spec")


@pytest.mark.parametrize(("tied", "qk_norm", "bias"), list(itertools.product([False, True], repeat=3)))
def test_logical_axes_have_the_structure_of_the_parameters(tied, qk_norm, bias):
    spec = dataclasses.replace(SPEC, tie_embeddings=tied, qk_norm=qk_norm, qkv_bias=bias)
    shapes = jax.eval_shape(lambda key: decoder.init_params(key, spec), jax.random.key(0))
    axes = decoder.logical_axes(spec)
    is_names = lambda node: isinstance(node, tuple)  # noqa: E731
    assert jax.tree.structure(shapes) == jax.tree.structure(axes, is_leaf=is_names)
    sizes = {"layers": 3, "embed": 64, "vocab": 96, "heads": 4, "mlp": 128}
    for leaf, names in zip(jax.tree.leaves(shapes), jax.tree.leaves(axes, is_leaf=is_names), strict=True):
        assert leaf.dtype == jnp.float32
        assert [sizes.get(name, size) for name, size in zip(names, leaf.shape, strict=True)] == list(leaf.shape)
        assert {name for name in names if name} <= set(rules.RULES)
    assert ("unembedding" in shapes) == (not tied)
    assert ("query_norm" in shapes["blocks"], "key_norm" in shapes["blocks"]) == (qk_norm, qk_norm)
    assert {f"{name}_bias" in shapes["blocks"] for name in ("query", "key", "value")} == {bias}


@pytest.fixture(scope="module")
def fresh():
    spec = dataclasses.replace(SPEC, qk_norm=True, qkv_bias=True)
    return jax.device_get(init_params(jax.random.key(3), spec))


def test_init_has_the_standard_deviations_of_the_spec(fresh):
    blocks = fresh["blocks"]
    residual = 0.05 / np.sqrt(2 * 3)
    wanted = dict.fromkeys(("query", "key", "value", "gate", "up"), 0.05) | dict.fromkeys(("output", "down"), residual)
    for name, deviation in wanted.items():
        np.testing.assert_allclose(blocks[name].std(axis=tuple(range(1, blocks[name].ndim))), deviation, rtol=0.05)
        np.testing.assert_allclose(blocks[name].mean(), 0, atol=deviation / 20)
    np.testing.assert_allclose(fresh["embedding"].std(), 0.7, rtol=0.05)
    np.testing.assert_allclose(fresh["unembedding"].std(), 0.05, rtol=0.05)
    for name in ("attention_norm", "mlp_norm", "query_norm", "key_norm"):
        np.testing.assert_array_equal(blocks[name], 1)
    np.testing.assert_array_equal(fresh["final_norm"], 1)
    for name in ("query_bias", "key_bias", "value_bias"):
        np.testing.assert_array_equal(blocks[name], 0)


def test_no_two_parameters_share_their_noise(fresh):
    random = [leaf.reshape(-1) for leaf in (fresh["embedding"], fresh["unembedding"])]
    random += [layer.reshape(-1) for leaf in fresh["blocks"].values() if leaf.std() > 0.01 for layer in leaf]
    assert len(random) == 2 + 7 * 3
    for one, other in itertools.combinations(random, 2):
        size = min(one.size, other.size)
        assert abs(np.corrcoef(one[:size], other[:size])[0, 1]) < 0.1


def test_fresh_parameters_have_the_types_of_updated_ones():
    """A weakly typed one would have every program compiled again after the first update."""
    params = jax.eval_shape(lambda: init_params(jax.random.key(0), SMALL))
    assert not [leaf for leaf in jax.tree.leaves(params) if leaf.weak_type]


def test_init_follows_its_key():
    first, same, other = (init_params(jax.random.key(seed), SMALL) for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, first, same)
    assert not np.allclose(first["blocks"]["gate"], other["blocks"]["gate"])


def compiled_gradient(spec, params):
    token_NS = jax.random.randint(jax.random.key(5), (4, 64), 0, spec.vocab_size)
    position_NS = jnp.broadcast_to(jnp.arange(64)[None], token_NS.shape)

    def loss(params):
        hidden_NSD = decoder.forward(params, spec, token_NS, position_NS, jnp.ones_like(token_NS))
        return jnp.mean(jnp.sin(3 * hidden_NSD.astype(jnp.float32)))

    return jax.jit(jax.grad(loss)).lower(params).compile()


def test_remat_policies_save_memory_and_give_the_same_gradient():
    params = init_params(jax.random.key(0), dataclasses.replace(SMALL, init_std=0.3))
    programs = {}
    for remat in ("none", "dots", "full", "host"):
        programs[remat] = compiled_gradient(dataclasses.replace(SMALL, remat=remat), params)
    gradients = {remat: program(params) for remat, program in programs.items()}
    for remat in ("dots", "full", "host"):
        for leaf, wanted in zip(jax.tree.leaves(gradients[remat]), jax.tree.leaves(gradients["none"]), strict=True):
            np.testing.assert_allclose(leaf, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())
            assert np.abs(wanted).max() > 0
        kept = {remat: program.memory_analysis().temp_size_in_bytes for remat, program in programs.items()}
    assert kept["full"] < kept["dots"] < kept["none"], kept


def test_bfloat16_computes_narrow_and_keeps_float32_masters():
    narrow, wide = (dataclasses.replace(SMALL, init_std=0.3, compute_dtype=d) for d in ("bfloat16", "float32"))
    params = init_params(jax.random.key(0), narrow)
    row = (jnp.arange(8)[None], jnp.arange(8)[None], jnp.ones((1, 8), jnp.int32))
    hidden_NSD = forward(params, narrow, *row)
    assert hidden_NSD.dtype == jnp.bfloat16
    assert decoder.unembedding(params, narrow).dtype == jnp.bfloat16
    np.testing.assert_allclose(hidden_NSD.astype(jnp.float32), forward(params, wide, *row), atol=0.1)
    gradient = compiled_gradient(narrow, params)(params)
    assert {leaf.dtype for leaf in jax.tree.leaves((params, gradient))} == {jnp.dtype("float32")}
    wanted = compiled_gradient(wide, params)(params)
    for leaf, value in zip(jax.tree.leaves(gradient), jax.tree.leaves(wanted), strict=True):
        assert np.linalg.norm(leaf - value) <= 0.05 * np.linalg.norm(value)


CHANGED = {
    "num_layers": 3,
    "d_model": 48,
    "num_heads": 6,
    "num_kv_heads": 2,
    "head_dim": 10,
    "d_ff": 7,
    "rope_theta": 5e5,
    "norm_epsilon": 1e-6,
    "tie_embeddings": True,
    "qk_norm": True,
    "qkv_bias": True,
    "init_std": 0.1,
    "embedding_init_std": 0.3,
    "compute_dtype": "bfloat16",
    "remat": "full",
    "logprob_chunk_tokens": 77,
    "attention": "blockwise",
    "attention_block_tokens": 7,
}
SCALING = {
    "rope_scaling": "llama3",
    "rope_scaling_factor": 8.0,
    "rope_low_freq_factor": 2.0,
    "rope_high_freq_factor": 3.0,
    "rope_original_max_positions": 99,
}


def test_every_key_of_the_configuration_reaches_the_spec():
    assert {field.name for field in dataclasses.fields(ModelConfig)} == {
        "path",
        "vocab_size",
        "lora",
        *CHANGED,
        *SCALING,
    }
    default = ModelConfig()
    assert all(getattr(default, name) != value for name, value in (CHANGED | SCALING).items())
    spec = from_config(ModelConfig(**CHANGED, **SCALING), 20)
    assert {name: getattr(spec, name) for name in CHANGED} == CHANGED
    assert spec.rope_scaling == RopeScaling("llama3", 8.0, 2.0, 3.0, 99)
    assert spec.queries_per_kv_head == 3
    assert hash(spec) == hash(from_config(ModelConfig(**CHANGED, **SCALING), 20))
    assert from_config(default, 20).rope_scaling is None
    linear = from_config(ModelConfig(rope_scaling="linear", rope_scaling_factor=2.0), 20).rope_scaling
    assert linear is not None
    assert (linear.kind, linear.factor) == ("linear", 2.0)


def test_the_vocabulary_is_the_tokenizers_unless_the_configuration_makes_it_larger():
    assert from_config(ModelConfig(), 20).vocab_size == 20
    assert from_config(ModelConfig(vocab_size=20), 20).vocab_size == 20
    assert from_config(ModelConfig(vocab_size=64), 20).vocab_size == 64
    with pytest.raises(ValueError, match=r"config\.model\.vocab_size: got 19, .*at least the tokenizer's 20.*Set it"):
        from_config(ModelConfig(vocab_size=19), 20)
