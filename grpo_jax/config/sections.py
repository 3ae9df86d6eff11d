"""The sections of a run's configuration."""

import dataclasses
import datetime
import json
from typing import Literal

from grpo_jax.config.checks import Section, fail, require

PUBLISHED_MODEL_KEYS = ("path", "compute_dtype", "remat", "logprob_chunk_tokens")
"""Keys of ``model`` that a published model leaves open."""


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
    remat: Literal["none", "dots", "full"] = "none"
    logprob_chunk_tokens: int = 1024

    def validate(self, path: str) -> None:
        """Refuses sizes that do not fit together, and settings that nothing would read."""
        self._at_least(path, 1, "num_layers", "d_model", "num_heads", "num_kv_heads", "head_dim", "d_ff")
        self._at_least(path, 1, "logprob_chunk_tokens", "rope_original_max_positions")
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
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            wanted = f"{field.default!r}, its default, since model.path brings its own architecture"
            read = self.path is None or field.name in PUBLISHED_MODEL_KEYS
            require(read or value == field.default, f"{path}.{field.name}", value, wanted)


@dataclasses.dataclass(frozen=True)
class DataConfig(Section):
    """Where problems come from and how their text becomes tokens."""

    task: Literal["addition", "countdown", "file"] = "addition"
    path: str | None = None
    digits: int = 3
    countdown_numbers: int = 3
    max_problems: int = 1_000_000
    validation_problems: int = 256
    test_problems: int = 256
    tokenizer: str = "characters"
    prompt_template: str = "{problem}"
    chat: bool = False
    system_prompt: str = ""
    chat_variables: str = "{}"
    chat_date: str = ""
    max_prompt_tokens: int = 64
    bad_rows: Literal["error", "skip"] = "error"

    def validate(self, path: str) -> None:
        """Refuses a source that is not fully named, or a path that nothing would read."""
        if self.task == "file":
            require(
                self.path is not None,
                f"{path}.path",
                self.path,
                "a .jsonl or .parquet file, since data.task is 'file'",
                "Add --config.data.path=FILE.",
            )
        else:
            require(
                self.path is None,
                f"{path}.path",
                self.path,
                f"None, since data.task is {self.task!r}",
                "Set data.task to 'file' to read it.",
            )
        require(1 <= self.digits <= 9, f"{path}.digits", self.digits, "1 to 9")
        require(2 <= self.countdown_numbers <= 6, f"{path}.countdown_numbers", self.countdown_numbers, "2 to 6")
        self._at_least(path, 1, "max_problems", "max_prompt_tokens", "validation_problems", "test_problems")
        template = self.prompt_template
        require("{problem}" in template, f"{path}.prompt_template", template, "a text with '{problem}' in it")
        self._validate_chat(path)

    def _validate_chat(self, path: str) -> None:
        built_in = self.tokenizer in ("characters", "bytes")
        wanted = f"False, since data.tokenizer is {self.tokenizer!r}, which has no chat template"
        require(not (self.chat and built_in), f"{path}.chat", self.chat, wanted)
        for name in ("system_prompt", "chat_variables", "chat_date"):
            value, default = getattr(self, name), getattr(DataConfig, name)
            wanted = f"{default!r}, its default: it is only read when data.chat is True"
            require(self.chat or value == default, f"{path}.{name}", value, wanted)
        try:
            variables = json.loads(self.chat_variables)
        except ValueError:
            variables = None
        wanted = """a JSON object such as '{"enable_thinking": false}'"""
        require(isinstance(variables, dict), f"{path}.chat_variables", self.chat_variables, wanted)
        if self.chat_date:
            try:
                datetime.date.fromisoformat(self.chat_date)
            except ValueError:
                fail(f"{path}.chat_date", self.chat_date, "a day such as '2025-01-31'")


@dataclasses.dataclass(frozen=True)
class CurriculumConfig(Section):
    """Which problems are left out of training because every completion would get the same reward."""

    enabled: bool = False
    decay: float = 0.7
    min_visits: int = 2
    readmit_probability: float = 0.05
    readmit_after_steps: int = 1000
    weighting: Literal["uniform", "variance"] = "uniform"

    def validate(self, path: str) -> None:
        """Refuses settings under which a problem could be lost for ever."""
        self._share(path, "decay", "readmit_probability")
        require(self.decay < 1, f"{path}.decay", self.decay, "less than 1", "Old visits would never be forgotten.")
        self._at_least(path, 1, "min_visits")
        self._at_least(path, 0, "readmit_after_steps")
        require(
            self.readmit_probability > 0 or self.readmit_after_steps > 0,
            f"{path}.readmit_probability",
            self.readmit_probability,
            "a positive share, since readmit_after_steps is 0",
            "What is left out would never come back.",
        )


