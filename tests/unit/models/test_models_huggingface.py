"""Specs from published configuration files, and published tensors to parameters and back."""

import jax
import numpy as np
import pytest

from grpo_jax.models import decoder
from grpo_jax.models.huggingface import leaf_sources, published_tensors, read_leaf, spec_from_huggingface
from grpo_jax.models.spec import Experts, LatentAttention, ModelSpec, RopeScaling
from grpo_jax.models.weights import from_huggingface

SIZES = {
    "vocab_size": 20,
    "hidden_size": 12,
    "intermediate_size": 14,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
LLAMA = SIZES | {"model_type": "llama"}
YARN = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 0.5}
DEEPSEEK = SIZES | {
    "model_type": "deepseek_v3",
    "num_key_value_heads": 4,
    "q_lora_rank": 6,
    "kv_lora_rank": 5,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 3,
    "v_head_dim": 2,
    "n_routed_experts": 4,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 2.5,
    "rope_scaling": YARN,
}
QWEN3_MOE = SIZES | {
    "model_type": "qwen3_moe",
    "head_dim": 6,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 5,
}
GEMMA3 = SIZES | {"model_type": "gemma3_text", "head_dim": 6, "num_hidden_layers": 7, "sliding_window": 9}
CONFIGS = {
    "llama": LLAMA,
    "tied": LLAMA | {"tie_word_embeddings": True},
    "qwen2": SIZES | {"model_type": "qwen2"},
    "qwen3": SIZES | {"model_type": "qwen3", "head_dim": 6},
    "mixtral": SIZES | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": QWEN3_MOE,
    "deepseek_v3": DEEPSEEK,
    "gemma3": GEMMA3,
}


def test_a_file_as_it_is_published_becomes_a_spec():
    published = LLAMA | {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "head_dim": 6,
        "hidden_act": "silu",
        "initializer_range": 0.04,
        "max_position_embeddings": 8192,
        "mlp_bias": False,
        "pad_token_id": None,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_interleaved": False,
        "rope_scaling": {
            "factor": 8,
            "low_freq_factor": 1,
            "high_freq_factor": 4,
            "original_max_position_embeddings": 99,
            "rope_type": "llama3",
        },
        "rope_theta": 100000,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.42.3",
        "use_cache": True,
    }
    spec = spec_from_huggingface(published)
    assert spec == ModelSpec(
        vocab_size=20,
        num_layers=3,
        d_model=12,
        num_heads=4,
        num_kv_heads=2,
        head_dim=6,
        d_ff=14,
        rope_theta=100_000.0,
        rope_scaling=RopeScaling("llama3", 8.0, 1.0, 4.0, 99),
        norm_epsilon=1e-5,
        tie_embeddings=True,
        init_std=0.04,
        embedding_init_std=0.04,
    )
    assert type(spec.rope_theta) is float
    newer = {name: value for name, value in published.items() if name not in ("rope_theta", "rope_scaling")}
    newer["rope_parameters"] = published["rope_scaling"] | {"rope_theta": 100000}
    assert spec_from_huggingface(newer) == spec


def test_families_differ_by_fields_of_the_spec():
    specs = {name: spec_from_huggingface(config) for name, config in CONFIGS.items()}
    assert specs["llama"].head_dim == 3
    assert specs["qwen2"].qkv_bias
    assert not specs["qwen2"].qk_norm
    assert specs["qwen3"].qk_norm
    assert spec_from_huggingface(SIZES | {"model_type": "qwen3"}).head_dim == 128
    assert specs["mixtral"].experts == Experts(4, 2, 14)
    assert specs["qwen3_moe"].experts == Experts(4, 2, 5, normalize=False)
    assert specs["gemma3"].windows == (9, 9, 9, 9, 9, 0, 9)
    assert specs["gemma3"].tie_embeddings
    assert specs["gemma3"].query_scale == 256**-0.5
    assert (specs["gemma3"].rope_theta, specs["gemma3"].window_rope_theta) == (1e6, 1e4)
    deepseek = specs["deepseek_v3"]
    assert deepseek.latent == LatentAttention(6, 5, 4, 2)
    assert deepseek.head_dim == 7
    assert deepseek.experts == Experts(4, 2, 8, 16, "sigmoid", True, 2.5, True, 2, 1, "best_two", 1)
    assert deepseek.rope_scaling is not None
    grown = 1 + 0.1 * np.log(40)
    half_grown = 1 + 0.05 * np.log(40)
    assert deepseek.rope_scaling.amplitude == pytest.approx(grown / half_grown)
    assert deepseek.query_scale == pytest.approx(7**-0.5 * half_grown**2)


