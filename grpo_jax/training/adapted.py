"""By how much the adapters of a checkpoint were scaled while they were trained; their arrays do not tell."""

from grpo_jax.io.checkpoint import CheckpointMismatch, Restored
from grpo_jax.models.adapters import ADAPTERS
from grpo_jax.models.spec import ModelSpec

KEY = "lora_scale"
"""Where the host state of a checkpoint has it."""


def lora_scale(spec: ModelSpec) -> float | None:
    """What is recorded with each checkpoint.

    Args:
        spec: The policy's spec.

    Returns:
        What adapters are multiplied by, or None without adapters.
    """
    return spec.lora.scale if spec.lora else None


def require_same_scale(restored: Restored, spec: ModelSpec) -> None:
    """Refuses adapters that a configuration would scale otherwise than they were trained.

    Args:
        restored: A checkpoint; one that was saved before the scale was recorded passes.
        spec: The policy's spec, from the configuration.

    Raises:
        CheckpointMismatch: naming the keys.
    """
    trained = restored.host_state.get(KEY)
    if trained is None or spec.lora is None or ADAPTERS not in restored.state.params or trained == spec.lora.scale:
        return
    rank = spec.lora.rank
    raise CheckpointMismatch(
        f"config.model.lora: alpha and rank_stabilized scale the adapters by {spec.lora.scale:g}, but those of "
        f"checkpoint {restored.step} were trained with {trained:g}: alpha {trained * rank:g}, or "
        f"{trained * rank**0.5:g} with rank_stabilized. Put the old values back, in config.json of the run folder if "
        "they were edited there."
    )
