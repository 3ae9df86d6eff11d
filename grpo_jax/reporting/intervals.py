"""Confidence intervals of pass rates on held-out problems."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from grpo_jax.intervals import Estimate, paired_score, wilson


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
    """How much more of the same problems are solved, with an interval of the differences between pairs.

    Each problem is compared with itself, so what makes one problem harder than another cancels out.

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
    if not len(difference):
        return None
    return Estimate(float(difference.mean()), *paired_score(difference), len(difference))


def _rates(outcomes: Mapping[str, Any]) -> np.ndarray:
    """Pass rate of each problem; NaN where none of its samples could be judged."""
    right, judged = np.asarray(outcomes["right"], float), np.asarray(outcomes["judged"], float)
    return np.where(judged > 0, right / np.maximum(judged, 1), np.nan)
