"""Sampling completions and judging them: verification overlaps generation."""

import collections
import concurrent.futures
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Bool, Float

from grpo_jax.data.stops import before_stop
from grpo_jax.data.tokenizer import Tokenizer
from grpo_jax.parallel import distributed, exchange
from grpo_jax.records import Completion, FinishReason, Problem, Verdict
from grpo_jax.rollout.engine import Engine, FinishedGroup, Rollout, SamplingParams, assemble
from grpo_jax.training.recipe import Outcome


@runtime_checkable
class Judge(Protocol):
    """Whatever turns completions into verdicts in the background."""

    def submit(self, problem: Problem, completion: Completion) -> concurrent.futures.Future[Verdict]:
        """Queues one completion."""
        ...

    def metrics(self) -> Mapping[str, float]:
        """What is logged of the judge itself with every step."""
        ...


class JudgedGroup(NamedTuple):
    """One problem with its judged completions.

    Attributes:
        problem: The problem.
        prompt: Its token ids.
        group: Its completions.
        texts: Decoded completions.
        verdicts: What the judge says of them.
    """

    problem: Problem
    prompt: list[int]
    group: FinishedGroup
    texts: list[str]
    verdicts: list[Verdict]

    @property
    def teaches(self) -> bool:
        """Whether the rewards of the judged completions differ at all."""
        rewards = [verdict.reward for verdict in self.verdicts if not verdict.error]
        return len(rewards) > 1 and max(rewards) - min(rewards) > SAME_REWARD


SAME_REWARD = 1e-6
"""Rewards that differ by less are the same sum in another order."""


class Collected(NamedTuple):
    """Judged completions of B problems.

    Attributes:
        groups: The judged groups, in the order of their problems.
        rollout: Their completions as arrays.
        rollout_seconds: Wall seconds spent on sampling.
        verify_seconds: Wall seconds waited for verdicts after that.
    """

    groups: Sequence[JudgedGroup]
    rollout: Rollout
    rollout_seconds: float
    verify_seconds: float

    @property
    def problems(self) -> list[Problem]:
        """The B problems."""
        return [group.problem for group in self.groups]

    @property
    def text_BG(self) -> list[list[str]]:
        """Decoded completions."""
        return [group.texts for group in self.groups]

    @property
    def verdict_BG(self) -> list[list[Verdict]]:
        """What the judge says."""
        return [group.verdicts for group in self.groups]

    @property
    def reward_BG(self) -> Float[np.ndarray, "B G"]:
        """Rewards; 0 where the judge failed."""
        return np.array([[verdict.reward for verdict in group] for group in self.verdict_BG], np.float32)

    @property
    def valid_BG(self) -> Bool[np.ndarray, "B G"]:
        """False where the judge failed: no wrong answer, and no part of any statistic."""
        return np.array([[not verdict.error for verdict in group] for group in self.verdict_BG])

    @property
    def commonest_fault(self) -> str:
        """The reason that a failed judge gives most often, or nothing."""
        reasons = collections.Counter(verdict.reason for row in self.verdict_BG for verdict in row if verdict.error)
        return reasons.most_common(1)[0][0] if reasons else ""

    def part_BGK(self, names: Sequence[str]) -> Float[np.ndarray, "B G K"]:
        """Each reward on its own, before weights; 0 where the judge failed."""
        parts = [[[verdict.parts.get(name, 0.0) for name in names] for verdict in row] for row in self.verdict_BG]
        return np.array(parts, np.float32)

    def outcome(self, names: Sequence[str]) -> Outcome:
        """What training needs to know of the verdicts."""
        return Outcome(self.reward_BG, self.part_BGK(names), self.valid_BG)

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

    The processes of a run share the problems out: each encodes, decodes and judges its own; all get the whole batch.

    Args:
        engine: Samples.
        judge: Judges, in the background.
        tokenizer: Encodes prompts and decodes completions.
        problems: The B problems, the same on every process.
        sampling: How to draw.
        key: PRNG key of this batch alone.

    Returns:
        The batch, in the order of the problems.
    """
    started = time.perf_counter()
    own = exchange.share(len(problems))
    prompts = exchange.joined([tokenizer.encode_prompt(problems[index].prompt) for index in own])
    groups: dict[int, FinishedGroup] = {}
    judged: dict[int, tuple[list[str], list[concurrent.futures.Future[Verdict]]]] = {}
    for group in engine.generate(prompts, sampling=sampling, key=key):
        groups[group.index] = group
        if group.index in own:
            completions = decoded(group, tokenizer, sampling.stop)
            futures = [judge.submit(problems[group.index], completion) for completion in completions]
            judged[group.index] = [completion.text for completion in completions], futures
    generated = time.perf_counter()
    texts = exchange.joined([judged[index][0] for index in own])
    verdicts = _told([[future.result() for future in judged[index][1]] for index in own])
    batch = [
        JudgedGroup(problem, prompts[index], groups[index], texts[index], verdicts[index])
        for index, problem in enumerate(problems)
    ]
    return gathered(batch, tokenizer.pad_id, generated - started, time.perf_counter() - generated)


def _told(own: list[list[Verdict]]) -> list[list[Verdict]]:
    """Every process's verdicts, in the order of the problems."""
    if jax.process_count() == 1:
        return own
    distributed.barrier("verdicts")
    told = exchange.joined([[dataclasses.asdict(verdict) for verdict in group] for group in own])
    return [[Verdict(**values | {"flags": tuple(values["flags"])}) for values in group] for group in told]


