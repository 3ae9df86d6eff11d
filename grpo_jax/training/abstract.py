"""A training step lowered from shapes: no weights, no tokenizer, no problems, no devices of the kind it is for."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from grpo_jax.config import RunConfig
from grpo_jax.data.tokenizer import build_tokenizer
from grpo_jax.models import spec as spec_lib
from grpo_jax.models.moe import choice_dtype
from grpo_jax.models.presets import PRESETS, preset_of
from grpo_jax.models.safetensors import read_config
from grpo_jax.models.spec import ModelSpec
from grpo_jax.rollout.engine import Rollout, length_bucket
from grpo_jax.training.published import computed_spec, open_published, with_adapters
from grpo_jax.training.recipe import Outcome, Recipe, State, abstract_state


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
    prepare: jax.stages.Lowered
    update: jax.stages.Lowered


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


def lower_step(recipe: Recipe, config: RunConfig, spec: ModelSpec) -> LoweredStep:
    """Lowers a recipe on the mesh in use, for batches of the greatest lengths.

    Args:
        recipe: The algorithm.
        config: The run.
        spec: The policy's spec.

    Returns:
        The programs and the shapes between them.
    """
    state = abstract_state(recipe, spec)
    rollout, outcome = _full_batch(config, spec)
    prepare = jax.jit(lambda state: recipe.prepare(state, rollout, outcome, 1)[0]).lower(state)
    batch = prepare.out_info
    update = jax.jit(recipe.update, donate_argnums=0).lower(state, batch)
    return LoweredStep(state, batch, prepare, update)


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
