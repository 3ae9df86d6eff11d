"""Which completions of a group begin alike, and values averaged over those that do.

A group's completions continue one prompt, so up to the first token in which they differ they are one and the same
sequence: a group is a tree, and the set of a token holds the completions that pass through its node.
"""

import numpy as np
from jaxtyping import Bool, Float, Int, Num


def shared_prefix(token_BGT: Int[np.ndarray, "B G T"], length_BG: Int[np.ndarray, "B G"]) -> Int[np.ndarray, "B G T"]:
    """Finds for every token the completions of the group that agree up to and including it.

    A completion that has ended before a position takes no part there.

    Args:
        token_BGT: Sampled ids, >= 0; what stands behind a completion's end is not looked at.
        length_BG: Completion lengths in tokens, the end-of-sequence token counted.

    Returns:
        The set of each token, named after its first completion (0 to G - 1), so that two tokens of a group and a
        position are in one set if and only if the numbers are equal; -1 behind a completion's end.

    >>> shared_prefix(np.array([[[5, 6, 7], [4, 6, 7], [5, 6, 8]]]), np.array([[3, 3, 3]])).tolist()
    [[[0, 0, 0], [1, 1, 1], [0, 0, 2]]]
    """
    B, G, T = token_BGT.shape
    N = B * G
    token_NT, length_N = token_BGT.reshape(N, T).astype(np.int64), length_BG.ravel()
    token_ids = int(token_NT.max(initial=0)) + 1
    set_NT = np.full((N, T), -1, np.int32)
    # Sets are refined token by token. Before the first one, a group is one set, named after its first row of N.
    set_N = np.arange(N) // G * G
    for t in range(int(length_N.max(initial=0))):
        alive = np.flatnonzero(length_N > t)
        node = set_N[alive] * token_ids + token_NT[alive, t]
        _, first, node_index = np.unique(node, return_index=True, return_inverse=True)
        set_N[alive] = alive[first][node_index]
        set_NT[alive, t] = set_N[alive] % G
    return set_NT.reshape(B, G, T)


def prefix_metrics(token_BGT: Int[np.ndarray, "B G T"], length_BG: Int[np.ndarray, "B G"]) -> dict[str, float]:
    """Metrics of how much the completions of a group have in common, judged or not.

    Args:
        token_BGT: Sampled ids, >= 0.
        length_BG: Completion lengths in tokens, the end-of-sequence token counted.

    Returns:
        ``credit/shared_token_share``: share of sampled tokens in a set of at least two completions.
        ``credit/branch_position_mean``: mean length in tokens of the longest prefix that a completion shares with
        another one. ``credit/distinct_completions``: share of a group's completions left without duplicates.
    """
    B, G, _ = token_BGT.shape
    set_BGT = shared_prefix(token_BGT, length_BG)
    shared_BGT = _set_sums(np.ones((B, G)), set_BGT) >= 2
    # Identical completions have one length and end in one set; a completion without tokens ends in none.
    last_BG1 = np.maximum(length_BG - 1, 0)[..., None]
    end_BG = np.take_along_axis(set_BGT, last_BG1, axis=2)[..., 0]
    group_BG = np.broadcast_to(np.arange(B)[:, None], (B, G))
    distinct = np.unique(np.stack([group_BG, length_BG, end_BG]).reshape(3, -1), axis=1).shape[1]
    return {
        "credit/shared_token_share": float(shared_BGT.sum() / max(int(length_BG.sum()), 1)),
        "credit/branch_position_mean": float(shared_BGT.sum(axis=2).mean()),
        "credit/distinct_completions": distinct / (B * G),
    }


def prefix_mean(
    value_BG: Float[np.ndarray, "B G"],
    token_BGT: Int[np.ndarray, "B G T"],
    length_BG: Int[np.ndarray, "B G"],
    valid_BG: Bool[np.ndarray, "B G"],
) -> Float[np.ndarray, "B G T"]:
    """Averages completions' values over the valid ones that agree up to and including each token.

    At every position, and in every set of it, the sum over the valid completions stays what it was. Completions of
    one set also have the same gradient of that token's log-probability. So where tokens weigh the same in every
    completion (``token_mean``, ``constant_length``), ratios are those of tokens and none is clipped, the policy
    gradient does not change. It does under ``sequence_mean``, where a set's shorter completions weigh more.

    Args:
        value_BG: One value per completion: its advantage.
        token_BGT: Sampled ids, >= 0.
        length_BG: Completion lengths in tokens, the end-of-sequence token counted.
        valid_BG: False takes a completion out: its value counts nowhere, whatever it is.

    Returns:
        Values of tokens, in the dtype of ``value_BG``; 0 behind a completion's end and for invalid completions.

    >>> token_BGT = np.array([[[5, 6, 7], [4, 6, 7], [5, 6, 8]]])
    >>> value_BG, valid_BG = np.array([[1.0, 0.0, -1.0]]), np.array([[True, True, True]])
    >>> prefix_mean(value_BG, token_BGT, np.array([[3, 3, 3]]), valid_BG).tolist()
    [[[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, -1.0]]]
    """
    set_BGT = shared_prefix(token_BGT, length_BG)
    total_BGT = _set_sums(np.where(valid_BG, value_BG, 0), set_BGT)
    count_BGT = _set_sums(valid_BG, set_BGT)
    mean_BGT = total_BGT / np.maximum(count_BGT, 1)
    return np.where(valid_BG[..., None], mean_BGT, 0).astype(value_BG.dtype)


def _set_sums(
    amount_BG: Num[np.ndarray, "B G"] | Bool[np.ndarray, "B G"], set_BGT: Int[np.ndarray, "B G T"]
) -> Float[np.ndarray, "B G T"]:
    """Sum of the amounts of each token's set in float64, 0 behind a completion's end."""
    B, G, T = set_BGT.shape
    alive_BGT = set_BGT >= 0
    row_BGT = np.arange(B)[:, None, None] * G + np.maximum(set_BGT, 0)
    cell_BGT = row_BGT * T + np.arange(T)
    amount_BGT = np.where(alive_BGT, amount_BG[..., None], 0.0)
    sums = np.bincount(cell_BGT.ravel(), amount_BGT.ravel(), minlength=B * G * T)
    return np.where(alive_BGT, sums[cell_BGT], 0.0)
