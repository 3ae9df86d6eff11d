"""Configuration of what is held in memory for training beside the policy: optimizer state and reference."""

import dataclasses
from typing import Literal

from grpo_jax.config.checks import Section, require
from grpo_jax.config.model import ModelConfig


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
    moments_dtype: Literal["float32", "bfloat16"] = "float32"
    gradient_dtype: Literal["float32", "bfloat16"] = "float32"
    placement: Literal["device", "host"] = "device"

    def validate(self, path: str) -> None:
        """Refuses values outside AdamW's domain."""
        self._positive(path, "learning_rate", "epsilon", "max_grad_norm")
        self._at_least(path, 0, "warmup_steps", "weight_decay")
        self._share(path, "final_fraction", "b1", "b2")
        require(self.b1 < 1, f"{path}.b1", self.b1, "less than 1")
        require(self.b2 < 1, f"{path}.b2", self.b2, "less than 1")

    def validate_for(self, path: str, model: ModelConfig) -> None:
        """Refuses ways to hold gradients and state that the policy does not have.

        Args:
            path: Dotted path of the section.
            model: The policy.

        Raises:
            ConfigError: naming key, value, what was wanted and the remedy.
        """
        wanted = f"'float32', since model.compute_dtype is {model.compute_dtype!r}"
        narrow = self.gradient_dtype == "float32" or model.compute_dtype == "bfloat16"
        remedy = "Gradients are no narrower than what is computed."
        require(narrow, f"{path}.gradient_dtype", self.gradient_dtype, wanted, remedy)
        wanted = f"'device', since model.lora.rank is {model.lora.rank}: the state of adapters is small"
        require(self.placement == "device" or not model.lora.rank, f"{path}.placement", self.placement, wanted)


@dataclasses.dataclass(frozen=True)
class ReferenceConfig(Section):
    """How the frozen reference is held."""

    dtype: Literal["compute", "int8", "float8_e4m3fn"] = "compute"
    placement: Literal["device", "host"] = "device"

    def validate_for(self, path: str, model: ModelConfig, kl_beta: float, kl_path: str) -> None:
        """Refuses ways to hold a reference that there is none of.

        Args:
            path: Dotted path of the section.
            model: The policy.
            kl_beta: Weight of the KL penalty.
            kl_path: Dotted path of its key.

        Raises:
            ConfigError: naming key, value, what was wanted and the remedy.
        """
        reason = f"{kl_path} is 0: no reference is held" if not kl_beta else ""
        if model.lora.rank:
            reason = f"model.lora.rank is {model.lora.rank}: the reference is the model that the adapters stand beside"
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            wanted = f"{field.default!r}, its default, since {reason}"
            require(not reason or value == field.default, f"{path}.{field.name}", value, wanted)
