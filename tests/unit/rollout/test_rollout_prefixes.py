import time

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from grpo_jax.rollout.prefixes import prefix_mean, prefix_metrics, shared_prefix

B, G, T = 2, 4, 5

# Two ids make shared prefixes, duplicates and completions that continue where another ends.
tokens = st_numpy.arrays(np.int32, (B, G, T), elements=st.integers(0, 1))
lengths = st_numpy.arrays(np.int32, (B, G), elements=st.integers(0, T))
validity = st_numpy.arrays(np.bool_, (B, G))
values = st_numpy.arrays(np.float32, (B, G), elements=st.floats(-8, 8, width=32))

# A branch at token 1; completion 2 ends where 0 and 1 go on; 3 differs from the start. Pads look like tokens.
TREE = np.array([[[5, 6, 7, 8], [5, 6, 9, 8], [5, 6, 7, 8], [4, 6, 7, 8]]])
TREE_LENGTHS = np.array([[4, 4, 2, 3]])
TREE_SETS = [[[0, 0, 0, 0], [0, 0, 1, 1], [0, 0, -1, -1], [3, 3, 3, -1]]]


def agreeing(token_BGT, length_BG, b, g, t):
    """Completions whose first t + 1 sampled tokens are those of completion g, which has that many."""
    prefix = token_BGT[b, g, : t + 1].tolist()
    return [other for other in range(G) if token_BGT[b, other, : length_BG[b, other]].tolist()[: t + 1] == prefix]


def sampled(length_BG):
    return [(b, g, t) for b in range(B) for g in range(G) for t in range(length_BG[b, g])]


def test_sets_of_a_tree_by_hand():
    np.testing.assert_array_equal(shared_prefix(TREE, TREE_LENGTHS), TREE_SETS)


def test_a_set_is_renamed_when_its_first_completion_ends():
    set_BGT = shared_prefix(np.array([[[5, 6, 7], [5, 6, 7], [5, 6, 7]]]), np.array([[1, 3, 2]]))
    np.testing.assert_array_equal(set_BGT, [[[0, -1, -1], [0, 1, 1], [0, 1, -1]]])


def test_groups_do_not_share():
    token_BGT = np.full((3, 2, 2), 2**31 - 1, np.int32)
    np.testing.assert_array_equal(shared_prefix(token_BGT, np.full((3, 2), 2)), np.zeros((3, 2, 2)))


@hypothesis.given(tokens, lengths)
def test_sets_equal_plain_loops(token_BGT, length_BG):
    wanted = np.full((B, G, T), -1)
    for b, g, t in sampled(length_BG):
        wanted[b, g, t] = agreeing(token_BGT, length_BG, b, g, t)[0]
    np.testing.assert_array_equal(shared_prefix(token_BGT, length_BG), wanted)


def test_metrics_of_a_tree_by_hand():
    # Of 13 tokens, 6 are shared: the first two of completions 0, 1 and 2.
    wanted = {
        "credit/shared_token_share": 6 / 13,
        "credit/branch_position_mean": (2 + 2 + 2 + 0) / 4,
        "credit/distinct_completions": 1.0,
    }
    assert prefix_metrics(TREE, TREE_LENGTHS) == pytest.approx(wanted)


def test_metrics_without_a_sampled_token():
    assert prefix_metrics(TREE, np.zeros((1, 4), int)) == {
        "credit/shared_token_share": 0.0,
        "credit/branch_position_mean": 0.0,
        "credit/distinct_completions": 0.25,
    }


def common_tokens(left, right):
    unequal = [place for place, (a, b) in enumerate(zip(left, right, strict=False)) if a != b]
    return unequal[0] if unequal else min(len(left), len(right))


@hypothesis.given(tokens, lengths)
def test_metrics_equal_plain_loops(token_BGT, length_BG):
    shared = [len(agreeing(token_BGT, length_BG, *place)) > 1 for place in sampled(length_BG)]
    branches, distinct = [], []
    for b in range(B):
        group = [tuple(token_BGT[b, g, : length_BG[b, g]]) for g in range(G)]
        branches += [max(common_tokens(group[g], group[h]) for h in range(G) if h != g) for g in range(G)]
        distinct.append(len(set(group)) / G)
    wanted = {
        "credit/shared_token_share": sum(shared) / max(len(shared), 1),
        "credit/branch_position_mean": np.mean(branches),
        "credit/distinct_completions": np.mean(distinct),
    }
    assert prefix_metrics(token_BGT, length_BG) == pytest.approx(wanted)


