"""PPO as a recipe: an actor, a critic of the same size, and a reference where a KL weight asks for one."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from grpo_jax.algorithms import gae, kl, ppo, reduce, rewards
from grpo_jax.config import AlgorithmConfig, PPOConfig, RunConfig
from grpo_jax.models import decoder
from grpo_jax.models.spec import ModelSpec
from grpo_jax.rollout.engine import Rollout
from grpo_jax.training import completions, experts
from grpo_jax.training import critic as critic_lib
from grpo_jax.training.judged import JudgedBatch, judged_batch, length_schedule
from grpo_jax.training.optimizer import Optimizer, gradient_norm, learning_rate_schedule, make_optimizer
from grpo_jax.training.recipe import (
    Metrics,
    Outcome,
    Recipe,
    TrainState,
    apply_gradients,
    init_policy,
    init_state,
    reference_params,
)

DEVIATION_EPSILON = 1e-4
"""Floor of the advantages' standard deviation over a batch."""


class PPOState(NamedTuple):
    """Two models in training.

    Attributes:
        actor: The policy, and its frozen reference or None.
        critic: A backbone and a value head.
    """

    actor: TrainState
    critic: TrainState

    @property
    def params(self) -> decoder.Parameters:
        """The policy's parameters."""
        return self.actor.params

    @property
    def updates(self) -> Int[Array, ""]:
        """Optimizer updates that were applied."""
        return self.actor.updates


class ScoredRows(NamedTuple):
    """Completions with what stays fixed during the update.

    Attributes:
        rows: The completions.
        old_logprob_NT: Log-probabilities under the policy that sampled.
        old_value_NT: Values before the update.
        return_NT: What the critic should have said.
    """

    rows: completions.Rows
    old_logprob_NT: Float[Array, "N T"]
    old_value_NT: Float[Array, "N T"]
    return_NT: Float[Array, "N T"]


class _Static(NamedTuple):
    spec: ModelSpec
    algorithm: AlgorithmConfig
    ppo: PPOConfig
    temperature: float
    seed: int


class _Optimizers(NamedTuple):
    actor: Optimizer
    critic: Optimizer


@functools.partial(jax.jit, static_argnames="static")
def prepare_batch(
    state: PPOState,
    judged: JudgedBatch,
    length_penalty: Float[Array, ""],
    length_budget_tokens: Float[Array, ""],
    *,
    static: _Static,
) -> tuple[completions.PreparedBatch, Metrics]:
    """Works out values, rewards per token, returns and advantages over the whole batch.

    Args:
        state: Actor and critic.
        judged: The batch.
        length_penalty: Reward lost per token over the budget, now.
        length_budget_tokens: The budget, now.
        static: What the computation is compiled for.

    Returns:
        Micro-batches, and metrics of them.
    """
    spec, settings = static.spec, static.ppo
    shaped_BG = rewards.length_shaped(
        judged.reward_BG + judged.penalty_BG,
        judged.length_BG,
        penalty=length_penalty,
        budget_tokens=length_budget_tokens,
        overlong_max_tokens=static.algorithm.overlong_max_tokens,
        overlong_cache_tokens=static.algorithm.overlong_cache_tokens,
    )
    everyone_B = jnp.ones_like(judged.valid_BG[:, 0])
    weight_BG = reduce.token_mean_weight(judged.length_BG, judged.valid_BG, everyone_B, dtype=shaped_BG.dtype)
    is_last_BGT = jnp.arange(judged.token_BGT.shape[2])[None, None] == judged.length_BG[:, :, None] - 1
    # Each completion's reward comes with its last token, and travels in the advantages' place until they are known.
    rows, count = completions.compacted(
        judged.rows(jnp.where(is_last_BGT, shaped_BG[:, :, None], 0), weight_BG),
        static.algorithm.micro_batch_completions,
    )
    score = lambda of, rows: completions.score(of, spec, rows, count, static.temperature)  # noqa: E731
    old_logprob = rows.sampler_logprob_NT if static.algorithm.old_logprobs == "sampler" else score(state.params, rows)
    old_value = completions.map_rows(lambda micro: critic_lib.values(state.critic.params, spec, micro), rows, count)
    mask, reward, metrics = jax.vmap(lambda micro: micro.mask_NT)(rows), rows.advantage_NT, {}
    if settings.kl_beta > 0:
        ref_logprob = score(reference_params(state.actor), rows.freely_routed)
        metrics["kl"] = reduce.masked_mean(kl.k3(old_logprob, ref_logprob), mask)
        penalize = functools.partial(ppo.kl_penalized, kl_beta=settings.kl_beta)
        reward = jax.vmap(penalize)(reward, old_logprob, ref_logprob, mask)
    estimate = functools.partial(gae.gae, gamma=settings.gamma, gae_lambda=settings.gae_lambda)
    advantage = jax.vmap(estimate)(reward, old_value, mask)
    returns = advantage + old_value
    rows = rows._replace(advantage_NT=gae.whitened(advantage, mask, deviation_epsilon=DEVIATION_EPSILON))
    batch = completions.PreparedBatch(ScoredRows(rows, old_logprob, old_value, returns), count)
    return batch, metrics | judged.token_metrics(weight_BG) | {
        "shaped_reward": reduce.masked_mean(shaped_BG, judged.valid_BG),
        "micro_batches": count,
        "advantage_mean": reduce.masked_mean(advantage, mask),
        "value_mean": reduce.masked_mean(old_value, mask),
        "value_explained_variance": critic_lib.explained_variance(advantage, returns, mask),
    }


