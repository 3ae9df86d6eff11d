"""Configuration of the policy: its architecture and how it is computed."""

import dataclasses
import re
from typing import Literal

from grpo_jax.config.checks import Section, fail, require

PUBLISHED_MODEL_KEYS = (
    "path",
    "compute_dtype",
    "remat",
    "logprob_chunk_tokens",
    "attention",
    "attention_block_tokens",
    "lora",
)
"""Keys of ``model`` that a published model leaves open."""


@dataclasses.dataclass(frozen=True)
class LoRAConfig(Section):
    """Low-rank adapters that are trained in the place of the whole model; rank 0 leaves them out."""

    rank: int = 0
    alpha: float = 32.0
    targets: str = "[qkvo]_proj|(gate|up|down)_proj"
    rank_stabilized: bool = False
    dropout: float = 0.0

    def validate(self, path: str) -> None:
        """Refuses settings of adapters that there are none of."""
        self._at_least(path, 0, "rank")
        self._positive(path, "alpha")
        self._share(path, "dropout")
        require(self.dropout < 1, f"{path}.dropout", self.dropout, "less than 1")
        try:
            re.compile(self.targets)
        except re.error as error:
            fail(f"{path}.targets", self.targets, f"a regular expression ({error})")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            wanted = f"{field.default!r}, its default, since {path}.rank is 0: there are no adapters"
            require(self.rank > 0 or value == field.default, f"{path}.{field.name}", value, wanted)


@dataclasses.dataclass(frozen=True)
class ModelConfig(Section):
    """Architecture and numerics of the policy (and of its frozen reference)."""

    path: str | None = None
    num_layers: int = 2
    d_model: int = 64
    num_heads: int = 4
    num_kv_heads: int = 4
    head_dim: int = 16
    d_ff: int = 256
    vocab_size: int = 0
    rope_theta: float = 10_000.0
    rope_scaling: Literal["none", "linear", "llama3"] = "none"
    rope_scaling_factor: float = 1.0
    rope_low_freq_factor: float = 1.0
    rope_high_freq_factor: float = 4.0
    rope_original_max_positions: int = 8192
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
    lora: LoRAConfig = dataclasses.field(default_factory=LoRAConfig)

    def validate(self, path: str) -> None:
        """Refuses sizes that do not fit together, and settings that nothing would read."""
        self._at_least(path, 1, "num_layers", "d_model", "num_heads", "num_kv_heads", "head_dim", "d_ff")
        self._at_least(path, 1, "logprob_chunk_tokens", "attention_block_tokens", "rope_original_max_positions")
        self._of_a_row(path, "vocab_size")
        self._at_least(path, 0, "vocab_size", "init_std", "embedding_init_std")
        self._positive(path, "rope_theta", "rope_scaling_factor", "rope_low_freq_factor", "norm_epsilon")
        require(
            self.num_heads % self.num_kv_heads == 0,
            f"{path}.num_kv_heads",
            self.num_kv_heads,
            f"a divisor of num_heads ({self.num_heads})",
        )
        require(self.head_dim % 2 == 0, f"{path}.head_dim", self.head_dim, "an even number", "Rotation needs pairs.")
        require(
            self.rope_high_freq_factor > self.rope_low_freq_factor,
            f"{path}.rope_high_freq_factor",
            self.rope_high_freq_factor,
            f"more than rope_low_freq_factor ({self.rope_low_freq_factor})",
        )
        require(
            self.rope_scaling != "none" or self.rope_scaling_factor == 1,
            f"{path}.rope_scaling_factor",
            self.rope_scaling_factor,
            "1, since rope_scaling is 'none'",
            "Set rope_scaling to 'linear' or 'llama3'.",
        )
        self.lora.validate(f"{path}.lora")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            wanted = f"{field.default!r}, its default, since model.path brings its own architecture"
            read = self.path is None or field.name in PUBLISHED_MODEL_KEYS
            require(read or value == field.default, f"{path}.{field.name}", value, wanted)
