"""Ordered pairs of numbers, all of them or a fixed sample."""

import numpy as np

_SAMPLE_SEED = 417_385


def distinct_pairs(operands: int, limit: int) -> np.ndarray:
    """Lists pairs of operands, the same ones for every seed of a run.

    Args:
        operands: Values that an operand can have.
        limit: Pairs wanted at most, >= 1.

    Returns:
        All pairs, or a pseudo-random sample of ``limit`` distinct ones, coded as left * operands + right.
    """
    if operands**2 <= limit:
        return np.arange(operands**2)
    # Raw bits, because numpy keeps those alone equal over its versions.
    bits = np.random.PCG64(_SAMPLE_SEED)
    pairs = np.empty(0, np.int64)
    while len(pairs) < limit:
        left, right = (bits.random_raw(limit) % np.uint64(operands) for _ in range(2))
        drawn = np.concatenate([pairs, (left * np.uint64(operands) + right).astype(np.int64)])
        _, first = np.unique(drawn, return_index=True)
        pairs = drawn[np.sort(first)]
    return pairs[:limit]
