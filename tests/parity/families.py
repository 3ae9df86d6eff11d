"""Tiny random models of every family, made with transformers, and what its own code computes from them."""

import functools
import json
import pathlib
import tempfile
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
import torch
import transformers

from grpo_jax.models.huggingface import spec_from_huggingface
from grpo_jax.models.spec import ModelSpec
from grpo_jax.models.weights import from_huggingface

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "rope_theta": 100.0,
    "rms_norm_eps": 1e-2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
# The norms inside latent attention have an epsilon of 1e-6 in transformers whatever the configuration says.
LATENT = {
    "rms_norm_eps": 1e-6,
    "kv_lora_rank": 12,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 10,
    "v_head_dim": 14,
    "num_key_value_heads": 4,
}
ROUTED = {"moe_intermediate_size": 20, "num_experts_per_tok": 2}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama2": ("Llama", {"num_key_value_heads": 4}),
    "llama3": ("Llama", {"rope_scaling": LLAMA3}),
    "llama_linear": ("Llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.5}}),
    "smollm2": ("Llama", {"tie_word_embeddings": True}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2_windows": ("Qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"tie_word_embeddings": True, "head_dim": 12}),
    "qwen3_yarn": ("Qwen3", {"head_dim": 12, "rope_scaling": YARN}),
    "mistral": ("Mistral", {"sliding_window": 5, "head_dim": 12}),
    "gemma3": (
        "Gemma3",
        {
            "head_dim": 12,
            "sliding_window": 4,
            "query_pre_attn_scalar": 20,
            "layer_types": ["sliding_attention"] * 2 + ["full_attention"],
        },
    ),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_moe": ("Qwen3Moe", {"head_dim": 12, "num_experts": 6, "norm_topk_prob": True, **ROUTED}),
    "deepseek_v2": (
        "DeepseekV2",
        {
            **LATENT,
            **ROUTED,
            "q_lora_rank": None,
            "n_routed_experts": 6,
            "n_shared_experts": 2,
            "topk_method": "group_limited_greedy",
            "n_group": 3,
            "topk_group": 2,
            "routed_scaling_factor": 1.7,
            "first_k_dense_replace": 1,
        },
    ),
    "deepseek_v3": (
        "DeepseekV3",
        {
            **LATENT,
            **ROUTED,
            "q_lora_rank": 16,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "n_group": 4,
            "topk_group": 2,
            "first_k_dense_replace": 1,
            "rope_scaling": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.1},
        },
    ),
}


class Family(NamedTuple):
    """One model in both implementations.

    Attributes:
        model: That of transformers.
        config: Its ``config.json``.
        tensors: Its published tensors.
        spec: Ours.
        params: Ours.
    """

    model: Any
    config: dict[str, Any]
    tensors: dict[str, np.ndarray]
    spec: ModelSpec
    params: dict[str, Any]


@functools.cache
def make(name: str) -> Family:
    """A model whose norms are not 1 and biases not 0: what is never used would go unnoticed."""
    kind, changes = FAMILIES[name]
    config = getattr(transformers, f"{kind}TextConfig" if kind == "Gemma3" else f"{kind}Config")
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForCausalLM")._from_config(
        config(**{**SIZES, **changes}), attn_implementation="eager", dtype=torch.float32
    )
    model.eval()
    with torch.no_grad():
        for tensor_name, tensor in model.state_dict().items():
            norm = "norm" in tensor_name
            middle = 1.0 if norm and kind != "Gemma3" else 0.0
            deviation = 1.0 if "embed_tokens" in tensor_name else 0.2
            tensor.copy_(middle + deviation * torch.randn(tensor.shape))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        published = json.loads((pathlib.Path(folder) / "config.json").read_text())
        tensors = safetensors.numpy.load_file(pathlib.Path(folder) / "model.safetensors")
    spec = spec_from_huggingface(published)
    params = from_huggingface(tensors, spec)
    return Family(model, published, tensors, spec, params)


def logits(model: Any, token_NS: np.ndarray, position_NS: np.ndarray, mask_NS: np.ndarray) -> np.ndarray:
    """What transformers computes."""
    with torch.no_grad():
        out = model(
            input_ids=torch.tensor(token_NS, dtype=torch.long),
            position_ids=torch.tensor(position_NS, dtype=torch.long),
            attention_mask=torch.tensor(mask_NS, dtype=torch.long),
            use_cache=False,
        )
    return out.logits.numpy()
