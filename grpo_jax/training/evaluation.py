"""Held-out evaluation: pass@1, pass@k and lengths."""

import itertools
import math
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool

from grpo_jax.records import FinishReason, Problem
from grpo_jax.rollout.engine import Engine, SamplingParams
from grpo_jax.training import collect as collect_lib


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


def pass_at_k(correct_BG: Bool[np.ndarray, "B G"], valid_BG: Bool[np.ndarray, "B G"], k: int) -> float:
    """Unbiased estimate of the chance that at least one of k samples is right.

    1 - C(n - c, k) / C(n, k) for c right ones among n judged samples of a problem, averaged over the problems with at
    least k judged samples; NaN if there is none.

    Args:
        correct_BG: Whether each sample is right.
        valid_BG: False for samples that could not be judged.
        k: Number of tries, >= 1.

    Returns:
        The mean estimate.

    Source: Chen et al. 2021 (HumanEval), equation 1.

    >>> pass_at_k(np.array([[True, False]]), np.array([[True, True]]), 1)
    0.5
    """
    estimates = []
    for correct_G, valid_G in zip(correct_BG, valid_BG, strict=True):
        n, right = int(valid_G.sum()), int((correct_G & valid_G).sum())
        if n >= k:
            estimates.append(1 - math.comb(n - right, k) / math.comb(n, k))
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
