"""A ``config.json`` for a spec of ours, so that other programs can run what was trained here."""

import dataclasses
from typing import Any

from grpo_jax.models.huggingface import spec_from_huggingface
from grpo_jax.models.spec import ModelSpec, RopeScaling

_ELSEWHERE = (
    "compute_dtype",
    "remat",
    "logprob_chunk_tokens",
    "attention",
    "attention_block_tokens",
    "init_std",
    "embedding_init_std",
    "lora",
)
"""Fields that say how a spec is computed and begun, not what it computes."""


def published_config(spec: ModelSpec, context_tokens: int) -> dict[str, Any]:
    """Finds a family of published models that computes what the spec does.

    Args:
        spec: The architecture.
        context_tokens: Longest row that the model was trained on, prompt included.

    Returns:
        JSON values from which ``spec_from_huggingface`` makes the same spec.

    Raises:
        ValueError: where no family of Llama's kind does.
    """
    family, model_class = _family(spec)
    config: dict[str, Any] = {
        "model_type": family,
        "architectures": [model_class],
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.d_model,
        "intermediate_size": spec.d_ff,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": spec.norm_epsilon,
        "rope_theta": spec.rope_theta,
        "max_position_embeddings": context_tokens,
        "initializer_range": spec.init_std,
        "tie_word_embeddings": spec.tie_embeddings,
        "torch_dtype": "float32",
    }
    if spec.rope_scaling is not None:
        config["rope_scaling"] = _rope_scaling(spec.rope_scaling)
    if spec.windows:
        config["sliding_window"] = spec.windows[0]
    if spec.experts is not None:
        config |= {"num_experts_per_tok": spec.experts.per_token, "norm_topk_prob": spec.experts.normalize}
        config |= {"num_experts": spec.experts.count, "moe_intermediate_size": spec.experts.d_ff}
    read = spec_from_huggingface(config)
    if read != dataclasses.replace(spec, **{name: getattr(read, name) for name in _ELSEWHERE}):
        differing = [
            field.name
            for field in dataclasses.fields(spec)
            if field.name not in _ELSEWHERE and getattr(read, field.name) != getattr(spec, field.name)
        ]
        raise ValueError(
            f"model: no family of published models like {family!r} has this {', '.join(differing)}. Models that were "
            "published themselves keep the config.json that they came with."
        )
    return config


def _family(spec: ModelSpec) -> tuple[str, str]:
    if spec.experts is not None:
        return "qwen3_moe", "Qwen3MoeForCausalLM"
    if spec.qk_norm:
        return "qwen3", "Qwen3ForCausalLM"
    if spec.qkv_bias:
        return "qwen2", "Qwen2ForCausalLM"
    if spec.windows:
        return "mistral", "MistralForCausalLM"
    return "llama", "LlamaForCausalLM"


def _rope_scaling(scaling: RopeScaling) -> dict[str, Any]:
    values: dict[str, Any] = {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind != "linear":
        values["original_max_position_embeddings"] = scaling.original_max_positions
    if scaling.kind == "llama3":
        values |= {"low_freq_factor": scaling.low_freq_factor, "high_freq_factor": scaling.high_freq_factor}
    if scaling.kind == "yarn":
        values |= {"beta_fast": scaling.beta_fast, "beta_slow": scaling.beta_slow}
        values |= {"truncate": scaling.whole_pairs, "attention_factor": scaling.amplitude}
    return values
