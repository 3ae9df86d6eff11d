"""Scores of samples: pass@k, maj@k and how sure they are."""

import collections
import fractions
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from grpo_jax.intervals import RESAMPLES, Estimate, bootstrap, wilson
from grpo_jax.records import Verdict
from grpo_jax.verifiers.numeric import parse_number

METHOD = (
    "95% intervals: Wilson's where every problem's estimate is 0 or 1, else the percentile bootstrap over problems "
    f"({RESAMPLES:,} resamples)"
)
"""What the intervals are, for people."""


class Vote(NamedTuple):
    """An answer that some samples of a problem gave.

    Attributes:
        votes: Samples that gave it.
        correct: The share of them that the judge called right: 0 or 1 wherever its verdict depends on the answer alone.
    """

    votes: int
    correct: float


def pass_at_k_of(right: int, judged: int, k: int) -> float:
    """Unbiased estimate of the chance that at least one of k samples is right: 1 - C(n - c, k) / C(n, k).

    Args:
        right: c, the right ones among the judged samples of a problem.
        judged: n, at least k.
        k: Number of tries.

    Returns:
        The estimate.

    Source: Chen et al. 2021 (HumanEval), equation 1.

    >>> pass_at_k_of(1, 2, 1)
    0.5
    """
    return 1 - math.comb(judged - right, k) / math.comb(judged, k)


def votes_of(verdicts: Sequence[Verdict]) -> list[Vote]:
    """Counts the answers of a problem's judged samples.

    Two answers are one if the verifier parsed the same text out of both, or if both are the same exact number. A sample
    without an answer has no vote.

    Args:
        verdicts: Verdicts that are no errors.

    Returns:
        The votes, in the order in which their answers came first.
    """
    given: dict[str | fractions.Fraction, list[bool]] = collections.defaultdict(list)
    for verdict in verdicts:
        if verdict.parsed is not None:
            text = verdict.parsed.strip()
            number = parse_number(text)
            given[text if number is None else number].append(verdict.correct)
    return [Vote(len(correct), sum(correct) / len(correct)) for correct in given.values()]


def majority_at_k(votes: Sequence[Vote], judged: int, k: int) -> float:
    """The expected outcome of a vote among k of a problem's samples, over all ways to choose them.

    Exact: sum_a correct_a * E[1 / tied answers; a has the most votes]. Answers that tie share the outcome, as if one of
    them were drawn; where no sample of the k has an answer, the outcome is wrong.

    Args:
        votes: Votes of all judged samples.
        judged: n, their number with those that have no answer, at least k.
        k: Number of voters.

    Returns:
        The expectation, in [0, 1].

    >>> majority_at_k([Vote(2, 1.0), Vote(2, 0.0)], 4, 4)
    0.5
    """
    silent = judged - sum(vote.votes for vote in votes)
    wins = 0.0
    for index, vote in enumerate(votes):
        if vote.correct == 0:
            continue
        others = [other.votes for other in (*votes[:index], *votes[index + 1 :])]
        for lead in range(1, min(vote.votes, k) + 1):
            ways_T = _ways(others, silent, lead, k - lead)
            shared = float(ways_T @ (1 / np.arange(1, len(ways_T) + 1)))
            wins += vote.correct * math.comb(vote.votes, lead) * shared
    # Rounded, so that a certain outcome is 0 or 1 to the bit.
    return round(wins / math.comb(judged, k), 12)


def _ways(others: Sequence[int], silent: int, lead: int, rest: int) -> Float[np.ndarray, "T"]:
    """Ways to choose ``rest`` samples so that no other answer gets more than ``lead``, by how many get as many."""
    ways = np.zeros((rest // lead + 1, rest + 1))
    chosen = range(min(silent, rest) + 1)
    ways[0, : len(chosen)] = [math.comb(silent, size) for size in chosen]
    for votes in others:
        extended = np.zeros_like(ways)
        for size in range(min(votes, lead, rest) + 1):
            taken = ways[:, : rest + 1 - size] * float(math.comb(votes, size))
            if size < lead:
                extended[:, size:] += taken
            else:
                extended[1:, size:] += taken[:-1]
        ways = extended
    return ways[:, rest]


def estimate(values: Sequence[float], seed: int) -> Estimate:
    """The mean over problems with its interval (see ``METHOD``).

    Args:
        values: Each problem's estimate.
        seed: Decides the resamples.

    Returns:
        The estimate; NaN without a problem.
    """
    value_B = np.asarray(values, float)
    count = len(value_B)
    if count == 0:
        return Estimate(math.nan, math.nan, math.nan, 0)
    mean = float(value_B.mean())
    outright = bool(((value_B == 0) | (value_B == 1)).all())
    low, high = wilson(mean, float(count)) if outright else bootstrap(value_B, seed)
    return Estimate(mean, low, high, count)


def scores(verdicts: Sequence[Sequence[Verdict]], ks: Sequence[int], seed: int) -> dict[str, Estimate]:
    """pass@k and maj@k of problems for every k.

    Args:
        verdicts: Each problem's verdicts. Errors of the judge are left out; a problem with fewer than k other verdicts
            takes no part at k.
        ks: Numbers of tries.
        seed: Decides the resamples.

    Returns:
        Estimates by name. There is no maj@k where no verdict has a parsed answer, as for programs.
    """
    judged = [[verdict for verdict in row if not verdict.error] for row in verdicts]
    votes = [votes_of(row) for row in judged]
    found = {}
    for k in ks:
        enough = [(row, vote) for row, vote in zip(judged, votes, strict=True) if len(row) >= k]
        rated = [pass_at_k_of(sum(verdict.correct for verdict in row), len(row), k) for row, _ in enough]
        found[f"pass@{k}"] = estimate(rated, seed)
        if k > 1 and any(votes):
            found[f"maj@{k}"] = estimate([majority_at_k(vote, len(row), k) for row, vote in enough], seed)
    return found


def by_category(
    verdicts: Sequence[Sequence[Verdict]], categories: Sequence[str], ks: Sequence[int], seed: int
) -> Mapping[str, dict[str, Estimate]]:
    """Scores of each category.

    Args:
        verdicts: Each problem's verdicts.
        categories: Each problem's category.
        ks: Numbers of tries.
        seed: Decides the resamples.

    Returns:
        What ``scores`` says, by category in alphabetical order.
    """
    rows: dict[str, list[Sequence[Verdict]]] = collections.defaultdict(list)
    for row, category in zip(verdicts, categories, strict=True):
        rows[category].append(row)
    return {category: scores(rows[category], ks, seed) for category in sorted(rows)}
