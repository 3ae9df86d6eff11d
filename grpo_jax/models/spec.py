"""What a decoder is: its sizes, its rotary embeddings and how it is computed."""

import dataclasses
from typing import Any, Literal

from grpo_jax.config import ModelConfig


@dataclasses.dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the context that a model was trained on.

    Attributes:
        kind: ``linear`` divides every frequency by ``factor``; ``llama3`` divides the low ones and blends.
        factor: The stretch.
        low_freq_factor: (llama3) wavelengths above original / this are divided.
        high_freq_factor: (llama3) wavelengths below original / this stay.
        original_max_positions: (llama3) context in tokens that the model was trained on.
    """

    kind: Literal["linear", "llama3"]
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 8192


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """A decoder of the Llama family. Hashable, so it can be a static argument of ``jax.jit``.

    Attributes:
        vocab_size: V, rows of the embedding.
        num_layers: L.
        d_model: D.
        num_heads: H query heads.
        num_kv_heads: K key and value heads, a divisor of H.
        head_dim: C.
        d_ff: F.
        rope_theta: Base of the rotary frequencies.
        rope_scaling: How they are stretched, or None.
        norm_epsilon: Floor inside RMSNorm.
        tie_embeddings: The output projection is the transposed embedding.
        qk_norm: RMSNorm on each query and key head.
        qkv_bias: Bias on query, key and value projections.
        init_std: Standard deviation of projections at initialisation.
        embedding_init_std: The same for the embedding.
        compute_dtype: Dtype of activations and of the weights' copy in use; parameters stay float32.
        remat: What the backward pass of a layer keeps: ``none`` everything, ``dots`` only matrix products,
            ``full`` only the layer's input.
        logprob_chunk_tokens: Tokens whose logits exist at once.
    """

    vocab_size: int
    num_layers: int
    d_model: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    d_ff: int
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    norm_epsilon: float = 1e-5
    tie_embeddings: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False
    init_std: float = 0.02
    embedding_init_std: float = 0.02
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    remat: Literal["none", "dots", "full"] = "none"
    logprob_chunk_tokens: int = 1024

    @property
    def queries_per_kv_head(self) -> int:
        """J, query heads that share a key and value head."""
        return self.num_heads // self.num_kv_heads


def from_config(config: ModelConfig, vocab_size: int) -> ModelSpec:
    """Turns the configuration's model section into a spec.

    Args:
        config: The section.
        vocab_size: The tokenizer's vocabulary, used where the section leaves the size at 0.

    Returns:
        The spec.

    Raises:
        ValueError: if the configured vocabulary cannot hold the tokenizer's.
    """
    if config.vocab_size and config.vocab_size < vocab_size:
        raise ValueError(
            f"config.model.vocab_size: got {config.vocab_size}, wanted at least the tokenizer's {vocab_size}. "
            "Set it to 0 to take the tokenizer's size."
        )
    values: dict[str, Any] = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(ModelSpec)
        if field.name not in ("vocab_size", "rope_scaling")
    }
    scaling = None
    if config.rope_scaling != "none":
        scaling = RopeScaling(
            config.rope_scaling,
            config.rope_scaling_factor,
            config.rope_low_freq_factor,
            config.rope_high_freq_factor,
            config.rope_original_max_positions,
        )
    return ModelSpec(vocab_size=config.vocab_size or vocab_size, rope_scaling=scaling, **values)
