"""The supervised warm-up: next-token loss on worked examples."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int

from grpo_jax.algorithms import reduce
from grpo_jax.config import RunConfig
from grpo_jax.models import decoder
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import mesh, rules
from grpo_jax.training.optimizer import Optimizer, learning_rate_schedule, make_optimizer
from grpo_jax.training.recipe import (
    Metrics,
    Recipe,
    TrainState,
    apply_gradients,
    init_state,
)


@functools.partial(jax.jit, static_argnames=("spec", "optimizer", "schedule"), donate_argnames="state")
def update_step(
    state: TrainState,
    token_NS: Int[Array, "N S"],
    prompt_length_N: Int[Array, "N"],
    length_N: Int[Array, "N"],
    *,
    spec: ModelSpec,
    optimizer: Optimizer,
    schedule: optax.Schedule,
) -> tuple[TrainState, Metrics]:
    """One update on the mean negative log-probability of all demonstrated tokens, prompts left out.

    Args:
        state: The state before; its buffers are reused.
        token_NS: Prompt, demonstration and end-of-sequence token, right-padded.
        prompt_length_N: Prompt lengths in tokens, >= 1.
        length_N: Lengths of the whole rows in tokens.
        spec: The policy's spec.
        optimizer: The optimizer.
        schedule: Its learning rate, for the metrics.

    Returns:
        The new state and metrics.
    """
    index_S = jnp.arange(token_NS.shape[1])
    real_NS = index_S[None] < length_N[:, None]
    demonstrated_NT = (real_NS & (index_S[None] >= prompt_length_N[:, None]))[:, 1:]

    def objective(params: decoder.Parameters) -> tuple[jax.Array, jax.Array]:
        position_NS = jnp.broadcast_to(index_S[None], token_NS.shape)
        hidden_NSD = decoder.forward(
            params, spec, token_NS[:, :-1], position_NS[:, :-1], real_NS[:, :-1].astype(jnp.int32)
        )
        scored = decoder.token_logprobs(params, spec, hidden_NSD, token_NS[:, 1:], temperature=1.0)
        entropy = reduce.masked_mean(scored.entropy_NT, demonstrated_NT)
        return -reduce.masked_mean(scored.logprob_NT, demonstrated_NT), entropy

    (loss, entropy), gradients = jax.value_and_grad(objective, has_aux=True)(optimizer.differentiated(state.params))
    learning_rate = jnp.asarray(schedule(state.updates), jnp.float32)
    state, metrics = apply_gradients(state, gradients, optimizer, jnp.bool(True))
    return state, metrics | {"loss": loss, "entropy": entropy, "learning_rate": learning_rate}


def make_recipe(config: RunConfig, spec: ModelSpec) -> Recipe:
    """Builds the warm-up's recipe; its ``prepare`` takes a batch of ``DemonstrationLoader``.

    Args:
        config: The run.
        spec: The policy's spec.

    Returns:
        The recipe.
    """
    settings = config.cold_start.optimizer
    optimizer = make_optimizer(settings, config.cold_start.steps, spec.compute_dtype)
    schedule = learning_rate_schedule(settings, config.cold_start.steps)

    def init(params: decoder.Parameters) -> TrainState:
        return init_state(params, optimizer, None)

    def prepare(_: TrainState, batch: dict[str, np.ndarray]) -> tuple[dict[str, Any], Metrics]:
        rows = {name: mesh.put(array, rules.RULES[rules.BATCH]) for name, array in batch.items()}
        return rows, {"num_tokens": jnp.sum(rows["length_N"])}

    def update(state: TrainState, batch: dict[str, Any]) -> tuple[TrainState, Metrics]:
        return update_step(state, **batch, spec=spec, optimizer=optimizer, schedule=schedule)

    return Recipe(init, prepare, update)