def gathered(groups: Sequence[JudgedGroup], pad_id: int, rollout_seconds: float, verify_seconds: float) -> Collected:
    """Puts judged groups into one batch, in the order given.

    Args:
        groups: Groups of one policy version.
        pad_id: Id to fill up prompts with.
        rollout_seconds: Wall seconds spent on sampling them.
        verify_seconds: Wall seconds waited for their verdicts.

    Returns:
        The batch.
    """
    numbered = [judged.group._replace(index=index) for index, judged in enumerate(groups)]
    rollout = assemble(numbered, [judged.prompt for judged in groups], pad_id)
    return Collected(groups, rollout, rollout_seconds, verify_seconds)


def collect_active(
    collect_batch: Callable[[int], Collected], size: int, max_batches: int, pad_id: int
) -> tuple[Collected, Collected, int]:
    """Draws batches until one can be filled with groups that teach something.

    Args:
        collect_batch: Samples and judges the i-th batch, counted from 0.
        size: Groups wanted.
        max_batches: Batches drawn at most.
        pad_id: Id to fill up prompts with.

    Returns:
        The batch to train on, with groups that teach nothing at its end where too few others were found; everything
        that was drawn; and the number of batches drawn.
    """
    drawn: list[Collected] = []
    while len(drawn) < max_batches:
        drawn.append(collect_batch(len(drawn)))
        if sum(group.teaches for batch in drawn for group in batch.groups) >= size:
            break
    if len(drawn) == 1:
        return drawn[0], drawn[0], 1
    groups = [group for batch in drawn for group in batch.groups]
    seconds = sum(batch.rollout_seconds for batch in drawn), sum(batch.verify_seconds for batch in drawn)
    chosen = sorted(groups, key=lambda group: not group.teaches)[:size]
    return gathered(chosen, pad_id, *seconds), gathered(groups, pad_id, *seconds), len(drawn)


def decoded(group: FinishedGroup, tokenizer: Tokenizer, stops: Sequence[str]) -> list[Completion]:
    """Turns a group's tokens into completions as a verifier sees them.

    Args:
        group: A finished group.
        tokenizer: Its tokenizer.
        stops: Texts that may have ended a completion.

    Returns:
        One completion for each of the group.
    """
    text = lambda token_T: before_stop(tokenizer.decode(token_T.tolist()), stops)  # noqa: E731
    return [
        Completion(text(token_T[:length]), int(length), FinishReason(int(finish)))
        for token_T, length, finish in zip(group.token_GT, group.length_G, group.finish_G, strict=True)
    ]


def judge_metrics(judge: Judge) -> dict[str, float]:
    """What is logged of the judges of all processes: their workers together, and the worst of everything else."""
    told = exchange.everyone(dict(judge.metrics()))
    return {name: (sum if name == "verifier/workers" else max)(row[name] for row in told) for name in told[0]}


def group_metrics(collected: Collected, reward_names: Sequence[str]) -> dict[str, float]:
    """Metrics of rewards, outcomes and lengths, over the completions that the judge could judge.

    Args:
        collected: A judged batch.
        reward_names: Components whose means are wanted.

    Returns:
        Metrics by name. ``solved_all``, ``solved_some`` and ``solved_none`` are shares of the groups by raw
        correctness, never by a shaped reward; a group without any verdict is in none of them.
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
        "solved_some": float((correct_BG.any(axis=1) & (~correct_BG & valid_BG).any(axis=1)).mean()),
        "solved_none": float((~correct_BG.any(axis=1) & has_judged_B).mean()),
        "completions/mean_length": _mean(lengths),
        "completions/min_length": float(lengths.min(initial=rollout.token_BGT.shape[2])),
        "completions/max_length": float(lengths.max(initial=0)),
        "completions/mean_terminated_length": _mean(ended),
        "completions/clipped_ratio": float((rollout.finish_BG == FinishReason.LENGTH).mean()),
        "verifier/errors": float(len(verdicts) - len(judged)),
        "verifier/error_share": float((~valid_BG).mean()),
        "verifier/timeouts": float(sum(verdict.reason == "timeout" for verdict in verdicts)),
        "verifier/mean_seconds": _mean([verdict.seconds for verdict in verdicts]),
    }
    for name in reward_names:
        parts = [verdict.parts[name] for verdict in judged if name in verdict.parts]
        metrics[f"rewards/{name}/mean"] = _mean(parts)
        metrics[f"rewards/{name}/std"] = float(np.std(parts)) if parts else 0.0
        seconds = [verdict.part_seconds[name] for verdict in verdicts if name in verdict.part_seconds]
        metrics[f"verifier/{name}/mean_seconds"] = _mean(seconds)
        metrics[f"verifier/{name}/max_seconds"] = max(seconds, default=0.0)
        metrics[f"verifier/{name}/errors"] = float(sum(verdict.failed_part == name for verdict in verdicts))
    return metrics


def _mean(values: Sequence[float] | np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else 0.0