def test_windows_follow_the_family_or_the_list_of_layers():
    qwen2 = SIZES | {"model_type": "qwen2", "sliding_window": 7, "max_window_layers": 2}
    assert spec_from_huggingface(qwen2).windows == ()
    assert spec_from_huggingface(qwen2 | {"use_sliding_window": True}).windows == (0, 0, 7)
    mistral = SIZES | {"model_type": "mistral", "sliding_window": 7}
    assert spec_from_huggingface(mistral).windows == (7, 7, 7)
    assert spec_from_huggingface(mistral | {"sliding_window": None}).windows == ()
    listed = mistral | {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}
    assert spec_from_huggingface(listed).windows == (0, 7, 0)


REFUSED = {
    "family": ({"model_type": "gpt2"}, r"model_type: got 'gpt2', wanted one of .*llama.*qwen3.*configuration\.py"),
    "missing": ({"hidden_size": None}, r"config\.json: hidden_size: got nothing, wanted a value"),
    "unknown": (
        {"b_new": 3, "a_new": 1},
        r"a_new: got 1, wanted only fields whose.*Unknown too: b_new.*Remove",
    ),
    "activation": ({"hidden_act": "gelu"}, r"hidden_act: got 'gelu', wanted 'silu'\. This decoder cannot"),
    "bias": ({"attention_bias": True}, r"attention_bias: got True, wanted False"),
    "heads": ({"num_key_value_heads": 3}, r"num_key_value_heads: got 3, wanted a divisor of num_attention_heads \(4\)"),
    "groups": (DEEPSEEK | {"n_group": 3}, r"n_group: got 3, wanted a divisor of n_routed_experts \(4\)"),
    "text": ({"num_hidden_layers": "3"}, r"num_hidden_layers: got '3', wanted a whole number"),
    "number": ({"rope_theta": True}, r"rope_theta: got True, wanted a number"),
    "partial": ({"partial_rotary_factor": 0.5}, r"partial_rotary_factor: got 0\.5, wanted 1\.0"),
    "kind": (
        {"rope_scaling": {"type": "dynamic", "factor": 2}},
        r"rope_scaling\.rope_type: got 'dynamic', wanted",
    ),
    "scaling": ({"rope_scaling": {"type": "linear", "factor": 2, "x": 1}}, r"rope_scaling\.x: got 1, wanted only"),
    "factor": ({"rope_scaling": {"type": "linear"}}, r"rope_scaling\.factor: got nothing"),
    "context": (
        {"rope_scaling": {"type": "yarn", "factor": 2}},
        r"original_max_position_embeddings: got None",
    ),
    "layers": (
        {"model_type": "mistral", "layer_types": ["chunked_attention"] * 3},
        r"layer_types: got \['chunked.*wanted 3 of 'sliding",
    ),
    "window": (
        {"model_type": "mistral", "layer_types": ["sliding_attention"] * 3},
        r"sliding_window: got None, wanted a number of positions, since layer_types asks for it",
    ),
    "softcap": (
        {"model_type": "gemma3_text", "final_logit_softcapping": 30.0},
        r"final_logit_softcapping: got 30\.0, wanted null",
    ),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_the_decoder_cannot_compute_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        spec_from_huggingface(LLAMA | changes)


def random_params(spec):
    noise = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: decoder.init_params(jax.random.key(0), spec))
    return jax.tree.map(lambda leaf: noise.normal(size=leaf.shape).astype(np.float32), shapes)


