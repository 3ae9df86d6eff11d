"""Judged groups on the devices, and what acts on their rewards before the objective sees them."""

from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Integer

from grpo_jax.config import AlgorithmConfig
from grpo_jax.parallel import mesh
from grpo_jax.records import FinishReason
from grpo_jax.rollout.engine import Rollout, length_bucket
from grpo_jax.rollout.prefixes import prefix_mean
from grpo_jax.rollout.repetition import repetition_penalty
from grpo_jax.training import completions
from grpo_jax.training.recipe import Metrics, Outcome

SMALLEST_LENGTH_BUCKET_TOKENS = 32


class JudgedBatch(NamedTuple):
    """A batch of judged groups, the same on every device.

    Attributes:
        prompt_BP: Prompt ids, left-padded.
        prompt_length_B: Their lengths in tokens.
        token_BGT: Completion ids, right-padded.
        sampler_logprob_BGT: The sampler's own log-probabilities.
        length_BG: Completion lengths in tokens.
        reward_BG: Raw rewards.
        penalty_BG: What the host adds to them: minus what repetition costs.
        part_BGK: Each reward on its own, before weights.
        valid_BG: False for completions that take no part.
        prompt_choice_BPLA: Experts that the prompts visited, where they are replayed.
        choice_BGTLA: Experts that the completions visited, where they are replayed.
    """

    prompt_BP: Int[Array, "B P"]
    prompt_length_B: Int[Array, "B"]
    token_BGT: Int[Array, "B G T"]
    sampler_logprob_BGT: Float[Array, "B G T"]
    length_BG: Int[Array, "B G"]
    reward_BG: Float[Array, "B G"]
    penalty_BG: Float[Array, "B G"]
    part_BGK: Float[Array, "B G K"]
    valid_BG: Bool[Array, "B G"]
    prompt_choice_BPLA: Integer[Array, "B P Lr A"] | None = None
    choice_BGTLA: Integer[Array, "B G T Lr A"] | None = None

    def rows(self, advantage_BGT: Float[Array, "B G T"], weight_BG: Float[Array, "B G"]) -> completions.Rows:
        """The batch as N = B * G completions."""
        G = self.length_BG.shape[1]
        flat = lambda array: array.reshape(-1, *array.shape[2:])  # noqa: E731
        choice_NSLA = None
        if self.prompt_choice_BPLA is not None and self.choice_BGTLA is not None:
            of_prompts = jnp.repeat(self.prompt_choice_BPLA, G, axis=0)
            choice_NSLA = jnp.concatenate([of_prompts, flat(self.choice_BGTLA)], axis=1)
        return completions.Rows(
            prompt_NP=jnp.repeat(self.prompt_BP, G, axis=0),
            prompt_length_N=jnp.repeat(self.prompt_length_B, G),
            token_NT=flat(self.token_BGT),
            length_N=flat(self.length_BG),
            sampler_logprob_NT=flat(self.sampler_logprob_BGT),
            advantage_NT=flat(advantage_BGT),
            weight_N=flat(weight_BG),
            index_N=jnp.arange(self.length_BG.size),
            choice_NSLA=choice_NSLA,
        )

    def token_metrics(self, weight_BG: Float[Array, "B G"]) -> Metrics:
        """Sampled tokens that are trained on, and those that are not because their completion has no weight."""
        trained = jnp.sum(self.length_BG * (weight_BG > 0))
        return {"trained_tokens": trained, "saved_tokens": jnp.sum(self.length_BG) - trained}


def judged_batch(rollout: Rollout, outcome: Outcome, algorithm: AlgorithmConfig) -> JudgedBatch:
    """Puts a batch on every device, cut to the length bucket that holds its longest completion.

    Args:
        rollout: The completions.
        outcome: What the judge says of them.
        algorithm: Its repetition penalty, ``mask_truncated`` and ``router_replay`` act here.

    Returns:
        The batch.

    Raises:
        ValueError: if experts are to be replayed that the engine did not record.
    """
    width = min(rollout.token_BGT.shape[2], length_bucket(int(rollout.length_BG.max()), SMALLEST_LENGTH_BUCKET_TOKENS))
    penalty_BG, valid_BG = np.zeros(outcome.reward_BG.shape, np.float32), outcome.valid_BG
    if algorithm.repetition_weight > 0:
        penalty_BG = -repetition_penalty(
            rollout.token_BGT,
            rollout.length_BG,
            n=algorithm.repetition_ngram_tokens,
            threshold=algorithm.repetition_threshold,
            weight=algorithm.repetition_weight,
        )
    if algorithm.mask_truncated:
        valid_BG = valid_BG & (rollout.finish_BG != FinishReason.LENGTH)
    choices = _replayed(rollout, width) if algorithm.router_replay else ()
    return JudgedBatch(
        mesh.put(rollout.prompt_BP),
        mesh.put(rollout.prompt_length_B),
        mesh.put(rollout.token_BGT[:, :, :width]),
        mesh.put(rollout.logprob_BGT[:, :, :width]),
        mesh.put(rollout.length_BG),
        mesh.put(outcome.reward_BG.astype(np.float32)),
        mesh.put(penalty_BG.astype(np.float32)),
        mesh.put(outcome.part_BGK.astype(np.float32)),
        mesh.put(valid_BG),
        *map(mesh.put, choices),
    )


def _replayed(rollout: Rollout, width: int) -> tuple[np.ndarray, np.ndarray]:
    if rollout.prompt_choice_BPLA is None or rollout.choice_BGTLA is None:
        raise ValueError(
            "config.algorithm.router_replay: got True, wanted False, since the engine that sampled does not say which "
            "experts its tokens visited. Sample with JaxEngine(record_experts=True)."
        )
    return rollout.prompt_choice_BPLA, rollout.choice_BGTLA[:, :, :width]


def token_advantages(
    advantage_BG: Float[Array, "B G"], judged: JudgedBatch, rollout: Rollout, credit: Literal["uniform", "prefix_mean"]
) -> Float[Array, "B G T"]:
    """Spreads each completion's advantage over its tokens.

    Args:
        advantage_BG: Advantages of whole completions.
        judged: The batch that they belong to.
        rollout: The same batch on the host.
        credit: ``uniform``: every token gets the completion's; ``prefix_mean``: the mean over the completions of the
            group that share the tokens up to and including it.

    Returns:
        Advantage at each token; what stands behind a completion's end has no meaning.
    """
    T = judged.token_BGT.shape[2]
    if credit == "uniform":
        return jnp.broadcast_to(advantage_BG[:, :, None], judged.token_BGT.shape)
    advantage, valid_BG = np.asarray(advantage_BG), np.asarray(judged.valid_BG)
    return mesh.put(prefix_mean(advantage, rollout.token_BGT[:, :, :T], rollout.length_BG, valid_BG))


def length_schedule(algorithm: AlgorithmConfig, step: int) -> tuple[float, float]:
    """Length penalty and budget at a step: linear from the initial values, then the final ones.

    Args:
        algorithm: The objective's section.
        step: Step, counted from 1.

    Returns:
        Reward lost per token over the budget, and the budget in tokens.
    """
    done = min((step - 1) / algorithm.length_schedule_steps, 1.0) if algorithm.length_schedule_steps else 1.0
    between = lambda initial, final: initial + done * (final - initial)  # noqa: E731
    return (
        between(algorithm.length_penalty_initial, algorithm.length_penalty),
        between(algorithm.length_budget_initial_tokens, algorithm.length_budget_tokens),
    )
