"""Estimates against enumeration of every choice of samples, and intervals against what is known of them."""

import collections
import itertools
import math

import numpy as np
import pytest

from grpo_jax import intervals
from grpo_jax.records import Verdict
from grpo_jax.training import scores
from grpo_jax.training.scores import Vote


def verdict(parsed, correct=False, error=False):
    return Verdict(float(correct), correct=correct, parsed=parsed, reason="", error=error)


def majority_by_enumeration(samples, k):
    """``samples``: (answer or None, correct). Every subset, ties shared."""
    outcomes = []
    for subset in itertools.combinations(samples, k):
        counts = collections.Counter(answer for answer, _ in subset if answer is not None)
        top = [answer for answer, count in counts.items() if count == max(counts.values())]
        value = {answer: np.mean([right for other, right in samples if other == answer]) for answer in top}
        outcomes.append(np.mean([value[answer] for answer in top]) if top else 0.0)
    return float(np.mean(outcomes))


SAMPLES = (
    [("a", True)] * 2 + [("b", False)] * 2,
    [("a", True)] * 3 + [("b", False)] * 2 + [("c", False)] * 2 + [(None, False)],
    [("a", True)] + [("b", True)] * 2 + [("c", False)] * 3 + [(None, False)] * 2,
    [("a", True), ("a", False), ("b", False), ("c", True)],
    [(None, False)] * 4,
    [("a", False)] * 4,
    [(str(index), index == 0) for index in range(7)],
)


@pytest.mark.parametrize("samples", SAMPLES)
def test_the_vote_is_that_of_every_subset_with_ties_shared(samples):
    votes = scores.votes_of([verdict(*sample) for sample in samples])
    for k in range(1, len(samples) + 1):
        assert scores.majority_at_k(votes, len(samples), k) == pytest.approx(
            majority_by_enumeration(samples, k), abs=1e-9
        )


def test_many_samples_are_counted_exactly():
    # 40 of 64 right: a vote of 33 or more is nearly sure, and the whole vote is certain to the bit.
    votes = [Vote(40, 1.0), *[Vote(1, 0.0)] * 24]
    assert scores.majority_at_k(votes, 64, 64) == 1.0
    assert 0.9 < scores.majority_at_k(votes, 64, 8) < 1.0


@pytest.mark.parametrize(("right", "judged"), [(0, 5), (2, 5), (5, 5), (1, 8)])
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(right, judged):
    samples = [index < right for index in range(judged)]
    for k in range(1, judged + 1):
        shares = [any(subset) for subset in itertools.combinations(samples, k)]
        assert scores.pass_at_k_of(right, judged, k) == pytest.approx(np.mean(shares), abs=1e-12)


def test_answers_are_one_if_their_text_or_their_number_is():
    given = ["1/2", "0.5", " 0.5 ", "x", "x", None, "X"]
    votes = scores.votes_of([verdict(parsed) for parsed in given])
    assert [vote.votes for vote in votes] == [3, 2, 1]


def test_errors_of_the_judge_are_left_out_and_too_few_samples_take_no_part():
    rows = [
        [verdict("1", correct=True), verdict(None, error=True)],
        [verdict("2"), verdict("3", correct=True)],
    ]
    found = scores.scores(rows, (1, 2), seed=0)
    assert found["pass@1"].value == 0.75
    assert found["pass@1"].problems == 2
    assert (found["pass@2"].value, found["pass@2"].problems) == (1.0, 1)
    assert (found["maj@2"].value, found["maj@2"].problems) == (0.5, 1)
    nothing = scores.scores([[verdict(None, error=True)]], (1,), seed=0)
    assert math.isnan(nothing["pass@1"].value)
    assert nothing["pass@1"].problems == 0


def test_there_is_no_vote_without_parsed_answers():
    rows = [[verdict(None, correct=True), verdict(None)]]
    assert list(scores.scores(rows, (1, 2), seed=0)) == ["pass@1", "pass@2"]


def test_certain_outcomes_have_wilsons_interval_and_others_the_bootstrap_of_the_seed():
    certain = scores.estimate([1.0] * 10, seed=0)
    assert certain[:3] == pytest.approx((1.0, 0.7225, 1.0), abs=5e-5)
    values = [0.25, 0.5, 1.0] * 5
    found = scores.estimate(values, seed=3)
    assert found[1:3] == intervals.bootstrap(values, 3) != intervals.bootstrap(values, 4)


def test_categories_are_scored_apart_and_in_order():
    rows = [[verdict("1", correct=True)], [verdict("2")], [verdict("3", correct=True)]]
    found = scores.by_category(rows, ["b", "a", "b"], (1,), seed=0)
    assert [(name, score["pass@1"].value) for name, score in found.items()] == [("a", 0.0), ("b", 1.0)]
