"""Shows what a configuration holds on each device, from shapes alone.

python -m grpo_jax.memory --config FILE.py[:ARGUMENT] [--config.KEY=VALUE ...] [--devices 8]

  --config FILE.py      as for grpo_jax.train; weights, tokenizer and problems need not be on this machine: the
                        architecture of a published model is then known from the name of its folder
  --devices N           devices of the mesh (default: 8); they are imitated, whatever this machine has

Lowers sampling, reference pass and update, so a configuration that does not fit together on that mesh is found too, and
adds up what lives on a device between them: parameters, gradients, optimizer state, reference, caches and the prepared
batch. Activations, logits and copies in the compute dtype come on top. Exit status: 0 done, 2 bad command line or
configuration.
"""

import dataclasses
import sys

import jax
import optax
from absl import flags

from grpo_jax import cli
from grpo_jax.config import ConfigError, RunConfig
from grpo_jax.forensics.sampling import lower_sampling
from grpo_jax.forensics.static import device_bytes, markdown_table
from grpo_jax.parallel.mesh import make_mesh
from grpo_jax.rollout.engine import sampling_params
from grpo_jax.rollout.jax_engine import JaxEngine
from grpo_jax.training import experts
from grpo_jax.training.abstract import abstract_spec, lower_step
from grpo_jax.training.recipe import TrainState
from grpo_jax.training.setup import check_batches
from grpo_jax.training.trainer import RECIPES

PARTS = ("parameters", "gradients", "optimizer", "reference", "caches", "batch")
"""What is added up."""

MOMENTS = ("while sampling", "while updating")
"""Sums of what exists at once: caches while sampling, gradients and batch while updating."""


def main() -> int:
    """Runs the command line; see the module's docstring."""
    if {"--help", "-h", "--helpfull"} & set(sys.argv):
        print(__doc__)
        return 0
    values = flags.FlagValues()
    flags.DEFINE_integer("devices", 8, "Devices of the mesh.", lower_bound=1, flag_values=values)
    command = cli.parse(sys.argv, values)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", command.flags.devices)
    jax.config.update("jax_captured_constants_warn_bytes", -1)  # a batch of views of single numbers is meant
    held = held_bytes(command.config)
    heading = f"GiB on each of {command.flags.devices} devices"
    print(markdown_table({command.name: held}, (*PARTS, *MOMENTS), heading))
    return 0


def held_bytes(config: RunConfig, devices: int | None = None) -> dict[str, int]:
    """Lowers a run's programs over devices of this process and adds up what lives between them.

    Args:
        config: The run.
        devices: How many; None for all.

    Returns:
        Bytes on each device by part (``PARTS``) and at once (``MOMENTS``).

    Raises:
        ConfigError: for a configuration that does not fit together, or not on these devices.
    """
    config.validate()
    try:
        spec = abstract_spec(config)
        mesh = make_mesh(dataclasses.asdict(config.mesh), jax.devices()[:devices])
        with jax.set_mesh(mesh):
            check_batches(config)
            experts.check(config, spec)
            step = lower_step(RECIPES[config.recipe](config, spec), config, spec)
    except (ValueError, OSError) as error:
        raise ConfigError(str(error)) from error
    rollout = config.rollout
    # Which ids end a completion changes no shape.
    engine = JaxEngine(
        spec,
        eos_ids=(1,),
        pad_id=0,
        batch_completions=1,
        chunk_tokens=rollout.decode_chunk_tokens,
        record_experts=config.algorithm.router_replay,
    )
    with jax.set_mesh(mesh):
        sampling = lower_sampling(
            engine,
            step.state.params,
            sampling_params(rollout, rollout.completions_per_prompt),
            prompts=rollout.prompts_per_step,
            prompt_tokens=config.data.max_prompt_tokens,
        )
    models = jax.tree.leaves(step.state, is_leaf=lambda node: isinstance(node, TrainState))
    held = {
        "parameters": sum(device_bytes(model.params) for model in models),
        # What is differentiated has a first moment.
        "gradients": sum(device_bytes(optax.tree.get(model.optimizer, "mu")) for model in models),
        "optimizer": sum(device_bytes(model.optimizer) for model in models),
        "reference": sum(device_bytes(model.reference) for model in models),
        "caches": device_bytes((sampling.prompt_cache, sampling.state)),
        "batch": device_bytes(step.batch),
    }
    resident = held["parameters"] + held["optimizer"] + held["reference"]
    sums = (resident + held["caches"], resident + held["gradients"] + held["batch"])
    return held | dict(zip(MOMENTS, sums, strict=True))


if __name__ == "__main__":
    cli.run(main)
