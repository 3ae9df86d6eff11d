"""From a configuration to checked parts of a run, before anything is compiled."""

import dataclasses

import jax

from grpo_jax.config import ConfigError, RunConfig
from grpo_jax.data.loader import DemonstrationLoader
from grpo_jax.data.tasks import Task, build_task, check_prompt_lengths
from grpo_jax.data.tokenizer import Tokenizer, build_tokenizer
from grpo_jax.models import spec as spec_lib
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import mesh as mesh_lib
from grpo_jax.parallel import rules
from grpo_jax.training import recipe as recipe_lib


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a run is made of.

    Attributes:
        config: The validated configuration.
        mesh: The device mesh.
        tokenizer: Between text and ids.
        task: Problems by split.
        spec: The policy's architecture.
    """

    config: RunConfig
    mesh: jax.sharding.Mesh
    tokenizer: Tokenizer
    task: Task
    spec: ModelSpec


def build(config: RunConfig) -> Parts:
    """Validates a configuration and everything it names.

    Args:
        config: The run.

    Returns:
        Its parts.

    Raises:
        ConfigError: for anything the user can mend: keys, files, rows, lengths, sizes, devices.
    """
    config.validate()
    try:
        tokenizer = build_tokenizer(config.data.tokenizer)
        task = check_prompt_lengths(build_task(config.data, config.cold_start), tokenizer, config.data)
        spec = spec_lib.from_config(config.model, tokenizer.vocab_size)
        mesh = mesh_lib.make_mesh(dataclasses.asdict(config.mesh))
        with jax.set_mesh(mesh):
            _check_batches(config)
            recipe_lib.abstract_params(spec)
        if config.cold_start.steps > 0:
            next(demonstrations(config, task, tokenizer))
    except (ValueError, OSError) as error:
        raise ConfigError(str(error)) from error
    return Parts(config, mesh, tokenizer, task, spec)


def demonstrations(config: RunConfig, task: Task, tokenizer: Tokenizer) -> DemonstrationLoader:
    """The stream of worked examples for the cold start."""
    row_tokens = config.data.max_prompt_tokens + config.rollout.max_new_tokens
    return DemonstrationLoader(task, tokenizer, config.cold_start.batch_size, config.seed, row_tokens)


def _check_batches(config: RunConfig) -> None:
    shards = rules.batch_shards()
    sizes = {
        "rollout.prompts_per_step": config.rollout.prompts_per_step,
        "algorithm.micro_batch_completions": config.algorithm.micro_batch_completions,
        "cold_start.batch_size": config.cold_start.batch_size,
    }
    for path, size in sizes.items():
        if size % shards:
            raise ConfigError(
                f"config.{path}: got {size}, wanted a multiple of {shards}, the devices along data and fsdp. "
                "Change it, or config.mesh."
            )