def _policy_share(
    params: decoder.Parameters, micro: ScoredRows, static: _Static, dropout_key: jax.Array | None
) -> tuple[jax.Array, dict[str, jax.Array]]:
    rows, mask_NT = micro.rows, micro.rows.mask_NT
    scored = completions.completion_logprobs(params, static.spec, rows, static.temperature, dropout_key)
    loss, sums = ppo.policy_objective(
        scored.logprob_NT,
        micro.old_logprob_NT,
        mask_NT,
        rows.advantage_NT,
        rows.weight_N,
        clip_epsilon=static.ppo.clip_epsilon,
    )
    return loss, sums | completions.observed_sums(scored, rows)


def _value_share(
    critic: decoder.Parameters, micro: ScoredRows, static: _Static
) -> tuple[jax.Array, dict[str, jax.Array]]:
    return ppo.value_objective(
        critic_lib.values(critic, static.spec, micro.rows),
        micro.old_value_NT,
        micro.return_NT,
        micro.rows.mask_NT,
        micro.rows.weight_N,
        value_clip=static.ppo.value_clip,
    )


@functools.partial(jax.jit, static_argnames=("static", "optimizers", "schedule"), donate_argnames="state")
def update_step(
    state: PPOState,
    batch: completions.PreparedBatch,
    *,
    static: _Static,
    optimizers: _Optimizers,
    schedule: optax.Schedule,
) -> tuple[PPOState, Metrics]:
    """One optimizer update of actor and critic each on the whole batch; either both move or none.

    Args:
        state: The state before; its buffers are reused.
        batch: From ``prepare_batch``.
        static: What the computation is compiled for.
        optimizers: The actor's and the critic's.
        schedule: The actor's learning rate, for the metrics.

    Returns:
        The new state and metrics, of which ``loss`` is the sum of both losses.
    """
    dropout_key = completions.dropout_key(static.spec, static.seed, state.updates)
    policy_share = functools.partial(_policy_share, static=static, dropout_key=dropout_key)
    value_share = functools.partial(_value_share, static=static)
    actor_gradients, sums = completions.accumulate_gradients(
        policy_share, state.actor.params, *batch, optimizer=optimizers.actor
    )
    critic_gradients, value_sums = completions.accumulate_gradients(
        value_share, state.critic.params, *batch, optimizer=optimizers.critic
    )
    wanted = batch.count > 0
    finite = jnp.isfinite(gradient_norm(actor_gradients)) & jnp.isfinite(gradient_norm(critic_gradients))
    learning_rate = jnp.asarray(schedule(state.updates), jnp.float32)
    actor, metrics = apply_gradients(state.actor, actor_gradients, optimizers.actor, wanted & finite)
    if static.algorithm.router_bias_update > 0:
        applied = actor.updates - state.updates
        actor = experts.rebalanced(actor, sums["expert_load"], applied * static.algorithm.router_bias_update)
    critic, critic_metrics = apply_gradients(state.critic, critic_gradients, optimizers.critic, wanted & finite)
    return PPOState(actor, critic), completions.observed_metrics(sums) | {
        "loss": sums["loss"] + value_sums["loss"],
        "policy_loss": sums["loss"],
        "value_loss": value_sums["loss"],
        "grad_norm": metrics["grad_norm"],
        "value_grad_norm": critic_metrics["grad_norm"],
        "skipped_update": (~wanted).astype(jnp.float32),
        "nonfinite_update": (wanted & ~finite).astype(jnp.float32),
        "learning_rate": learning_rate,
        "clip_ratio/value_mean": value_sums["value_clipped"] / jnp.maximum(sums["tokens"], 1),
    }


def make_recipe(config: RunConfig, spec: ModelSpec) -> Recipe:
    """Builds PPO's recipe from a run's configuration.

    Args:
        config: The run.
        spec: The policy's spec.

    Returns:
        The recipe. ``init`` takes the policy's parameters, see ``init_policy``; the critic's backbone is a copy of
        them, all of which is trained, also where the policy has adapters.
    """
    settings = config.ppo
    static = _Static(spec, config.algorithm, settings, config.rollout.temperature, config.seed)
    total_updates = config.steps * config.algorithm.passes_per_batch
    optimizers = _Optimizers(
        make_optimizer(config.optimizer, total_updates, spec.compute_dtype),
        make_optimizer(settings.critic, total_updates, spec.compute_dtype),
    )
    schedule = learning_rate_schedule(config.optimizer, total_updates)

    def init(params: decoder.Parameters) -> PPOState:
        return PPOState(
            init_policy(params, spec, optimizers.actor, config, settings.kl_beta),
            init_state(critic_lib.init_critic(params, spec), optimizers.critic, None),
        )

    def prepare(
        state: PPOState, rollout: Rollout, outcome: Outcome, step: int
    ) -> tuple[completions.PreparedBatch, Metrics]:
        judged = judged_batch(rollout, outcome, config.algorithm)
        penalty, budget_tokens = length_schedule(config.algorithm, step)
        return prepare_batch(state, judged, jnp.float32(penalty), jnp.float32(budget_tokens), static=static)

    update = functools.partial(update_step, static=static, optimizers=optimizers, schedule=schedule)
    return Recipe(init, prepare, update)
