"""What a decoder is: its sizes, its rotary embeddings and how it is computed."""

import dataclasses
from typing import Any, Literal

from grpo_jax.config import ModelConfig


@dataclasses.dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the context that a model was trained on.

    Attributes:
        kind: ``linear`` divides every frequency by ``factor``; ``llama3`` and ``yarn`` divide the low ones and blend.
        factor: The stretch.
        low_freq_factor: (llama3) wavelengths above original / this are divided.
        high_freq_factor: (llama3) wavelengths below original / this stay.
        original_max_positions: (llama3, yarn) context in tokens that the model was trained on.
        beta_fast: (yarn) pairs that turn more often than this within the original context stay.
        beta_slow: (yarn) pairs that turn less often than this are divided.
        whole_pairs: (yarn) the blend begins and ends at whole pairs.
        amplitude: (yarn) cosines and sines are multiplied by this.
    """

    kind: Literal["linear", "llama3", "yarn"]
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 8192
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    whole_pairs: bool = True
    amplitude: float = 1.0


@dataclasses.dataclass(frozen=True)
class LatentAttention:
    """Attention whose keys and values are made from one small vector per token, which is all that is cached.

    Attributes:
        query_rank: Width of the vector that queries are made from; 0 makes them from the hidden state.
        latent_dim: Width of the vector that keys and values are made from.
        rotary_dim: Width of the rotated part of queries and keys; the key's is shared by all heads.
        value_dim: Width of a head's value.
    """

    query_rank: int
    latent_dim: int
    rotary_dim: int
    value_dim: int


@dataclasses.dataclass(frozen=True)
class Experts:
    """A feed-forward network of which every token visits a few parts.

    Attributes:
        count: E, routed experts.
        per_token: Experts that a token visits.
        d_ff: Width of one expert.
        shared_d_ff: Width of the network that every token visits besides; 0 for none.
        score: How router logits become scores.
        normalize: A token's weights are divided by their sum.
        weight_scale: The weights are multiplied by this.
        choice_bias: A bias per expert that takes part in the choice of experts and not in their weights.
        groups: Experts are split into so many groups; 1 for no limit on groups.
        groups_per_token: Groups that a token's experts may come from.
        group_score: A group counts as its best expert, or as the sum of its best two.
        first_dense_layers: So many first layers have the ordinary network of width ``ModelSpec.d_ff``.
    """

    count: int
    per_token: int
    d_ff: int
    shared_d_ff: int = 0
    score: Literal["softmax", "sigmoid"] = "softmax"
    normalize: bool = True
    weight_scale: float = 1.0
    choice_bias: bool = False
    groups: int = 1
    groups_per_token: int = 1
    group_score: Literal["best", "best_two"] = "best"
    first_dense_layers: int = 0


@dataclasses.dataclass(frozen=True)
class LoRA:
    """Low-rank adapters beside frozen matrices: each adds ``scale`` times ``x A B``.

    Attributes:
        rank: R, width of the product's middle.
        scale: What the product is multiplied by.
        targets: Names of the adapted parameters of a layer.
        dropout: Chance that a coordinate of the adapter's input is left out of a training pass.

    Source: Hu et al. 2021.
    """

    rank: int
    scale: float
    targets: tuple[str, ...]
    dropout: float = 0.0


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
            ``full`` only the layer's input, ``host`` that in the host's memory.
        logprob_chunk_tokens: Tokens whose logits exist at once.
        attention: ``auto`` uses the platform's kernel for whole rows where there is one, ``blockwise`` none.
        attention_block_tokens: Queries of a row whose scores exist at once, where no kernel is used.
        activation: Nonlinearity of the feed-forward network's gate.
        windows: How many positions each layer sees, itself included, 0 for all; empty where every layer sees all.
        window_rope_theta: Base of the rotary frequencies, unstretched, of layers with a window; None for the same.
        attention_scale: What products of queries and keys are multiplied by; None for ``head_dim ** -0.5``.
        embedding_scale: What embeddings are multiplied by.
        post_norms: RMSNorm also on what attention and feed-forward network add to the residual.
        norm_offset: What is added to every scale of RMSNorm.
        latent: Sizes of latent attention, or None; ``head_dim`` is then the width of a whole query.
        experts: The mixture of experts, or None.
        lora: Adapters of parameters that have them, or None; see ``adapters``.
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
    remat: Literal["none", "dots", "full", "host"] = "none"
    logprob_chunk_tokens: int = 1024
    attention: Literal["auto", "blockwise"] = "auto"
    attention_block_tokens: int = 512
    activation: Literal["silu", "gelu_tanh"] = "silu"
    windows: tuple[int, ...] = ()
    window_rope_theta: float | None = None
    attention_scale: float | None = None
    embedding_scale: float = 1.0
    post_norms: bool = False
    norm_offset: float = 0.0
    latent: LatentAttention | None = None
    experts: Experts | None = None
    lora: LoRA | None = None

    def __post_init__(self) -> None:
        """Checks what the decoder relies on."""
        assert len(self.windows) in (0, self.num_layers), "windows: one for each layer, or none"
        assert self.latent is None or not (self.qk_norm or self.qkv_bias), "latent attention has neither"

    @property
    def queries_per_kv_head(self) -> int:
        """J, query heads that share a key and value head."""
        return self.num_heads // self.num_kv_heads

    @property
    def routed_layers(self) -> int:
        """Layers that have experts."""
        return self.num_layers - self.experts.first_dense_layers if self.experts else 0

    @property
    def rotary_dim(self) -> int:
        """Coordinates of a query that are rotated."""
        return self.latent.rotary_dim if self.latent else self.head_dim

    @property
    def query_scale(self) -> float:
        """What products of queries and keys are multiplied by."""
        return self.head_dim**-0.5 if self.attention_scale is None else self.attention_scale

    @property
    def cache_shape(self) -> tuple[int, int, int]:
        """Heads, width of a key and width of a value in the cache; a latent cache finds its values in its keys."""
        if self.latent:
            return 1, self.latent.latent_dim + self.latent.rotary_dim, 0
        return self.num_kv_heads, self.head_dim, self.head_dim


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
    fields, keys = ({field.name for field in dataclasses.fields(kind)} for kind in (ModelSpec, ModelConfig))
    shared = (fields & keys) - {"vocab_size", "rope_scaling", "lora"}
    values: dict[str, Any] = {name: getattr(config, name) for name in shared}
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
