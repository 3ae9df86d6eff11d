"""Sampling completions and judging them: verification overlaps generation."""

import concurrent.futures
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Bool, Float

from grpo_jax.data.tokenizer import Tokenizer
from grpo_jax.records import Completion, FinishReason, Problem, Verdict
from grpo_jax.rollout.engine import Engine, FinishedGroup, Rollout, SamplingParams, assemble


@runtime_checkable
class Judge(Protocol):
    """Whatever turns completions into verdicts in the background."""

    def submit(self, problem: Problem, completion: Completion) -> concurrent.futures.Future[Verdict]:
        """Queues one completion."""
        ...


class Collected(NamedTuple):
    """Judged completions of a batch of problems.

    Attributes:
        problems: The B problems.
        rollout: Their completions.
        text_BG: Decoded completions.
        verdict_BG: What the judge says.
        rollout_seconds: Wall seconds until the last completion had ended.
        verify_seconds: Wall seconds waited for verdicts after that.
    """

    problems: Sequence[Problem]
    rollout: Rollout
    text_BG: list[list[str]]
    verdict_BG: list[list[Verdict]]
    rollout_seconds: float
    verify_seconds: float

    @property
    def reward_BG(self) -> Float[np.ndarray, "B G"]:
        """Rewards; 0 where the judge failed."""
        return np.array([[verdict.reward for verdict in group] for group in self.verdict_BG], np.float32)

    @property
    def valid_BG(self) -> Bool[np.ndarray, "B G"]:
        """False where the judge failed: no wrong answer, and no part of any statistic."""
        return np.array([[not verdict.error for verdict in group] for group in self.verdict_BG])

    @property
    def correct_BG(self) -> Bool[np.ndarray, "B G"]:
        """Whether the answer is right, whatever the reward."""
        return np.array([[verdict.correct and not verdict.error for verdict in group] for group in self.verdict_BG])


def collect(
    engine: Engine,
    judge: Judge,
    tokenizer: Tokenizer,
    problems: Sequence[Problem],
    *,
    sampling: SamplingParams,
    key: jax.Array,
) -> Collected:
    """Samples every problem and has each completion judged as soon as its group has ended.

    Args:
        engine: Samples.
        judge: Judges, in the background.
        tokenizer: Encodes prompts and decodes completions.
        problems: The B problems.
        sampling: How to draw.
        key: PRNG key of this batch alone.

    Returns:
        The batch, in the order of the problems.
    """
    started = time.perf_counter()
    prompts = [tokenizer.encode_prompt(problem.prompt) for problem in problems]
    groups: list[FinishedGroup] = []
    texts: dict[int, list[str]] = {}
    futures: dict[int, list[concurrent.futures.Future[Verdict]]] = {}
    for group in engine.generate(prompts, sampling=sampling, key=key):
        groups.append(group)
        completions = _completions(group, tokenizer)
        texts[group.index] = [completion.text for completion in completions]
        futures[group.index] = [judge.submit(problems[group.index], completion) for completion in completions]
    generated = time.perf_counter()
    order = range(len(problems))
    verdict_BG = [[future.result() for future in futures[index]] for index in order]
    return Collected(
        problems,
        assemble(groups, prompts, tokenizer.pad_id),
        [texts[index] for index in order],
        verdict_BG,
        generated - started,
        time.perf_counter() - generated,
    )


def _completions(group: FinishedGroup, tokenizer: Tokenizer) -> list[Completion]:
    return [
        Completion(tokenizer.decode(token_T[:length].tolist()), int(length), FinishReason(int(finish)))
        for token_T, length, finish in zip(group.token_GT, group.length_G, group.finish_G, strict=True)
    ]


def group_metrics(collected: Collected, reward_names: Sequence[str]) -> dict[str, float]:
    """Metrics of rewards, outcomes and lengths, over the completions that the judge could judge.

    Args:
        collected: A judged batch.
        reward_names: Components whose means are wanted.

    Returns:
        Metrics by name. ``solved_all`` and ``solved_none`` count by raw correctness, never by a shaped reward.
    """
    valid_BG, correct_BG = collected.valid_BG, collected.correct_BG
    rollout, reward_BG = collected.rollout, collected.reward_BG
    verdicts = [verdict for group in collected.verdict_BG for verdict in group]
    judged = [verdict for verdict in verdicts if not verdict.error]
    lengths = rollout.length_BG[valid_BG]
    ended = rollout.length_BG[rollout.finish_BG == FinishReason.STOP]
    has_judged_B = valid_BG.any(axis=1)
    spreads = [float(row[valid].std()) for row, valid in zip(reward_BG, valid_BG, strict=True) if valid.any()]
    metrics = {
        "reward": _mean(reward_BG[valid_BG]),
        "reward_std": _mean(spreads),
        "pass_at_1": _mean(correct_BG[valid_BG]),
        "solved_all": float(((correct_BG | ~valid_BG).all(axis=1) & has_judged_B).mean()),
        "solved_none": float((~correct_BG.any(axis=1) & has_judged_B).mean()),
        "completions/mean_length": _mean(lengths),
        "completions/min_length": float(lengths.min(initial=rollout.token_BGT.shape[2])),
        "completions/max_length": float(lengths.max(initial=0)),
        "completions/mean_terminated_length": _mean(ended),
        "completions/clipped_ratio": float((rollout.finish_BG == FinishReason.LENGTH).mean()),
        "verifier/errors": float(len(verdicts) - len(judged)),
        "verifier/timeouts": float(sum(verdict.reason == "timeout" for verdict in verdicts)),
        "verifier/mean_seconds": _mean([verdict.seconds for verdict in verdicts]),
    }
    for name in reward_names:
        parts = [verdict.parts[name] for verdict in judged if name in verdict.parts]
        metrics[f"rewards/{name}/mean"] = _mean(parts)
        metrics[f"rewards/{name}/std"] = float(np.std(parts)) if parts else 0.0
    return metrics


def _mean(values: Sequence[float] | np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else 0.0