def test_means_of_a_tree_by_hand():
    value_BG = np.array([[6.0, 3.0, -3.0, 1.0]], np.float32)
    everyone = prefix_mean(value_BG, TREE, TREE_LENGTHS, np.ones((1, 4), bool))
    assert everyone.dtype == np.float32
    np.testing.assert_array_equal(everyone, [[[2, 2, 6, 6], [2, 2, 3, 3], [2, 2, 0, 0], [1, 1, 1, 0]]])
    without_first = prefix_mean(value_BG, TREE, TREE_LENGTHS, np.array([[False, True, True, True]]))
    np.testing.assert_array_equal(without_first, [[[0, 0, 0, 0], [0, 0, 3, 3], [0, 0, 0, 0], [1, 1, 1, 0]]])


@hypothesis.given(values, tokens, lengths, validity)
def test_means_equal_plain_loops(value_BG, token_BGT, length_BG, valid_BG):
    wanted = np.zeros((B, G, T))
    for b, g, t in sampled(length_BG):
        if valid_BG[b, g]:
            members = [other for other in agreeing(token_BGT, length_BG, b, g, t) if valid_BG[b, other]]
            wanted[b, g, t] = np.mean([float(value_BG[b, other]) for other in members])
    mean_BGT = prefix_mean(value_BG, token_BGT, length_BG, valid_BG)
    np.testing.assert_allclose(mean_BGT, wanted, rtol=1e-6, atol=1e-6)


@hypothesis.given(values, tokens, lengths, validity, st_numpy.arrays(np.int32, (B, G, T), elements=st.integers(-9, 9)))
def test_sums_stay_under_any_weight_that_a_set_shares(value_BG, token_BGT, length_BG, valid_BG, weight_BGT):
    # The weight stands for what completions of one set have in common: the gradient of the token's log-probability.
    alive_BGT = (np.arange(T) < length_BG[..., None]) & valid_BG[..., None]
    set_BGT = shared_prefix(token_BGT, length_BG)
    common_BGT = np.take_along_axis(weight_BGT, np.maximum(set_BGT, 0), axis=1)
    mean_BGT = prefix_mean(value_BG, token_BGT, length_BG, valid_BG)
    before_BT = (common_BGT * np.where(alive_BGT, value_BG[..., None], 0)).sum(axis=1)
    after_BT = (common_BGT * mean_BGT).sum(axis=1)
    np.testing.assert_allclose(after_BT, before_BT, rtol=1e-5, atol=1e-4)


@hypothesis.given(values, tokens, lengths, validity)
def test_completions_that_differ_from_the_start_keep_their_values(value_BG, token_BGT, length_BG, valid_BG):
    token_BGT[:, :, 0] = np.arange(G)
    alive_BGT = (np.arange(T) < length_BG[..., None]) & valid_BG[..., None]
    mean_BGT = prefix_mean(value_BG, token_BGT, length_BG, valid_BG)
    np.testing.assert_array_equal(mean_BGT, np.where(alive_BGT, value_BG[..., None], 0))


@hypothesis.given(values, tokens, lengths)
def test_identical_completions_get_the_same_values(value_BG, token_BGT, length_BG):
    token_BGT[:, 3], length_BG[:, 3] = token_BGT[:, 1], length_BG[:, 1]
    mean_BGT = prefix_mean(value_BG, token_BGT, length_BG, np.ones((B, G), bool))
    np.testing.assert_array_equal(mean_BGT[:, 3], mean_BGT[:, 1])


@hypothesis.given(values, tokens, lengths, validity, st.sampled_from([1e30, np.inf, np.nan]))
def test_neither_pads_nor_invalid_values_matter(value_BG, token_BGT, length_BG, valid_BG, fill):
    padded_BGT = np.where(np.arange(T) < length_BG[..., None], token_BGT, -1)
    filled_BG = np.where(valid_BG, value_BG, np.float32(fill))
    np.testing.assert_array_equal(
        prefix_mean(filled_BG, padded_BGT, length_BG, valid_BG), prefix_mean(value_BG, token_BGT, length_BG, valid_BG)
    )


def test_a_large_batch_takes_little_time():
    random = np.random.default_rng(0)
    token_BGT = random.integers(0, 150_000, (32, 16, 1024), np.int32)
    token_BGT[:, :8, :500] = token_BGT[:, :1, :500]
    length_BG = random.integers(1, 1025, (32, 16), np.int32)
    value_BG = random.normal(size=(32, 16)).astype(np.float32)
    started = time.process_time()
    prefix_mean(value_BG, token_BGT, length_BG, np.ones((32, 16), bool))
    assert time.process_time() - started < 1  # seconds of one core: about 0.1 are needed
