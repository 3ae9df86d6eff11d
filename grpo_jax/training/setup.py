"""From a configuration to checked parts of a run, before anything is compiled."""

import dataclasses
import importlib.metadata
import logging
import zlib
from typing import Any

import jax

import grpo_jax
from grpo_jax.config import ConfigError, RunConfig, dotted, to_nested
from grpo_jax.data.files import listed_error
from grpo_jax.data.loader import DemonstrationLoader, content_digest
from grpo_jax.data.splits import SPLITS
from grpo_jax.data.stops import stop_table
from grpo_jax.data.tasks import Task, build_task, check_prompt_lengths, without
from grpo_jax.data.tokenizer import Tokenizer, build_tokenizer
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import mesh as mesh_lib
from grpo_jax.parallel import rules
from grpo_jax.training import experts, faults
from grpo_jax.training import recipe as recipe_lib
from grpo_jax.training.published import Published, open_policy
from grpo_jax.verifiers.composite import build as build_verifier

TRIED_PROBLEMS = 8
"""Generated problems of each split that are tried; they are all alike."""

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a run is made of.

    Attributes:
        config: The validated configuration.
        mesh: The device mesh.
        tokenizer: Between text and ids.
        task: Problems by split.
        spec: The policy's architecture.
        published: The model whose weights it starts from, or None for random ones.
    """

    config: RunConfig
    mesh: jax.sharding.Mesh
    tokenizer: Tokenizer
    task: Task
    spec: ModelSpec
    published: Published | None = None


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
    faults.check()
    try:
        tokenizer, task = open_problems(config)
        published, spec = open_policy(config.model, tokenizer.vocab_size)
        mesh = mesh_lib.make_mesh(dataclasses.asdict(config.mesh))
        with jax.set_mesh(mesh):
            check_batches(config)
            experts.check(config, spec)
            recipe_lib.abstract_params(spec)
        check_stops(config, tokenizer, spec.vocab_size)
        if config.cold_start.steps > 0:
            next(demonstrations(config, task, tokenizer))
    except (ValueError, OSError) as error:
        raise ConfigError(str(error)) from error
    return Parts(config, mesh, tokenizer, task, spec, published)


def facts(parts: Parts) -> dict[str, Any]:
    """What must be the same in all processes of a run, as JSON values by name.

    Args:
        parts: From ``build``.

    Returns:
        Every key of the configuration, digests of problems, tokenizer and published tensors, and versions.
    """
    digest = lambda value: zlib.crc32(repr(value).encode())  # noqa: E731
    config = {f"config.{key}": value for key, value in dotted(to_nested(parts.config)).items()}
    problems = {f"{split} problems": content_digest(parts.task.problems(split)) for split in SPLITS}
    tokenizer = parts.tokenizer
    samples = [tokenizer.encode_prompt(problem.prompt) for problem in parts.task.problems("train")[:TRIED_PROBLEMS]]
    found = {"tokenizer": digest((tokenizer.vocab_size, tokenizer.eos_ids, tokenizer.pad_id, samples))}
    if parts.published is not None:
        shapes = sorted(parts.published.tensors.shapes.items())
        found["published model"] = digest((parts.published.config, shapes))
    versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy", "optax")}
    return config | problems | found | versions | {"grpo_jax": grpo_jax.__version__}


def open_problems(config: RunConfig, *, whole: bool = False) -> tuple[Tokenizer, Task]:
    """Reads the problems of a configuration, and checks that their prompts fit and their references can be judged.

    Args:
        config: The validated run.
        whole: Every problem of a file is in every split.

    Returns:
        The tokenizer and the task.

    Raises:
        ConfigError: for files, rows and prompts that cannot be used.
    """
    tokenizer = build_tokenizer(config.data.tokenizer, chat=config.data.chat)
    task = build_task(config.data, config.cold_start, whole=whole)
    return tokenizer, check_references(check_prompt_lengths(task, tokenizer, config.data), config)


def check_references(task: Task, config: RunConfig) -> Task:
    """Refuses or leaves out problems whose reference answer the chosen verifiers cannot read.

    Args:
        task: The task to check. Of a generated one a few problems are tried.
        config: Its ``verifier.rewards`` and ``data.bad_rows`` are used.

    Returns:
        The task, without those problems where ``bad_rows`` is ``"skip"``.

    Raises:
        ConfigError: naming the problems and what the verifier says.
    """
    judge = build_verifier(config.verifier)
    faults: dict[str, str] = {}
    for split in SPLITS:
        problems = task.problems(split)
        for problem in problems if config.data.task == "file" else problems[:TRIED_PROBLEMS]:
            if fault := judge.reference_fault(problem):
                faults[problem.identifier] = fault
    if not faults:
        return task
    cause = f"verifier.rewards: got {config.verifier.rewards}, which cannot judge {len(faults)} problems"
    if config.data.bad_rows == "skip" and config.data.task == "file":
        _logger.warning("left out %d problems whose reference answer the verifiers cannot read", len(faults))
        return without(task, faults, cause)
    raise listed_error(
        f"config.{cause}",
        [f"{identifier}: {reason}" for identifier, reason in faults.items()],
        "Correct their answers, choose another verifier, or set data.bad_rows to 'skip' to leave them out.",
    )


def demonstrations(config: RunConfig, task: Task, tokenizer: Tokenizer) -> DemonstrationLoader:
    """The stream of worked examples for the cold start."""
    row_tokens = config.data.max_prompt_tokens + config.rollout.max_new_tokens
    return DemonstrationLoader(task, tokenizer, config.cold_start.batch_size, config.seed, row_tokens)


def check_stops(config: RunConfig, tokenizer: Tokenizer, vocab_size: int) -> None:
    """Refuses stop texts that could never be found.

    Args:
        config: Its ``rollout.stop`` is used.
        tokenizer: The policy's.
        vocab_size: Ids that the policy can sample.

    Raises:
        ConfigError: naming the text.
    """
    try:
        stop_table(tokenizer, config.rollout.stop, vocab_size)
    except ValueError as error:
        raise ConfigError(f"config.rollout.stop: {error}") from error


def check_batches(config: RunConfig) -> None:
    """Refuses batches that do not divide over the mesh in use.

    Args:
        config: The run.

    Raises:
        ConfigError: naming the size and the devices.
    """
    shards = rules.batch_shards()
    sizes = {
        "rollout.prompts_per_step": config.rollout.prompts_per_step,
        "algorithm.micro_batch_completions": config.algorithm.micro_batch_completions,
    }
    if config.rollout.batch_prompts:
        sizes["rollout.batch_prompts"] = config.rollout.batch_prompts
    if config.cold_start.steps > 0:
        sizes["cold_start.batch_size"] = config.cold_start.batch_size
    for path, size in sizes.items():
        if size % shards:
            raise ConfigError(
                f"config.{path}: got {size}, wanted a multiple of {shards}, the devices along "
                f"{', '.join(rules.mesh_axes(rules.partition((rules.BATCH,))))}. Change it, or config.mesh."
            )
