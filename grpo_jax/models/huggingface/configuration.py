"""From a Hugging Face ``config.json`` to a ``ModelSpec``: every field is used, known not to matter, or refused."""

from collections.abc import Callable, Mapping
from typing import Any

from grpo_jax.models.huggingface.fields import Fields
from grpo_jax.models.huggingface.rope import Rope, read_rope, read_two_ropes
from grpo_jax.models.spec import Experts, LatentAttention, ModelSpec


def spec_from_huggingface(config: Mapping[str, Any]) -> ModelSpec:
    """Reads the architecture of a published model; numerics keep their defaults.

    Args:
        config: The parsed ``config.json``, in the spelling of transformers 4 or 5.

    Returns:
        The spec; ``dataclasses.replace`` sets ``compute_dtype``, ``remat`` and ``logprob_chunk_tokens``.

    Raises:
        ValueError: naming a field that is missing, unknown, or asks for what the decoder does not compute.
    """
    fields = Fields(config)
    family = fields.take("model_type")
    if family not in _FAMILIES:
        raise ValueError(
            f"config.json: model_type: got {family!r}, wanted one of {', '.join(sorted(_FAMILIES))}. "
            "Other families need a reader in grpo_jax/models/huggingface/configuration.py."
        )
    values = _FAMILIES[family](fields)
    fields.finish()
    return ModelSpec(**values)


def _sizes(fields: Fields, *, tied: bool = False) -> dict[str, Any]:
    """What every family has."""
    heads, initial = fields.size("num_attention_heads"), fields.number("initializer_range", 0.02)
    kv_heads = fields.size("num_key_value_heads", heads)
    if heads % kv_heads:
        raise fields.unsupported("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads ({heads})")
    return {
        "vocab_size": fields.size("vocab_size"),
        "num_layers": fields.size("num_hidden_layers"),
        "d_model": fields.size("hidden_size"),
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "d_ff": fields.size("intermediate_size"),
        "norm_epsilon": fields.number("rms_norm_eps", 1e-6),
        "tie_embeddings": fields.flag("tie_word_embeddings", tied),
        "init_std": initial,
        "embedding_init_std": initial,
    }


def _llama_like(fields: Fields, *, default_head_dim: int | None = None) -> dict[str, Any]:
    """Sizes, SiLU, one head size for everything, plain rotary embeddings, no biases."""
    fields.expect("hidden_act", "silu")
    fields.expect("attention_bias", False)
    fields.expect("mlp_bias", False)
    fields.expect("rope_interleaved", False)
    values = _sizes(fields)
    values["head_dim"] = fields.size("head_dim", default_head_dim or values["d_model"] // values["num_heads"])
    return values | _rotation(read_rope(fields))


def _rotation(rope: Rope) -> dict[str, Any]:
    return {"rope_theta": rope.theta, "rope_scaling": rope.scaling}


def _windows(fields: Fields, num_layers: int, window: int | None, narrow: Callable[[int], bool]) -> tuple[int, ...]:
    """Windows by layer: from ``layer_types`` where the file lists them, otherwise by the family's rule."""
    kinds = fields.take("layer_types", None)
    if kinds is None:
        kinds = ["sliding_attention" if window and narrow(layer) else "full_attention" for layer in range(num_layers)]
    unknown = set(kinds) - {"sliding_attention", "full_attention"}
    if unknown or len(kinds) != num_layers:
        raise fields.unsupported("layer_types", kinds, f"{num_layers} of 'sliding_attention' or 'full_attention'")
    if "sliding_attention" not in kinds:
        return ()
    if not window:
        raise fields.unsupported("sliding_window", window, "a number of positions, since layer_types asks for it")
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)


def _llama(fields: Fields) -> dict[str, Any]:
    return _llama_like(fields)


def _mistral(fields: Fields) -> dict[str, Any]:
    values = _llama_like(fields)
    window = fields.optional_integer("sliding_window")
    return values | {"windows": _windows(fields, values["num_layers"], window, lambda _: True)}


def _qwen2(fields: Fields) -> dict[str, Any]:
    values = _llama_like(fields)
    return values | _qwen_windows(fields, values["num_layers"]) | {"qkv_bias": True}


def _qwen3(fields: Fields) -> dict[str, Any]:
    values = _llama_like(fields, default_head_dim=128)
    return values | _qwen_windows(fields, values["num_layers"]) | {"qk_norm": True}


def _qwen_windows(fields: Fields, num_layers: int) -> dict[str, Any]:
    window, wide = fields.optional_integer("sliding_window"), fields.integer("max_window_layers", 28)
    window = window if fields.flag("use_sliding_window", False) else None
    return {"windows": _windows(fields, num_layers, window, lambda layer: layer >= wide)}


