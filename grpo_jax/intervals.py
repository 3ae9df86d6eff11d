"""Confidence intervals of means over problems (no JAX)."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Z_95 = 1.959964
"""Standard deviations of a normal distribution that hold 95% of it, to each side."""

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


def paired_score(differences: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Agresti and Min's interval of a mean of paired differences, at 95%: two pairs more, one of which differs.

    That one counts half for each direction, so an interval has a width where no pair differs. For differences of -1, 0
    and 1 it is theirs of two matched shares; others, of pass rates over several samples, count by their squares.

    Args:
        differences: One in [-1, 1] for each pair, at least one.

    Returns:
        Both ends, in [-1, 1].

    Source: Agresti and Min 2005.

    >>> tuple(round(end, 4) for end in paired_score([0.0] * 98))
    (-0.0196, 0.0196)
    """
    difference, pairs = np.asarray(differences, float), len(differences) + 2
    middle = difference.sum() / pairs
    variance = (np.square(difference).sum() + 1) / pairs - middle**2
    half = Z_95 * math.sqrt(variance / pairs)
    return max(-1.0, float(middle - half)), min(1.0, float(middle + half))


def bootstrap(values: Sequence[float] | np.ndarray, seed: int = 0) -> tuple[float, float]:
    """Percentile interval of a mean, at 95%: problems are drawn with replacement ``RESAMPLES`` times.

    Args:
        values: One for each problem, at least one.
        seed: Decides the draws.

    Returns:
        Both ends.
    """
    count = len(values)
    generator, shares = np.random.default_rng(seed), np.full(count, 1 / count)
    means = [generator.multinomial(count, shares, size=_CHUNK) @ values / count for _ in range(RESAMPLES // _CHUNK)]
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return float(low), float(high)