@dataclasses.dataclass(frozen=True)
class RolloutConfig(Section):
    """How completions are sampled."""

    prompts_per_step: int = 32
    completions_per_prompt: int = 8
    max_new_tokens: int = 64
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    decode_chunk_tokens: int = 16

    def validate(self, path: str) -> None:
        """Refuses a batch that GRPO cannot learn from."""
        self._at_least(path, 1, "prompts_per_step", "max_new_tokens", "decode_chunk_tokens")
        require(
            self.completions_per_prompt >= 2,
            f"{path}.completions_per_prompt",
            self.completions_per_prompt,
            "2 or more",
            "A group of one has no variance: its advantage is always 0 and nothing is learned.",
        )
        self._positive(path, "temperature", "top_p")
        self._share(path, "top_p")
        self._at_least(path, 0, "top_k")


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(Section):
    """AdamW behind a clipped gradient norm, with a learning-rate schedule."""

    learning_rate: float = 1e-6
    warmup_steps: int = 10
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    final_fraction: float = 0.0
    b1: float = 0.9
    b2: float = 0.99
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0

    def validate(self, path: str) -> None:
        """Refuses values outside AdamW's domain."""
        self._positive(path, "learning_rate", "epsilon", "max_grad_norm")
        self._at_least(path, 0, "warmup_steps", "weight_decay")
        self._share(path, "final_fraction", "b1", "b2")
        require(self.b1 < 1, f"{path}.b1", self.b1, "less than 1")
        require(self.b2 < 1, f"{path}.b2", self.b2, "less than 1")


@dataclasses.dataclass(frozen=True)
class ColdStartConfig(Section):
    """Supervised warm-up on worked examples before GRPO; 0 steps leave it out."""

    steps: int = 0
    batch_size: int = 32
    thinking_share: float = 0.35
    slip_probability: float = 0.05
    max_passes: int = 1
    recheck_probability: float = 0.4
    recheck_slip_factor: float = 0.5
    checkpoint_every_steps: int = 500
    optimizer: OptimizerConfig = dataclasses.field(
        default_factory=lambda: OptimizerConfig(
            learning_rate=5e-3, warmup_steps=20, schedule="cosine", final_fraction=0.1, weight_decay=0.01
        )
    )

    def validate(self, path: str) -> None:
        """Refuses shares outside [0, 1], and settings of re-checks that there are none of."""
        self._at_least(path, 0, "steps")
        self._at_least(path, 1, "batch_size", "max_passes", "checkpoint_every_steps")
        self._share(path, "thinking_share", "slip_probability", "recheck_probability", "recheck_slip_factor")
        for name in ("recheck_probability", "recheck_slip_factor"):
            value, default = getattr(self, name), getattr(ColdStartConfig, name)
            wanted = f"{default}, its default: it is only read when max_passes is more than 1"
            require(self.max_passes > 1 or value == default, f"{path}.{name}", value, wanted)
        self.optimizer.validate(f"{path}.optimizer")


@dataclasses.dataclass(frozen=True)
class EvaluationConfig(Section):
    """Held-out evaluation: how often, and how many samples each problem gets."""

    every_steps: int = 20
    samples_per_problem: int = 1
    test_samples_per_problem: int = 4
    logged_samples: int = 16

    def validate(self, path: str) -> None:
        """Refuses counts below 1."""
        self._at_least(path, 1, "every_steps", "samples_per_problem", "test_samples_per_problem")
        self._at_least(path, 0, "logged_samples")


@dataclasses.dataclass(frozen=True)
class CheckpointConfig(Section):
    """When the whole training state is saved, and how many of the newest steps are kept."""

    every_steps: int = 50
    keep: int = 2

    def validate(self, path: str) -> None:
        """Refuses counts below 1."""
        self._at_least(path, 1, "every_steps", "keep")


@dataclasses.dataclass(frozen=True)
class MeshConfig(Section):
    """Devices along each axis of the mesh; one axis may be -1: all that are left."""

    data: int = -1
    fsdp: int = 1
    tensor: int = 1
    context: int = 1
    expert: int = 1

    def validate(self, path: str) -> None:
        """Refuses sizes that no mesh can have."""
        sizes = dataclasses.asdict(self)
        for name, size in sizes.items():
            require(size == -1 or size > 0, f"{path}.{name}", size, "a positive number of devices, or -1")
        require(list(sizes.values()).count(-1) <= 1, path, sizes, "at most one axis of -1")
        for name in ("context", "expert"):
            require(sizes[name] == 1, f"{path}.{name}", sizes[name], "1", "Nothing is sharded over this axis yet.")
