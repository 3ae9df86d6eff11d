"""GRPO as a recipe."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from grpo_jax.algorithms import grpo, reduce
from grpo_jax.config import RunConfig
from grpo_jax.models import decoder
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import mesh
from grpo_jax.rollout.engine import Rollout, length_bucket
from grpo_jax.training import completions
from grpo_jax.training.recipe import (
    Metrics,
    Recipe,
    TrainState,
    apply_gradients,
    init_state,
    learning_rate_schedule,
    make_optimizer,
)

SMALLEST_LENGTH_BUCKET_TOKENS = 32


class ScoredRows(NamedTuple):
    """Completions with the log-probabilities that stay fixed during the update.

    Attributes:
        rows: The completions.
        old_logprob_NT: Log-probabilities under the policy that sampled.
        ref_logprob_NT: Log-probabilities under the reference, or None where none is held.
    """

    rows: completions.Rows
    old_logprob_NT: Float[Array, "N T"]
    ref_logprob_NT: Float[Array, "N T"] | None


class PreparedBatch(NamedTuple):
    """Micro-batches of one shape, of which training visits the first ``count``.

    Attributes:
        micro_batches: Every array has a leading axis M.
        count: Micro-batches with at least one row that takes part.
    """

    micro_batches: ScoredRows
    count: Int[Array, ""]


class _Static(NamedTuple):
    spec: ModelSpec
    loss: grpo.GRPOLossConfig
    temperature: float
    micro_batch_rows: int
    old_logprobs: str


class JudgedBatch(NamedTuple):
    """A batch of judged groups, the same on every device.

    Attributes:
        prompt_BP: Prompt ids, left-padded.
        prompt_length_B: Their lengths in tokens.
        token_BGT: Completion ids, right-padded.
        sampler_logprob_BGT: The sampler's own log-probabilities.
        length_BG: Completion lengths in tokens.
        reward_BG: Raw rewards.
        valid_BG: False where the judge failed.
    """

    prompt_BP: Int[Array, "B P"]
    prompt_length_B: Int[Array, "B"]
    token_BGT: Int[Array, "B G T"]
    sampler_logprob_BGT: Float[Array, "B G T"]
    length_BG: Int[Array, "B G"]
    reward_BG: Float[Array, "B G"]
    valid_BG: Bool[Array, "B G"]


@functools.partial(jax.jit, static_argnames="static")
def prepare_batch(
    params: decoder.Parameters, reference: decoder.Parameters | None, judged: JudgedBatch, *, static: _Static
) -> tuple[PreparedBatch, Metrics]:
    """Advantages, compaction and the log-probabilities that stay fixed during the update.

    Args:
        params: The policy's parameters.
        reference: The reference's, or None.
        judged: The batch.
        static: What the computation is compiled for.

    Returns:
        Micro-batches, and metrics of the groups.
    """
    length_BG, valid_BG = judged.length_BG, judged.valid_BG
    groups = grpo.group_weights(judged.reward_BG, length_BG, length_BG, valid_BG, config=static.loss)
    G = length_BG.shape[1]
    flat = lambda array: array.reshape(-1, *array.shape[2:])  # noqa: E731
    rows, count = completions.compacted(
        completions.Rows(
            prompt_NP=jnp.repeat(judged.prompt_BP, G, axis=0),
            prompt_length_N=jnp.repeat(judged.prompt_length_B, G),
            token_NT=flat(judged.token_BGT),
            length_N=flat(length_BG),
            sampler_logprob_NT=flat(judged.sampler_logprob_BGT),
            advantage_N=flat(groups.advantage_BG),
            weight_N=flat(groups.weight_BG),
        ),
        static.micro_batch_rows,
    )
    score = lambda of: completions.score(of, static.spec, rows, count, static.temperature)  # noqa: E731
    old_logprob_MNT = rows.sampler_logprob_NT if static.old_logprobs == "sampler" else score(params)
    micro_batches = ScoredRows(rows, old_logprob_MNT, None if reference is None else score(reference))
    computed = jnp.sum(flat(length_BG) * (flat(groups.weight_BG) > 0))
    metrics = {
        "active_group_ratio": jnp.mean(groups.active_B, dtype=jnp.float32),
        "frac_reward_zero_std": 1 - jnp.mean(groups.active_B, dtype=jnp.float32),
        "advantage_mean": reduce.masked_mean(groups.advantage_BG, valid_BG),
        "trained_tokens": computed,
        "saved_tokens": jnp.sum(length_BG) - computed,
        "micro_batches": count,
    }
    return PreparedBatch(micro_batches, count), metrics


@functools.partial(jax.jit, static_argnames=("static", "optimizer", "schedule"), donate_argnames="state")
def update_step(
    state: TrainState,
    batch: PreparedBatch,
    *,
    static: _Static,
    optimizer: optax.GradientTransformation,
    schedule: optax.Schedule,
) -> tuple[TrainState, Metrics]:
    """One optimizer update on the whole batch; nothing moves when no group is active.

    Args:
        state: The state before; its buffers are reused.
        batch: From ``prepare_batch``.
        static: What the computation is compiled for.
        optimizer: The optimizer.
        schedule: Its learning rate, for the metrics.

    Returns:
        The new state and metrics. Means are over the tokens that were computed.
    """

    def objective(params: decoder.Parameters, micro: ScoredRows) -> tuple[jax.Array, dict[str, jax.Array]]:
        rows = micro.rows
        scored = completions.completion_logprobs(params, static.spec, rows, static.temperature)
        mask_NT = rows.mask_NT
        loss, sums = grpo.grpo_objective(
            scored.logprob_NT,
            micro.old_logprob_NT,
            micro.ref_logprob_NT,
            mask_NT,
            rows.advantage_N,
            rows.weight_N,
            config=static.loss,
        )
        mismatch_NT = jnp.abs(jax.lax.stop_gradient(scored.logprob_NT) - rows.sampler_logprob_NT)
        sums["entropy"] = reduce.masked_sum(scored.entropy_NT, mask_NT)
        sums["mismatch"] = reduce.masked_sum(mismatch_NT, mask_NT)
        sums["mismatch_max"] = jnp.max(jnp.where(mask_NT, mismatch_NT, 0))
        return loss, sums

    gradients, sums = completions.accumulate_gradients(objective, state.params, *batch)
    learning_rate = jnp.asarray(schedule(state.updates), jnp.float32)
    state, metrics = apply_gradients(state, gradients, optimizer, batch.count > 0)
    tokens = jnp.maximum(sums["tokens"], 1)
    if batch.micro_batches.ref_logprob_NT is not None:
        metrics["kl"] = sums["kl"] / tokens
    return state, metrics | {
        "loss": sums["loss"],
        "policy_loss": sums["policy_loss"],
        "entropy": sums["entropy"] / tokens,
        "learning_rate": learning_rate,
        "clip_ratio/low_mean": sums["clipped_low"] / tokens,
        "clip_ratio/high_mean": sums["clipped_high"] / tokens,
        "clip_ratio/region_mean": (sums["clipped_low"] + sums["clipped_high"]) / tokens,
        "sampling/sampling_logp_difference/mean": sums["mismatch"] / tokens,
        "sampling/sampling_logp_difference/max": sums["mismatch_max"],
    }


def _placed(rollout: Rollout, reward_BG: np.ndarray, valid_BG: np.ndarray) -> JudgedBatch:
    """Puts a batch on every device, cut to the length bucket that holds its longest completion."""
    width = min(rollout.token_BGT.shape[2], length_bucket(int(rollout.length_BG.max()), SMALLEST_LENGTH_BUCKET_TOKENS))
    return JudgedBatch(
        mesh.put(rollout.prompt_BP),
        mesh.put(rollout.prompt_length_B),
        mesh.put(rollout.token_BGT[:, :, :width]),
        mesh.put(rollout.logprob_BGT[:, :, :width]),
        mesh.put(rollout.length_BG),
        mesh.put(reward_BG.astype(np.float32)),
        mesh.put(valid_BG),
    )


def make_recipe(config: RunConfig, spec: ModelSpec) -> Recipe:
    """Builds GRPO's recipe from a run's configuration.

    Args:
        config: The run.
        spec: The policy's spec.

    Returns:
        The recipe. ``init`` takes the policy's parameters and keeps a frozen copy of them as the reference where
        ``kl_beta`` is positive.
    """
    algorithm = config.algorithm
    loss = grpo.GRPOLossConfig(
        algorithm.clip_epsilon,
        algorithm.kl_beta,
        algorithm.length_penalty,
        algorithm.length_budget_tokens,
        algorithm.variance_epsilon,
    )
    static = _Static(spec, loss, config.rollout.temperature, algorithm.micro_batch_completions, algorithm.old_logprobs)
    total_updates = config.steps * algorithm.passes_per_batch
    optimizer = make_optimizer(config.optimizer, total_updates)
    schedule = learning_rate_schedule(config.optimizer, total_updates)

    def init(params: decoder.Parameters) -> TrainState:
        # jnp.copy: the update reuses the policy's buffers, the reference must not share them.
        copy = lambda leaf: jnp.copy(leaf).astype(spec.compute_dtype)  # noqa: E731
        reference = jax.tree.map(copy, params) if algorithm.kl_beta > 0 else None
        return init_state(params, optimizer, reference)

    def prepare(
        state: TrainState, rollout: Rollout, reward_BG: np.ndarray, valid_BG: np.ndarray
    ) -> tuple[PreparedBatch, Metrics]:
        judged = _placed(rollout, reward_BG, valid_BG)
        return prepare_batch(state.params, state.reference, judged, static=static)

    update = functools.partial(update_step, static=static, optimizer=optimizer, schedule=schedule)
    return Recipe(init, prepare, update)
