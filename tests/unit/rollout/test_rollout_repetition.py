import time

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from grpo_jax.rollout.repetition import longest_loop, repeated_ngram_share, repetition_metrics, repetition_penalty

B, G, T = 2, 2, 12
PADS = [7] * 5

tokens = st_numpy.arrays(np.int32, (B, G, T), elements=st.integers(0, 2))
lengths = st_numpy.arrays(np.int32, (B, G), elements=st.integers(0, T))
sizes = st.integers(1, 5)


def share_by_loops(token_T, length, n):
    starts = range(length - n + 1)
    ngrams = [tuple(token_T[start : start + n]) for start in starts]
    return sum(ngrams[start] in ngrams[:start] for start in starts) / max(len(ngrams), 1)


def loop_by_loops(token_T, length, max_period):
    """Tries every stretch and every period, and compares whole blocks."""
    longest = 0
    for start in range(length):
        for end in range(start + 1, length + 1):
            stretch = token_T[start:end].tolist()
            for period in range(1, max_period + 1):
                blocks = (stretch[:period] * len(stretch))[: len(stretch)]
                if len(stretch) >= 2 * period and stretch == blocks:
                    longest = max(longest, len(stretch))
    return longest


@pytest.mark.parametrize(
    ("completion", "n", "wanted"),
    [
        ([1, 2, 3, 4], 1, 0),
        ([1, 2, 1, 3], 1, 1 / 4),
        ([1, 2, 3, 1, 2, 4, 1, 2], 2, 2 / 7),
        ([1, 2, 3, 1, 2, 4, 1, 2], 3, 0),
        ([5, 5, 5, 5, 5, 5], 3, 3 / 4),
        ([5, 5, 5, 5, 0], 2, 2 / 4),  # the end-of-sequence token 0 ends one new n-gram
        ([5, 5, 5], 3, 0),
        ([5, 5], 3, 0),
        ([], 1, 0),
    ],
)
def test_share_of_repeated_ngrams(completion, n, wanted):
    assert repeated_ngram_share(np.array(completion + PADS), len(completion), n) == wanted


@pytest.mark.parametrize(
    ("completion", "max_period", "wanted"),
    [
        ([1, 2, 3, 4], 4, 0),
        ([1, 2, 3, 1, 2], 3, 0),  # a block and a half
        ([1, 2, 3, 1, 2, 3], 3, 6),
        ([1, 2, 3, 1, 2, 3], 2, 0),  # the block is longer than asked for
        ([9, 1, 2, 1, 2, 1, 9], 4, 5),  # the last block is cut off
        ([4, 4, 8, 1, 2, 3, 1, 2, 3, 8], 3, 6),
        ([1, 2, 1, 2, 8, 6, 6, 6, 6, 6], 3, 5),
        ([6, 6], 9, 2),
        ([6, 6, 6, 0], 9, 3),  # the end-of-sequence token 0 is no part
        ([6], 1, 0),
        ([], 1, 0),
    ],
)
def test_longest_loop(completion, max_period, wanted):
    assert longest_loop(np.array(completion + PADS), len(completion), max_period) == wanted


@hypothesis.given(tokens, lengths, sizes)
def test_both_measures_equal_plain_loops(token_BGT, length_BG, size):
    for token_T, length in zip(token_BGT.reshape(-1, T), length_BG.ravel().tolist(), strict=True):
        assert repeated_ngram_share(token_T, length, size) == share_by_loops(token_T, length, size)
        assert longest_loop(token_T, length, size) == loop_by_loops(token_T, length, size)


@hypothesis.given(tokens, lengths, sizes, st.permutations([100, 5, 70_000]), st.integers(0, 2))
def test_only_the_equality_of_sampled_tokens_matters(token_BGT, length_BG, size, names, fill):
    sampled_BGT = np.arange(T) < length_BG[..., None]
    renamed_BGT = np.where(sampled_BGT, np.array(names)[token_BGT], names[fill])
    wanted = repetition_metrics(token_BGT, length_BG, n=size, max_period=size)
    assert repetition_metrics(renamed_BGT, length_BG, n=size, max_period=size) == wanted


BATCH = np.array([[[1, 2, 1, 2, 1, 2, 1], [3, 3, 4, 5, 6, 7, 8]], [[1, 1, 1, 1, 1, 1, 1], [1, 2, 3, 4, 5, 6, 7]]])
BATCH_LENGTHS = np.array([[7, 7], [5, 0]])
# Shares of repeated bigrams: 4/6, 0, 3/4 and 0. Longest loops: 7, 2, 5 and 0 tokens.


def test_metrics_of_a_batch():
    metrics = repetition_metrics(BATCH, BATCH_LENGTHS, n=2, max_period=3)
    assert metrics == pytest.approx(
        {
            "completions/repeated_ngram_share": (4 / 6 + 3 / 4) / 4,
            "completions/longest_loop_mean": 14 / 4,
            "completions/longest_loop_max": 7,
        }
    )


def test_the_penalty_grows_from_the_threshold_on():
    penalty_BG = repetition_penalty(BATCH, BATCH_LENGTHS, n=2, threshold=0.5, weight=3.0)
    assert penalty_BG.dtype == np.float32
    np.testing.assert_allclose(penalty_BG, [[3 * (4 / 6 - 0.5) / 0.5, 0], [1.5, 0]], rtol=1e-6)
    exactly_at_threshold = repetition_penalty(BATCH, BATCH_LENGTHS, n=2, threshold=0.75, weight=3.0)
    np.testing.assert_array_equal(exactly_at_threshold, np.zeros((2, 2)))


@hypothesis.given(tokens, lengths, sizes, st.floats(0, 0.99), st.floats(0, 10))
def test_the_penalty_stays_between_nothing_and_its_weight(token_BGT, length_BG, size, threshold, weight):
    penalty_BG = repetition_penalty(token_BGT, length_BG, n=size, threshold=threshold, weight=weight)
    assert (penalty_BG >= 0).all()
    assert (penalty_BG <= np.float32(weight)).all()


def test_impossible_settings_are_refused():
    with pytest.raises(AssertionError, match="at least one token, got n=0"):
        repeated_ngram_share(BATCH[0, 0], 7, 0)
    with pytest.raises(AssertionError, match="at least one token, got max_period=0"):
        longest_loop(BATCH[0, 0], 7, 0)
    for threshold in (-0.1, 1.0):
        with pytest.raises(AssertionError, match=rf"outside \[0, 1\), got {threshold}"):
            repetition_penalty(BATCH, BATCH_LENGTHS, n=2, threshold=threshold, weight=1.0)
    with pytest.raises(AssertionError, match="would reward repetition, got -1"):
        repetition_penalty(BATCH, BATCH_LENGTHS, n=2, threshold=0.5, weight=-1.0)


def test_a_large_batch_takes_little_time():
    token_BGT = np.random.default_rng(0).integers(0, 3, (16, 16, 1024), np.int32)
    length_BG = np.full((16, 16), 1024, np.int32)
    started = time.process_time()
    repetition_metrics(token_BGT, length_BG, n=8, max_period=64)
    repetition_penalty(token_BGT, length_BG, n=8, threshold=0.2, weight=1.0)
    assert time.process_time() - started < 1  # seconds of one core: about 0.2 are needed