def _gemma3(fields: Fields) -> dict[str, Any]:
    fields.expect("hidden_activation", "gelu_pytorch_tanh")
    fields.expect("attention_bias", False)
    fields.expect("use_bidirectional_attention", False)
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        value = fields.take(name, None)
        if value is not None:
            raise fields.unsupported(name, value, "null")
    values = _sizes(fields, tied=True)
    every = fields.integer("sliding_window_pattern", fields.integer("_sliding_window_pattern", 6))
    window = fields.integer("sliding_window", 4096)
    rope, narrow = read_two_ropes(fields, default_theta=1e6, window_theta=1e4)
    return values | {
        "head_dim": fields.integer("head_dim", 256),
        "activation": "gelu_tanh",
        "attention_scale": fields.number("query_pre_attn_scalar", 256) ** -0.5,
        "embedding_scale": values["d_model"] ** 0.5,
        "qk_norm": True,
        "post_norms": True,
        "norm_offset": 1.0,
        "windows": _windows(fields, values["num_layers"], window, lambda layer: (layer + 1) % every != 0),
        "window_rope_theta": narrow.theta,
        **_rotation(rope),
    }


def _mixtral(fields: Fields) -> dict[str, Any]:
    values = _mistral(fields)
    fields.number("router_jitter_noise", 0.0)  # noise of training alone
    count, chosen = fields.integer("num_local_experts"), fields.integer("num_experts_per_tok")
    return values | {"experts": Experts(count, chosen, values["d_ff"])}


def _qwen3_moe(fields: Fields) -> dict[str, Any]:
    values = _llama_like(fields, default_head_dim=128)
    windows = _qwen_windows(fields, values["num_layers"])
    fields.expect("decoder_sparse_step", 1)
    fields.expect("mlp_only_layers", [])
    count = fields.optional_integer("num_experts") or fields.integer("num_local_experts")
    experts = Experts(
        count,
        fields.integer("num_experts_per_tok"),
        fields.integer("moe_intermediate_size"),
        normalize=fields.flag("norm_topk_prob", False),
    )
    return values | windows | {"qk_norm": True, "experts": experts}


def _latent(fields: Fields) -> dict[str, Any]:
    """Sizes and attention of DeepSeek's models."""
    fields.expect("hidden_act", "silu")
    fields.expect("attention_bias", False)
    fields.expect("mlp_bias", False)
    values, rope = _sizes(fields), read_rope(fields)
    latent = LatentAttention(
        fields.integer("q_lora_rank", 0),
        fields.integer("kv_lora_rank"),
        fields.integer("qk_rope_head_dim"),
        fields.integer("v_head_dim"),
    )
    width = fields.integer("qk_nope_head_dim") + latent.rotary_dim
    fields.expect("qk_head_dim", width)
    fields.expect("head_dim", latent.rotary_dim, width)
    return values | {
        "head_dim": width,
        "latent": latent,
        "attention_scale": width**-0.5 * rope.latent_scale,
        **_rotation(rope),
    }


def _deepseek_experts(fields: Fields, num_layers: int, **values: Any) -> Experts:
    count = fields.optional_integer("num_local_experts") or fields.integer("n_routed_experts")
    fields.expect("n_routed_experts", count)
    fields.expect("moe_layer_freq", 1)
    width = fields.integer("moe_intermediate_size")
    if count % values.get("groups", 1):
        raise fields.unsupported("n_group", values["groups"], f"a divisor of n_routed_experts ({count})")
    return Experts(
        count,
        fields.integer("num_experts_per_tok"),
        width,
        shared_d_ff=width * fields.integer("n_shared_experts", 0),
        weight_scale=fields.number("routed_scaling_factor", 1.0),
        first_dense_layers=min(fields.integer("first_k_dense_replace", 0), num_layers),
        **values,
    )


def _deepseek_v2(fields: Fields) -> dict[str, Any]:
    values = _latent(fields)
    fields.expect("scoring_func", "softmax")
    fields.expect("norm_topk_prob", False)
    limited = fields.expect("topk_method", "greedy", "group_limited_greedy") == "group_limited_greedy"
    groups, kept = fields.integer("n_group", 1), fields.integer("topk_group", 1)
    limits = {"groups": groups, "groups_per_token": kept} if limited else {}
    return values | {"experts": _deepseek_experts(fields, values["num_layers"], normalize=False, **limits)}


def _deepseek_v3(fields: Fields) -> dict[str, Any]:
    values = _latent(fields)
    fields.expect("rope_interleave", True)
    fields.expect("scoring_func", "sigmoid")
    fields.expect("topk_method", "noaux_tc")
    experts = _deepseek_experts(
        fields,
        values["num_layers"],
        score="sigmoid",
        normalize=fields.flag("norm_topk_prob", True),
        choice_bias=True,
        groups=fields.integer("n_group", 1),
        groups_per_token=fields.integer("topk_group", 1),
        group_score="best_two",
    )
    return values | {"experts": experts}


_FAMILIES: dict[str, Callable[[Fields], dict[str, Any]]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma3_text": _gemma3,
    "mixtral": _mixtral,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
}
