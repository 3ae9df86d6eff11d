"""What training does about a policy's experts: the settings it can have, and biases that even out their use."""

import jax
from jaxtyping import Array, Float

from grpo_jax.config import ConfigError, RunConfig
from grpo_jax.models import moe
from grpo_jax.models.spec import ModelSpec
from grpo_jax.training.recipe import TrainState


def check(config: RunConfig, spec: ModelSpec) -> None:
    """Refuses settings of experts that the policy, on the mesh in use, cannot have.

    Args:
        config: The run.
        spec: The policy's spec.

    Raises:
        ConfigError: naming the key and what the policy lacks.
    """
    algorithm, experts = config.algorithm, spec.experts
    devices = jax.sharding.get_abstract_mesh().shape["expert"]
    if experts is None:
        if devices > 1:
            raise ConfigError(
                f"config.mesh.expert: got {devices}, wanted 1, since the policy has no experts. Give these devices to "
                "mesh.data, mesh.fsdp or mesh.tensor."
            )
        if algorithm.router_replay:
            raise ConfigError(
                "config.algorithm.router_replay: got True, wanted False, since the policy has no experts to replay."
            )
    elif experts.count % devices:
        raise ConfigError(
            f"config.mesh.expert: got {devices}, wanted a divisor of the policy's {experts.count} experts. Give the "
            "devices that are left over to another axis of the mesh."
        )
    if algorithm.router_bias_update > 0 and not (experts and experts.choice_bias):
        raise ConfigError(
            f"config.algorithm.router_bias_update: got {algorithm.router_bias_update}, wanted 0, since the policy's "
            "choice of experts has no bias. Models of DeepSeek-V3's kind have one."
        )
    if algorithm.router_bias_update > 0 and spec.lora:
        raise ConfigError(
            f"config.algorithm.router_bias_update: got {algorithm.router_bias_update}, wanted 0, since model.lora "
            "freezes the model that holds the biases, which is also the reference. Train without adapters to move them."
        )


def rebalanced(state: TrainState, load_LE: Float[Array, "Lr E"], distance: Float[Array, ""]) -> TrainState:
    """Moves the biases by which a policy chooses experts towards even use; see ``moe.balanced_bias``.

    Args:
        state: The state after an optimizer update, which leaves these biases alone: no gradient flows into them.
        load_LE: How often each expert was chosen in that update.
        distance: How far each bias moves; 0 after an update that was not applied.

    Returns:
        The state with new biases; the reference keeps its own.
    """
    blocks = state.params["blocks"]
    bias_LE = moe.balanced_bias(blocks["router_bias"], load_LE, distance)
    return state._replace(params=state.params | {"blocks": blocks | {"router_bias": bias_LE}})
