"""Intervals: known values, and how often they hold the truth."""

import numpy as np
import pytest

from grpo_jax.intervals import wilson
from grpo_jax.reporting.intervals import paired_difference, pass_rate


def row(right, judged, problems="same"):
    return {"outcomes": {"problems": problems, "right": list(right), "judged": list(judged)}}


@pytest.mark.parametrize(
    ("rate", "trials", "low", "high"),
    # Brown, Cai and DasGupta's formula worked out by hand with z = 1.96.
    [(0.0, 10.0, 0.0, 0.2775), (1.0, 10.0, 0.7225, 1.0), (0.5, 100.0, 0.4038, 0.5962)],
)
def test_wilson(rate, trials, low, high):
    assert wilson(rate, trials) == pytest.approx((low, high), abs=1e-4)


def test_one_sample_a_problem_is_plain_wilson():
    estimate = pass_rate(row([1, 0, 1, 1], [1, 1, 1, 1]))
    assert (estimate.value, estimate.problems) == (0.75, 4)
    assert (estimate.low, estimate.high) == pytest.approx(wilson(0.75, 4.0))


def test_samples_that_agree_within_problems_count_once():
    alike = pass_rate(row([4, 0] * 50, [4] * 100))
    mixed = pass_rate(row([2] * 100, [4] * 100))
    assert (alike.low, alike.high) == pytest.approx(wilson(0.5, 100.0))
    # Without any variance between problems nothing says more than that there were so many problems.
    assert (mixed.low, mixed.high) == pytest.approx(wilson(0.5, 100.0))
    independent = np.random.default_rng(1).binomial(4, 0.5, 1000)
    estimate = pass_rate(row(independent, [4] * 1000))
    width = wilson(0.5, 4000.0)[1] - wilson(0.5, 4000.0)[0]
    assert estimate.high - estimate.low == pytest.approx(width, rel=0.1)


def test_what_could_not_be_judged_is_left_out():
    estimate = pass_rate(row([1, 0, 0], [1, 1, 0]))
    assert (estimate.value, estimate.problems) == (0.5, 2)
    assert pass_rate(row([0], [0])) is None


def test_a_run_that_did_not_record_outcomes_has_its_rate():
    estimate = pass_rate({"eval/pass_at_1": 0.5, "eval/problems": 100.0})
    assert (estimate.low, estimate.high) == pytest.approx(wilson(0.5, 100.0))
    assert pass_rate({"eval/pass_at_1": None, "eval/problems": 100.0}) is None


def test_the_paired_interval_is_that_of_the_differences():
    generator = np.random.default_rng(0)
    before = generator.binomial(1, 0.3, 400)
    after = np.maximum(before, generator.binomial(1, 0.5, 400))
    estimate = paired_difference(row(before, [1] * 400), row(after, [1] * 400))
    difference = after - before
    assert estimate.value == pytest.approx(difference.mean())
    half = 1.96 * difference.std() / 20
    assert (estimate.low, estimate.high) == pytest.approx(
        (difference.mean() - half, difference.mean() + half), abs=0.006
    )


def test_the_paired_interval_holds_the_truth_as_often_as_it_says():
    generator, held = np.random.default_rng(2), 0
    for _ in range(60):
        difficulty = generator.uniform(0, 0.8, 100)
        before, after = generator.binomial(1, difficulty), generator.binomial(1, difficulty + 0.1)
        estimate = paired_difference(row(before, [1] * 100), row(after, [1] * 100))
        held += estimate.low <= 0.1 <= estimate.high
    assert 52 <= held <= 60


def test_the_paired_interval_is_agresti_and_mins_of_matched_shares():
    # 100 problems: 10 lost, 25 gained, worked out by hand from their table with a half more in each of its four cells.
    before = [1] * 30 + [1] * 10 + [0] * 25 + [0] * 35
    after = [1] * 30 + [0] * 10 + [1] * 25 + [0] * 35
    lost, gained, all_of_them = 10.5, 25.5, 102
    middle = (gained - lost) / all_of_them
    half = 1.959964 * ((lost + gained - (gained - lost) ** 2 / all_of_them) ** 0.5) / all_of_them
    estimate = paired_difference(row(before, [1] * 100), row(after, [1] * 100))
    assert estimate.value == pytest.approx(0.15)
    assert (estimate.low, estimate.high) == pytest.approx((middle - half, middle + half), abs=1e-9)


@pytest.mark.parametrize("right", [[1, 0] * 50, [1] * 100, [0] * 100])
def test_no_difference_has_a_width(right):
    estimate = paired_difference(row(right, [1] * 100), row(right, [1] * 100))
    assert estimate.value == 0
    # Three problems in a hundred might have changed: the rule of three.
    assert -0.03 < estimate.low < -0.01
    assert estimate.low == -estimate.high


def test_an_interval_of_few_problems_stays_among_the_differences_there_are():
    estimate = paired_difference(row([0], [1]), row([1], [1]))
    assert (estimate.value, estimate.high) == (1.0, 1.0)
    assert estimate.low > -1


def test_other_problems_are_not_paired():
    assert paired_difference(row([1], [1]), row([1], [1], problems="other")) is None
    assert paired_difference({"eval/pass_at_1": 0.5}, row([1], [1])) is None
    assert paired_difference(row([0], [0]), row([1], [1])) is None