def published(spec):
    return dict(published_tensors(random_params(spec), spec))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_tensors_go_both_ways(config):
    spec = spec_from_huggingface(config)
    params = random_params(spec)
    tensors = dict(published_tensors(params, spec))
    assert all(tensor.flags.c_contiguous for tensor in tensors.values())
    back = from_huggingface(tensors, spec)
    assert jax.tree.structure(back) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, back, params)


def test_tensors_have_the_published_names_and_shapes():
    tensors = published(spec_from_huggingface(LLAMA))
    layer = {name.removeprefix("model.layers.1."): value.shape for name, value in tensors.items() if ".1." in name}
    assert layer == {
        "input_layernorm.weight": (12,),
        "self_attn.q_proj.weight": (12, 12),
        "self_attn.k_proj.weight": (6, 12),
        "self_attn.v_proj.weight": (6, 12),
        "self_attn.o_proj.weight": (12, 12),
        "post_attention_layernorm.weight": (12,),
        "mlp.gate_proj.weight": (14, 12),
        "mlp.up_proj.weight": (14, 12),
        "mlp.down_proj.weight": (12, 14),
    }
    assert {name for name in tensors if "layers" not in name} == {
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
    }
    mixtral = spec_from_huggingface(CONFIGS["mixtral"])
    assert "model.layers.2.block_sparse_moe.experts.3.w2.weight" in published(mixtral)
    gemma = spec_from_huggingface(GEMMA3)
    assert "model.layers.6.post_feedforward_layernorm.weight" in published(gemma)


def test_rows_of_query_heads_stay_together():
    spec = spec_from_huggingface(LLAMA)
    tensors = published(spec)
    query = from_huggingface(tensors, spec)["blocks"]["query"]
    matrix = tensors["model.layers.2.self_attn.q_proj.weight"]
    # Query head 3 is the second of those that share key and value head 1.
    np.testing.assert_array_equal(query[2, :, 1, 1], matrix[9:12].T)
    output = from_huggingface(tensors, spec)["blocks"]["output"]
    np.testing.assert_array_equal(output[2, 1, 1], tensors["model.layers.2.self_attn.o_proj.weight"][:, 9:12].T)


def test_pairs_of_rotated_coordinates_become_halves():
    spec = spec_from_huggingface(DEEPSEEK)
    tensors = published(spec)
    down = from_huggingface(tensors, spec)["blocks"]["latent_down"]
    matrix = tensors["model.layers.1.self_attn.kv_a_proj_with_mqa.weight"]
    np.testing.assert_array_equal(down[0], matrix[[0, 1, 2, 3, 4, 5, 7, 6, 8]].T)


def test_narrow_tensors_become_float32_and_one_leaf_can_be_read_alone():
    spec = spec_from_huggingface(LLAMA)
    tensors = published(spec)
    source = next(source for source in leaf_sources(spec) if source.path == ("blocks", "gate"))
    assert source.names == tuple(f"model.layers.{layer}.mlp.gate_proj.weight" for layer in range(3))
    leaf = read_leaf({name: tensors[name].astype(np.float16) for name in source.names}, source)
    assert leaf.dtype == np.float32
    np.testing.assert_allclose(leaf, from_huggingface(tensors, spec)["blocks"]["gate"], atol=2e-3)


def test_a_misshapen_leaf_is_named():
    spec = spec_from_huggingface(LLAMA)
    with pytest.raises(ValueError, match=r"parameter final_norm: got shape \(3,\), wanted \(12,\)"):
        dict(published_tensors(random_params(spec) | {"final_norm": np.ones(3)}, spec))
