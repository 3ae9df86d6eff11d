"""How much a completion repeats itself, told from token ids and never from text.

The end-of-sequence token needs no special case: it stands nowhere but at the end, so it is part of no loop and the
n-gram that it ends is always new.
"""

import numpy as np
from jaxtyping import Float, Int


def repeated_ngram_share(token_T: Int[np.ndarray, "T"], length: int, n: int) -> float:
    """Share of a completion's n-grams that occurred before in it.

    The ``length - n + 1`` n-grams start at every token and overlap, so the share stays below 1. It is 0 for fewer
    than n + 1 tokens, where no n-gram has an earlier one.

    Args:
        token_T: Sampled ids; what stands behind ``length`` is not looked at.
        length: Length in tokens, the end-of-sequence token counted.
        n: Tokens in an n-gram, >= 1.

    Returns:
        The share, in [0, 1).

    >>> repeated_ngram_share(np.array([5, 6, 5, 6, 5, 0]), 5, n=2)
    0.5
    """
    assert n >= 1, f"an n-gram has at least one token, got n={n}"
    if length <= n:
        return 0.0
    tokens = token_T[:length].tolist()
    ngrams = list(zip(*(tokens[start : length - n + 1 + start] for start in range(n)), strict=True))
    return (len(ngrams) - len(set(ngrams))) / len(ngrams)


def longest_loop(token_T: Int[np.ndarray, "T"], length: int, max_period: int) -> int:
    """Length in tokens of the longest stretch that says one block at least twice in a row.

    A stretch loops with period p if each of its tokens, the first p apart, equals the token p places before it. It
    counts from 2 p tokens on, and its last block may be cut off: ``a b a b a`` is a loop of 5 tokens with period 2.

    Args:
        token_T: Sampled ids; what stands behind ``length`` is not looked at.
        length: Length in tokens, the end-of-sequence token counted.
        max_period: Longest block to look for, in tokens, >= 1.

    Returns:
        The length over all periods up to ``max_period``; 0 where there is no loop, otherwise 2 or more.

    >>> longest_loop(np.array([9, 5, 6, 5, 6, 5, 7]), 7, max_period=4)
    5
    """
    assert max_period >= 1, f"a block has at least one token, got max_period={max_period}"
    token = token_T[:length]
    longest = 0
    for period in range(1, min(max_period, length // 2) + 1):
        broken = np.flatnonzero(token[period:] != token[:-period])
        edges = np.concatenate(([-1], broken, [length - period]))
        agreeing = int((edges[1:] - edges[:-1]).max()) - 1
        if agreeing >= period:
            longest = max(longest, period + agreeing)
    return longest


def repetition_metrics(
    token_BGT: Int[np.ndarray, "B G T"], length_BG: Int[np.ndarray, "B G"], *, n: int, max_period: int
) -> dict[str, float]:
    """Metrics of repetition over all completions, judged or not.

    Args:
        token_BGT: Sampled ids.
        length_BG: Completion lengths in tokens, the end-of-sequence token counted.
        n: Tokens in an n-gram, see ``repeated_ngram_share``.
        max_period: Longest block in tokens, see ``longest_loop``.

    Returns:
        Metrics by name; loops are in tokens.
    """
    T = token_BGT.shape[2]
    rows = zip(token_BGT.reshape(-1, T), length_BG.ravel().tolist(), strict=True)
    loops = [longest_loop(token_T, length, max_period) for token_T, length in rows]
    return {
        "completions/repeated_ngram_share": float(_shares_BG(token_BGT, length_BG, n).mean()),
        "completions/longest_loop_mean": float(np.mean(loops)),
        "completions/longest_loop_max": float(max(loops)),
    }


def repetition_penalty(
    token_BGT: Int[np.ndarray, "B G T"],
    length_BG: Int[np.ndarray, "B G"],
    *,
    n: int,
    threshold: float,
    weight: float,
) -> Float[np.ndarray, "B G"]:
    """Reward to take off each completion for repeating n-grams.

    penalty = weight * max(0, share - threshold) / (1 - threshold).

    Args:
        token_BGT: Sampled ids.
        length_BG: Completion lengths in tokens, the end-of-sequence token counted.
        n: Tokens in an n-gram, see ``repeated_ngram_share``.
        threshold: Share up to which nothing is taken off, in [0, 1).
        weight: Reward that a completion of nothing but repetition would lose, >= 0.

    Returns:
        Penalties in [0, weight], float32: subtract them.
    """
    assert 0 <= threshold < 1, f"no share exceeds a threshold outside [0, 1), got {threshold}"
    assert weight >= 0, f"a negative weight would reward repetition, got {weight}"
    excess_BG = np.maximum(_shares_BG(token_BGT, length_BG, n) - threshold, 0)
    return (weight * excess_BG / (1 - threshold)).astype(np.float32)


def _shares_BG(
    token_BGT: Int[np.ndarray, "B G T"], length_BG: Int[np.ndarray, "B G"], n: int
) -> Float[np.ndarray, "B G"]:
    rows = zip(token_BGT.reshape(-1, token_BGT.shape[2]), length_BG.ravel().tolist(), strict=True)
    return np.array([repeated_ngram_share(token_T, length, n) for token_T, length in rows]).reshape(length_BG.shape)
