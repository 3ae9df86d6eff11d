"""Published models by name: what their ``config.json`` says of the architecture."""

import difflib
from pathlib import PurePath
from typing import Any

from grpo_jax.models.huggingface import spec_from_huggingface
from grpo_jax.models.spec import ModelSpec

_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
)


def _sizes(*sizes: int) -> dict[str, Any]:
    return dict(zip(_SIZES, sizes, strict=True))


def _llama3(*sizes: int, stretch: float | None = None, **fields: Any) -> dict[str, Any]:
    scaling = None
    if stretch is not None:
        scaling = {
            "rope_type": "llama3",
            "factor": stretch,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }
    shared = {"model_type": "llama", "rope_theta": 500_000.0, "rms_norm_eps": 1e-5, "rope_scaling": scaling}
    return shared | _sizes(*sizes, 128_256) | fields


def _smollm2(*sizes: int, **fields: Any) -> dict[str, Any]:
    shared = {"model_type": "llama", "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
    return shared | _sizes(*sizes, 49_152) | fields


def _qwen2(*sizes: int, **fields: Any) -> dict[str, Any]:
    return {"model_type": "qwen2", "rope_theta": 1e6, "rms_norm_eps": 1e-6} | _sizes(*sizes) | fields


def _qwen3(*sizes: int, **fields: Any) -> dict[str, Any]:
    shared = {"model_type": "qwen3", "rope_theta": 1e6, "rms_norm_eps": 1e-6, "head_dim": 128}
    return shared | _sizes(*sizes, 151_936) | fields


def _mistral(vocab: int, **fields: Any) -> dict[str, Any]:
    return {"model_type": "mistral", "rms_norm_eps": 1e-5} | _sizes(4096, 32, 32, 8, 14_336, vocab) | fields


def _gemma3(*sizes: int, **fields: Any) -> dict[str, Any]:
    shared = {"model_type": "gemma3_text", "head_dim": 256, "sliding_window": 512, "query_pre_attn_scalar": 256}
    return shared | _sizes(*sizes, 262_144) | fields


def _deepseek(family: str, *sizes: int, mscale: float, **fields: Any) -> dict[str, Any]:
    scaling = {
        "type": "yarn",
        "factor": 40,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": mscale,
        "mscale_all_dim": mscale,
    }
    shared = {
        "model_type": family,
        "rope_scaling": scaling,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
    }
    return shared | _sizes(*sizes) | fields


_TIED = {"tie_word_embeddings": True}

PRESETS: dict[str, dict[str, Any]] = {
    "llama3-8b": _llama3(4096, 32, 32, 8, 14_336),
    "llama3-70b": _llama3(8192, 80, 64, 8, 28_672),
    "llama3.1-8b": _llama3(4096, 32, 32, 8, 14_336, stretch=8.0),
    "llama3.1-70b": _llama3(8192, 80, 64, 8, 28_672, stretch=8.0),
    "llama3.2-1b": _llama3(2048, 16, 32, 8, 8192, stretch=32.0, head_dim=64, **_TIED),
    "llama3.2-3b": _llama3(3072, 28, 24, 8, 8192, stretch=32.0, head_dim=128, **_TIED),
    "smollm2-135m": _smollm2(576, 30, 9, 3, 1536, rope_theta=100_000, initializer_range=1 / 24),
    "smollm2-360m": _smollm2(960, 32, 15, 5, 2560, rope_theta=100_000),
    "smollm2-1.7b": _smollm2(2048, 24, 32, 32, 8192, rope_theta=130_000),
    "qwen2.5-0.5b": _qwen2(896, 24, 14, 2, 4864, 151_936, **_TIED),
    "qwen2.5-1.5b": _qwen2(1536, 28, 12, 2, 8960, 151_936, **_TIED),
    "qwen2.5-3b": _qwen2(2048, 36, 16, 2, 11_008, 151_936, **_TIED),
    "qwen2.5-7b": _qwen2(3584, 28, 28, 4, 18_944, 152_064),
    "qwen2.5-math-1.5b": _qwen2(1536, 28, 12, 2, 8960, 151_936, rope_theta=10_000, **_TIED),
    "qwen2.5-math-7b": _qwen2(3584, 28, 28, 4, 18_944, 152_064, rope_theta=10_000),
    "qwen2.5-14b": _qwen2(5120, 48, 40, 8, 13_824, 152_064),
    "qwen2.5-32b": _qwen2(5120, 64, 40, 8, 27_648, 152_064),
    "qwen2.5-72b": _qwen2(8192, 80, 64, 8, 29_568, 152_064),
    "qwen3-0.6b": _qwen3(1024, 28, 16, 8, 3072, **_TIED),
    "qwen3-1.7b": _qwen3(2048, 28, 16, 8, 6144, **_TIED),
    "qwen3-4b": _qwen3(2560, 36, 32, 8, 9728, **_TIED),
    "qwen3-8b": _qwen3(4096, 36, 32, 8, 12_288),
    "qwen3-14b": _qwen3(5120, 40, 40, 8, 17_408),
    "qwen3-32b": _qwen3(5120, 64, 64, 8, 25_600),
    "mistral-7b-v0.1": _mistral(32_000, sliding_window=4096),
    "mistral-7b-v0.3": _mistral(32_768, rope_theta=1e6),
    "gemma3-270m": _gemma3(640, 18, 4, 1, 2048),
    "gemma3-1b": _gemma3(1152, 26, 4, 1, 6912),
    "mixtral-8x7b": _mistral(32_000, model_type="mixtral", rope_theta=1e6, num_local_experts=8, num_experts_per_tok=2),
    "qwen3-30b-a3b": _qwen3(
        2048,
        48,
        32,
        4,
        6144,
        model_type="qwen3_moe",
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
        norm_topk_prob=True,
    ),
    "deepseek-v2-lite": _deepseek(
        "deepseek_v2",
        *(2048, 27, 16, 16, 10_944, 102_400),
        mscale=0.707,
        n_routed_experts=64,
        n_shared_experts=2,
        num_experts_per_tok=6,
        moe_intermediate_size=1408,
        first_k_dense_replace=1,
    ),
    "deepseek-v3": _deepseek(
        "deepseek_v3",
        *(7168, 61, 128, 128, 18_432, 129_280),
        mscale=1.0,
        q_lora_rank=1536,
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=8,
        moe_intermediate_size=2048,
        routed_scaling_factor=2.5,
        n_group=8,
        topk_group=4,
        first_k_dense_replace=3,
    ),
}
"""Architectural fields of published files; whatever is absent has its family's default."""


def preset(name: str) -> ModelSpec:
    """The spec of a published model.

    Args:
        name: One of ``PRESETS``.

    Returns:
        Its spec; ``dataclasses.replace`` sets the numerics.

    Raises:
        ValueError: if there is no such preset.
    """
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ValueError(f"preset: got {name!r}, wanted one of {', '.join(PRESETS)}.{hint}")
    return spec_from_huggingface(PRESETS[name])


def preset_of(path: str) -> str:
    """The preset that a folder of published weights is named after, as it is called when it is downloaded.

    Args:
        path: The folder, such as ``models/Qwen2.5-0.5B-Instruct``; it need not exist.

    Returns:
        The longest name of a preset that its name begins with; capitals and hyphens do not count.

    Raises:
        ValueError: if there is none.
    """
    plain = lambda name: name.lower().replace("-", "")  # noqa: E731
    fitting = [name for name in PRESETS if plain(PurePath(path).name).startswith(plain(name))]
    if not fitting:
        raise ValueError(
            f"config.model.path: {path} is not here, and its name is none of {', '.join(PRESETS)}. Download the model, "
            "or call the folder as it is published."
        )
    return max(fitting, key=len)
