"""A training step lowered from shapes: no weights, no tokenizer, no problems, no devices of the kind it is for."""

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from grpo_jax.config import ConfigError, RunConfig
from grpo_jax.data.tokenizer import build_tokenizer
from grpo_jax.forensics.programs import Program, lower
from grpo_jax.models import spec as spec_lib
from grpo_jax.models.moe import choice_dtype
from grpo_jax.models.presets import PRESETS, preset_of
from grpo_jax.models.safetensors import read_config
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel.mesh import make_mesh
from grpo_jax.rollout.engine import Rollout, length_bucket
from grpo_jax.training import experts
from grpo_jax.training.published import computed_spec, open_published, with_adapters
from grpo_jax.training.recipe import Outcome, Recipe, State, abstract_params, abstract_state
from grpo_jax.training.setup import check_batches
from grpo_jax.training.trainer import RECIPES


class LoweredStep(NamedTuple):
    """What trains on a sampled batch.

    Attributes:
        state: Shapes of the algorithm's state.
        batch: Shapes of a prepared batch.
        prepare: Reference and old log-probabilities, advantages, lowered.
        update: The optimizer update, lowered.
    """

    state: State
    batch: Any
    prepare: Program
    update: Program


class LoweredRun(NamedTuple):
    """The programs of a run.

    Attributes:
        spec: The policy's spec.
        mesh: What they run on.
        step: Reference pass and update.
    """

    spec: ModelSpec
    mesh: jax.sharding.Mesh
    step: LoweredStep


def abstract_spec(config: RunConfig) -> ModelSpec:
    """The policy's spec, also where the published model it starts from is not on this machine.

    Args:
        config: The run.

    Returns:
        The spec: of the model at ``model.path`` where that exists, else of the preset that the path is named after.

    Raises:
        ValueError: for a path that neither exists nor is named after a preset.
    """
    model = config.model
    if model.path is None:
        spec = spec_lib.from_config(model, build_tokenizer(config.data.tokenizer).vocab_size)
    else:
        path = Path(model.path)
        if path.is_dir():
            # Its weights may be elsewhere.
            published = read_config(path)
        else:
            published = open_published(path).config if path.exists() else PRESETS[preset_of(model.path)]
        spec = computed_spec(published, model)
    return with_adapters(spec, model)


def fitted(config: RunConfig, devices: Sequence[Any] | None) -> tuple[ModelSpec, jax.sharding.Mesh]:
    """Checks that a run fits together and divides over devices.

    Args:
        config: The run.
        devices: Of its mesh; None for all of this process.

    Returns:
        The policy's spec and the mesh.

    Raises:
        ConfigError: for a configuration that does not fit together, or not on these devices.
    """
    config.validate()
    try:
        spec = abstract_spec(config)
        mesh = make_mesh(dataclasses.asdict(config.mesh), devices)
        with jax.set_mesh(mesh):
            check_batches(config)
            experts.check(config, spec)
            abstract_params(spec)
    except (ValueError, OSError) as error:
        raise ConfigError(str(error)) from error
    return spec, mesh


def lower_run(config: RunConfig, devices: Sequence[Any] | None, micro_batches: int | None = None) -> LoweredRun:
    """Lowers what a run trains with.

    Args:
        config: The run.
        devices: See ``fitted``.
        micro_batches: See ``lower_step``.

    Returns:
        The programs.

    Raises:
        ConfigError: see ``fitted``.
    """
    spec, mesh = fitted(config, devices)
    try:
        with jax.set_mesh(mesh):
            step = lower_step(RECIPES[config.recipe](config, spec), config, spec, micro_batches)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return LoweredRun(spec, mesh, step)


def lower_step(recipe: Recipe, config: RunConfig, spec: ModelSpec, micro_batches: int | None = None) -> LoweredStep:
    """Lowers a recipe on the mesh in use, for batches of the greatest lengths.

    Args:
        recipe: The algorithm.
        config: The run.
        spec: The policy's spec.
        micro_batches: How many of a step's micro-batches an update goes through; None for all.

    Returns:
        The programs and the shapes between them.
    """
    state = abstract_state(recipe, spec)
    rollout, outcome = _full_batch(config, spec)

    def prepared(state: State, drawn: tuple[Any, Any], judged: tuple[Any, ...]) -> Any:
        prompt_BP, logprob_BGT = drawn
        filled = rollout._replace(prompt_BP=prompt_BP, logprob_BGT=logprob_BGT)
        return recipe.prepare(state, filled, Outcome(*judged), 1)[0]

    # Of constants alone a compiler would work out that there is nothing to train on, and leave everything out.
    given = jax.tree.map(
        lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype),
        ((rollout.prompt_BP, rollout.logprob_BGT), tuple(outcome)),
    )
    completions = config.rollout.prompts_per_step * config.rollout.completions_per_prompt
    passes = completions // config.algorithm.micro_batch_completions
    with warnings.catch_warnings():
        # The rows that lengths are read from are constants, and meant to be.
        warnings.filterwarnings("ignore", "A large amount of constants were captured")
        prepare = lower(jax.jit(prepared), state, *given, passes=passes)
    batch = prepare.lowered.out_info
    if micro_batches is not None:
        passes = min(passes, micro_batches)
        batch = batch._replace(micro_batches=jax.tree.map(lambda leaf: _first(leaf, passes), batch.micro_batches))
    update = lower(jax.jit(recipe.update, donate_argnums=0), state, batch, passes=passes)
    return LoweredStep(state, batch, prepare, update)


def _first(leaf: jax.ShapeDtypeStruct, rows: int) -> jax.ShapeDtypeStruct:
    """The shape of the first rows, none of whose shards lie along them."""
    return jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype, sharding=leaf.sharding)


def _full_batch(config: RunConfig, spec: ModelSpec) -> tuple[Rollout, Outcome]:
    """A batch in which every row has its full length; its arrays are views of single numbers and take no memory."""
    B, G = config.rollout.prompts_per_step, config.rollout.completions_per_prompt
    P, T = length_bucket(config.data.max_prompt_tokens), config.rollout.max_new_tokens
    full = lambda value, *shape: np.broadcast_to(value, shape)  # noqa: E731
    rollout = Rollout(
        prompt_BP=full(np.int32(0), B, P),
        prompt_length_B=full(np.int32(P), B),
        token_BGT=full(np.int32(0), B, G, T),
        logprob_BGT=full(np.float32(0), B, G, T),
        length_BG=full(np.int32(T), B, G),
        finish_BG=full(np.int32(0), B, G),
        policy_version=0,
    )
    if config.algorithm.router_replay and spec.experts:
        first, each = choice_dtype(spec.experts)(0), (spec.routed_layers, spec.experts.per_token)
        rollout = rollout._replace(
            prompt_choice_BPLA=full(first, B, P, *each), choice_BGTLA=full(first, B, G, T, *each)
        )
    reward_BG = full(np.float32(0), B, G)
    part_BGK = full(np.float32(0), B, G, len(config.verifier.rewards))
    return rollout, Outcome(reward_BG, part_BGK, full(np.bool_(True), B, G))
