"""Confidence intervals of pass rates on held-out problems."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

Z_95 = 1.959964
RESAMPLES = 4000
_CHUNK = 200


class Estimate(NamedTuple):
    """A number with its 95% interval.

    Attributes:
        value: The estimate.
        low: Lower end.
        high: Upper end.
        problems: Problems that it stands on.
    """

    value: float
    low: float
    high: float
    problems: int


def wilson(rate: float, trials: float) -> tuple[float, float]:
    """Wilson's score interval of a share, at 95%.

    Args:
        rate: Observed share in [0, 1].
        trials: Independent trials, > 0; need not be whole.

    Returns:
        Both ends, in [0, 1].

    Source: Wilson 1927; Brown, Cai and DasGupta 2001 on why not the normal interval.

    >>> tuple(round(end, 4) for end in wilson(0.9, 10.0))
    (0.5958, 0.9821)
    """
    middle = (rate + Z_95**2 / (2 * trials)) / (1 + Z_95**2 / trials)
    half = Z_95 * math.sqrt(rate * (1 - rate) / trials + Z_95**2 / (4 * trials**2)) / (1 + Z_95**2 / trials)
    return max(0.0, middle - half), min(1.0, middle + half)


def pass_rate(row: Mapping[str, Any]) -> Estimate | None:
    """The pass rate of an evaluation with Wilson's interval.

    Samples of one problem are no independent trials. Their number is replaced by the one that would have the standard
    error over problems, never less than the problems nor more than the samples.

    Args:
        row: A row of metrics of an evaluation.

    Returns:
        The estimate, or None where nothing could be judged.
    """
    outcomes = row.get("outcomes")
    if outcomes is None:
        rate, problems = row.get("eval/pass_at_1"), float(row.get("eval/problems", 0))
        return None if rate is None or not problems else Estimate(rate, *wilson(rate, problems), int(problems))
    rates = _rates(outcomes)
    judged = ~np.isnan(rates)
    problems, samples = int(judged.sum()), int(np.sum(outcomes["judged"]))
    if not problems:
        return None
    rate = float(rates[judged].mean())
    variance = float(rates[judged].var()) / problems
    trials = min(max(rate * (1 - rate) / variance, problems), samples) if variance > 0 else problems
    return Estimate(rate, *wilson(rate, float(trials)), problems)


def paired_difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Estimate | None:
    """How much more of the same problems are solved, with a percentile interval of the paired bootstrap.

    Problems are drawn with replacement, each with its outcomes before and after, so what makes one problem harder than
    another cancels out.

    Args:
        before: A row of metrics of an evaluation.
        after: Another one.

    Returns:
        After minus before, or None where the two did not have the same problems or did not record each of them.
    """
    first, second = before.get("outcomes"), after.get("outcomes")
    if first is None or second is None or first["problems"] != second["problems"]:
        return None
    difference = _rates(second) - _rates(first)
    difference = difference[~np.isnan(difference)]
    count = len(difference)
    if not count:
        return None
    generator, shares = np.random.default_rng(0), np.full(count, 1 / count)
    means = [generator.multinomial(count, shares, size=_CHUNK) @ difference / count for _ in range(RESAMPLES // _CHUNK)]
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return Estimate(float(difference.mean()), float(low), float(high), count)


def _rates(outcomes: Mapping[str, Any]) -> np.ndarray:
    """Pass rate of each problem; NaN where none of its samples could be judged."""
    right, judged = np.asarray(outcomes["right"], float), np.asarray(outcomes["judged"], float)
    return np.where(judged > 0, right / np.maximum(judged, 1), np.nan)
