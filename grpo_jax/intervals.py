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
