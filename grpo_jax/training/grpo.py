"""GRPO as a recipe."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from grpo_jax.algorithms import groups, grpo, reduce
from grpo_jax.algorithms.settings import GRPOLossConfig
from grpo_jax.config import RunConfig
from grpo_jax.models import decoder
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import rules
from grpo_jax.rollout.engine import Rollout
from grpo_jax.training import completions, experts
from grpo_jax.training.judged import JudgedBatch, judged_batch, length_schedule, token_advantages
from grpo_jax.training.optimizer import Optimizer, learning_rate_schedule, make_optimizer
from grpo_jax.training.recipe import (
    Metrics,
    Outcome,
    Recipe,
    TrainState,
    apply_gradients,
    init_policy,
    reference_params,
)


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


class _Static(NamedTuple):
    spec: ModelSpec
    loss: GRPOLossConfig
    temperature: float
    micro_batch_rows: int
    old_logprobs: str
    seed: int
    router_bias_update: float


@functools.partial(jax.jit, static_argnames="static")
def weigh_groups(
    reference: decoder.Parameters | None,
    judged: JudgedBatch,
    length_penalty: Float[Array, ""],
    length_budget_tokens: Float[Array, ""],
    *,
    static: _Static,
) -> tuple[groups.GroupWeights, Metrics]:
    """Shapes rewards and works out advantages and weights over the whole batch.

    Args:
        reference: The reference's parameters; only read where the KL is placed in the reward.
        judged: The batch.
        length_penalty: Reward lost per token over the budget, now.
        length_budget_tokens: The budget, now.
        static: What the computation is compiled for.

    Returns:
        Advantages, weights and active groups, and metrics of them.
    """
    loss, kl_BG = static.loss, None
    if loss.kl_beta > 0 and loss.kl_placement == "reward":
        assert reference is not None
        everyone = jnp.ones_like(judged.reward_BG)
        rows, count = completions.compacted(
            judged.rows(jnp.zeros_like(judged.sampler_logprob_BGT), everyone), static.micro_batch_rows
        )
        ref_logprob_MNT = completions.score(reference, static.spec, rows.freely_routed, count, static.temperature)
        kl_MN = groups.completion_kl(rows.sampler_logprob_NT, ref_logprob_MNT, rows.mask_NT, loss.kl_estimator)
        kl_BG = rules.replicate(kl_MN).reshape(everyone.shape)
    # Worked out by itself: taken as a difference of rewards it would hold their rounding, and equal penalties differ.
    penalty_BG = groups.shaped_reward(
        judged.penalty_BG,
        judged.length_BG,
        kl_BG,
        config=loss,
        length_penalty=length_penalty,
        length_budget_tokens=length_budget_tokens,
    )
    shaped_BG = judged.reward_BG + penalty_BG
    parts_BGK = jnp.concatenate([judged.part_BGK, penalty_BG[:, :, None]], axis=2)
    weighed = groups.group_weights(shaped_BG, judged.length_BG, judged.valid_BG, parts_BGK, config=loss)
    active_ratio = jnp.mean(weighed.active_B, dtype=jnp.float32)
    return weighed, judged.token_metrics(weighed.weight_BG) | {
        "active_group_ratio": active_ratio,
        "frac_reward_zero_std": 1 - active_ratio,
        "shaped_reward": reduce.masked_mean(shaped_BG, judged.valid_BG),
        "advantage_mean": reduce.masked_mean(weighed.advantage_BG, judged.valid_BG),
    }


@functools.partial(jax.jit, static_argnames="static")
def prepare_batch(
    params: decoder.Parameters,
    reference: decoder.Parameters | None,
    judged: JudgedBatch,
    advantage_BGT: Float[Array, "B G T"],
    weight_BG: Float[Array, "B G"],
    *,
    static: _Static,
) -> completions.PreparedBatch:
    """Takes out what takes no part and works out the log-probabilities that stay fixed during the update.

    Args:
        params: The policy's parameters.
        reference: The reference's, or None.
        judged: The batch.
        advantage_BGT: Advantage at each token.
        weight_BG: Weight of each completion's token losses.
        static: What the computation is compiled for.

    Returns:
        Micro-batches.
    """
    rows, count = completions.compacted(judged.rows(advantage_BGT, weight_BG), static.micro_batch_rows)
    score = lambda of, rows: completions.score(of, static.spec, rows, count, static.temperature)  # noqa: E731
    old_logprob_MNT = rows.sampler_logprob_NT if static.old_logprobs == "sampler" else score(params, rows)
    # The reference is a model of its own: sent along the policy's routes it would drift with the policy's router.
    ref_logprob_MNT = None if reference is None else score(reference, rows.freely_routed)
    return completions.PreparedBatch(ScoredRows(rows, old_logprob_MNT, ref_logprob_MNT), count)


@functools.partial(jax.jit, static_argnames=("static", "optimizer", "schedule"), donate_argnames="state")
def update_step(
    state: TrainState,
    batch: completions.PreparedBatch,
    *,
    static: _Static,
    optimizer: Optimizer,
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
    dropout_key = completions.dropout_key(static.spec, static.seed, state.updates)

    def objective(params: decoder.Parameters, micro: ScoredRows) -> tuple[jax.Array, dict[str, jax.Array]]:
        rows = micro.rows
        scored = completions.completion_logprobs(params, static.spec, rows, static.temperature, dropout_key)
        mask_NT = rows.mask_NT
        loss, sums = grpo.grpo_objective(
            scored.logprob_NT,
            micro.old_logprob_NT,
            micro.ref_logprob_NT,
            mask_NT,
            rows.advantage_NT,
            rows.weight_N,
            rows.sampler_logprob_NT,
            config=static.loss,
        )
        return loss, sums | completions.observed_sums(scored, rows)

    gradients, sums = completions.accumulate_gradients(objective, state.params, *batch, optimizer=optimizer)
    updates, learning_rate = state.updates, jnp.asarray(schedule(state.updates), jnp.float32)
    state, metrics = apply_gradients(state, gradients, optimizer, batch.count > 0)
    if static.router_bias_update > 0:
        applied = state.updates - updates
        state = experts.rebalanced(state, sums["expert_load"], applied * static.router_bias_update)
    if batch.micro_batches.ref_logprob_NT is not None:
        metrics["kl"] = sums["kl"] / jnp.maximum(sums["tokens"], 1)
    return state, metrics | completions.observed_metrics(sums) | {
        "loss": sums["loss"],
        "policy_loss": sums["policy_loss"],
        "learning_rate": learning_rate,
    }


def loss_settings(config: RunConfig) -> GRPOLossConfig:
    """The objective's settings out of a run's configuration."""
    shared = {field.name for field in dataclasses.fields(GRPOLossConfig)} & {
        field.name for field in dataclasses.fields(config.algorithm)
    }
    settings = {name: getattr(config.algorithm, name) for name in shared}
    settings["constant_length_tokens"] = config.algorithm.constant_length_tokens or config.rollout.max_new_tokens
    # The penalties that act on the reward are a reward of their own, with a weight of 1.
    return GRPOLossConfig(**settings, reward_weights=(*config.verifier.weights, 1.0))


def make_recipe(config: RunConfig, spec: ModelSpec) -> Recipe:
    """Builds GRPO's recipe from a run's configuration.

    Args:
        config: The run.
        spec: The policy's spec.

    Returns:
        The recipe. ``init`` takes the policy's parameters, see ``init_policy``.
    """
    algorithm = config.algorithm
    static = _Static(
        spec,
        loss_settings(config),
        config.rollout.temperature,
        algorithm.micro_batch_completions,
        algorithm.old_logprobs,
        config.seed,
        algorithm.router_bias_update,
    )
    total_updates = config.steps * algorithm.passes_per_batch
    optimizer = make_optimizer(config.optimizer, total_updates, spec.compute_dtype)
    schedule = learning_rate_schedule(config.optimizer, total_updates)

    def init(params: decoder.Parameters) -> TrainState:
        return init_policy(params, spec, optimizer, config, algorithm.kl_beta)

    def prepare(
        state: TrainState, rollout: Rollout, outcome: Outcome, step: int
    ) -> tuple[completions.PreparedBatch, Metrics]:
        judged = judged_batch(rollout, outcome, algorithm)
        reference = reference_params(state) if algorithm.kl_beta > 0 else None
        penalty, budget_tokens = length_schedule(algorithm, step)
        weighed, metrics = weigh_groups(
            reference, judged, jnp.float32(penalty), jnp.float32(budget_tokens), static=static
        )
        advantage_BGT = token_advantages(weighed.advantage_BG, judged, rollout, algorithm.credit)
        batch = prepare_batch(state.params, reference, judged, advantage_BGT, weighed.weight_BG, static=static)
        return batch, metrics | {"micro_batches": batch.count}

    update = functools.partial(update_step, static=static, optimizer=optimizer, schedule=schedule)
    return Recipe(init, prepare, update)
