"""Held-out evaluation: pass@1, pass@k and lengths."""

import itertools
import math
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool

from grpo_jax.data.splits import Split
from grpo_jax.records import Completion, FinishReason, Problem, Verdict
from grpo_jax.rollout.engine import Engine, SamplingParams
from grpo_jax.training import collect as collect_lib
from grpo_jax.training import scores


class Evaluation(NamedTuple):
    """Result of one evaluation.

    Attributes:
        metrics: By name, for the metrics file.
        collected: The judged completions.
    """

    metrics: dict[str, float]
    collected: collect_lib.Collected

    @property
    def outcomes(self) -> dict[str, Any]:
        """What each problem did, so that two evaluations of the same problems can be compared in pairs.

        ``problems`` is a checksum of the problems in their order, ``right`` and ``judged`` count samples of each.
        """
        identifiers = "\n".join(problem.identifier for problem in self.collected.problems)
        return {
            "problems": f"{zlib.crc32(identifiers.encode()):08x}",
            "right": self.collected.correct_BG.sum(axis=1).tolist(),
            "judged": self.collected.valid_BG.sum(axis=1).tolist(),
        }


class Graded(NamedTuple):
    """One problem with its judged completions, whoever wrote them.

    Attributes:
        problem: The problem.
        completions: Its completions.
        verdicts: What the judge says of each.
    """

    problem: Problem
    completions: list[Completion]
    verdicts: list[Verdict]


def run_keys(seed: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The PRNG keys of a run's first weights, its rollouts and its evaluations."""
    first, rollout, evaluation = jax.random.split(jax.random.key(seed), 3)
    return first, rollout, evaluation


def evaluation_key(seed: int, split: Split) -> jax.Array:
    """The PRNG key with which a run of this seed evaluates on a split, at every step the same."""
    return jax.random.fold_in(run_keys(seed)[2], ("validation", "test", "train").index(split))


def grade(
    finished: Iterable[tuple[int, list[Completion]]], judge: collect_lib.Judge, problems: Sequence[Problem]
) -> list[Graded]:
    """Has completions judged as they come.

    Args:
        finished: Numbers of problems with their completions, in any order.
        judge: Judges, in the background.
        problems: The problems.

    Returns:
        The judged completions in the order of the problems.
    """
    submitted = [
        (index, completions, [judge.submit(problems[index], completion) for completion in completions])
        for index, completions in finished
    ]
    return [
        Graded(problems[index], completions, [future.result() for future in futures])
        for index, completions, futures in sorted(submitted, key=lambda item: item[0])
    ]


def graded(collected: collect_lib.Collected) -> list[Graded]:
    """The judged completions of a batch, problem by problem."""
    lengths, finishes = collected.rollout.length_BG.tolist(), collected.rollout.finish_BG.tolist()
    return [
        Graded(
            group.problem,
            [
                Completion(text, length, FinishReason(finish))
                for text, length, finish in zip(group.texts, lengths[row], finishes[row], strict=True)
            ],
            group.verdicts,
        )
        for row, group in enumerate(collected.groups)
    ]


def pass_at_k(correct_BG: Bool[np.ndarray, "B G"], valid_BG: Bool[np.ndarray, "B G"], k: int) -> float:
    """Unbiased estimate of the chance that at least one of k samples is right.

    The mean of ``scores.pass_at_k_of`` over the problems with at least k judged samples; NaN if there is none.

    Args:
        correct_BG: Whether each sample is right.
        valid_BG: False for samples that could not be judged.
        k: Number of tries, >= 1.

    Returns:
        The mean estimate.

    >>> pass_at_k(np.array([[True, False]]), np.array([[True, True]]), 1)
    0.5
    """
    estimates = []
    for correct_G, valid_G in zip(correct_BG, valid_BG, strict=True):
        n, right = int(valid_G.sum()), int((correct_G & valid_G).sum())
        if n >= k:
            estimates.append(scores.pass_at_k_of(right, n, k))
    return float(np.mean(estimates)) if estimates else math.nan


def evaluate(
    engine: Engine,
    judge: collect_lib.Judge,
    tokenizer: collect_lib.Tokenizer,
    problems: Sequence[Problem],
    *,
    sampling: SamplingParams,
    key: jax.Array,
) -> Evaluation:
    """Samples each problem ``sampling.completions_per_prompt`` times and reports how many are solved.

    Args:
        engine: Samples from the parameters it holds.
        judge: Judges.
        tokenizer: The policy's tokenizer.
        problems: Held-out problems.
        sampling: How to draw.
        key: PRNG key; the same key compares two policies on the same noise.

    Returns:
        Metrics under ``eval/`` and the completions.
    """
    collected = collect_lib.collect(engine, judge, tokenizer, problems, sampling=sampling, key=key)
    valid_BG, correct_BG = collected.valid_BG, collected.correct_BG
    k = sampling.completions_per_prompt
    rate = pass_at_k(correct_BG, valid_BG, 1)
    judged_B = valid_BG.any(axis=1)
    rate_B = [correct[valid].mean() for correct, valid in zip(correct_BG, valid_BG, strict=True) if valid.any()]
    standard_error = float(np.std(rate_B) / math.sqrt(max(judged_B.sum(), 1)))
    metrics = {
        "eval/pass_at_1": rate,
        "eval/pass_at_1_standard_error": standard_error,
        "eval/mean_length": float(collected.rollout.length_BG.mean()),
        "eval/clipped_ratio": float((collected.rollout.finish_BG == FinishReason.LENGTH).mean()),
        "eval/errors": float((~valid_BG).sum()),
        "eval/problems": float(len(problems)),
    }
    if k > 1:
        metrics |= {"eval/pass_at_k": pass_at_k(correct_BG, valid_BG, k), "eval/k": float(k)}
    return Evaluation(metrics, collected)


def samples(collected: collect_lib.Collected, count: int) -> list[dict[str, Any]]:
    """The first completions of a batch with their verdicts, for people to read.

    Args:
        collected: Judged completions.
        count: How many problems to show, one completion each.

    Returns:
        Rows of JSON values.
    """
    rows = []
    rollout = collected.rollout
    shown = zip(collected.groups, rollout.length_BG, rollout.finish_BG, strict=True)
    for group, length_G, finish_G in itertools.islice(shown, count):
        problem, verdict = group.problem, group.verdicts[0]
        rows.append(
            {
                "problem": problem.prompt,
                "answer": problem.answer,
                "completion": group.texts[0],
                "length_tokens": int(length_G[0]),
                "truncated": bool(finish_G[0] == FinishReason.LENGTH),
                "reward": verdict.reward,
                "correct": verdict.correct,
                "error": verdict.error,
                "parsed": verdict.parsed,
                "reason": verdict.reason,
            }
        )
    return rows
