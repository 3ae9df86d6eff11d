"""Expressions that agree near zero and differ elsewhere, and the points that tell."""

import pytest

from grpo_jax.config.mathematics import MathematicsConfig
from grpo_jax.verifiers.mathematics.landmarks import differ_at_landmark, landmarks
from grpo_jax.verifiers.mathematics.limits import Budget, TooLargeError
from grpo_jax.verifiers.mathematics.parser import parse_whole
from grpo_jax.verifiers.mathematics.tokens import tokenize
from tests.unit.verifiers.mathematics_tables import assert_judged, pairs

OPTIONS = MathematicsConfig()

EQUAL = {
    "cases": {
        r"\sqrt{(x-3)^2}": ["|x-3|", "|3-x|"],
        r"\sqrt[3]{x^3+3x^2+3x+1}": ["x+1"],
        "|x-7|=2": ["|7-x|=2", "2|x-7|=4"],
        r"\max(x,y)": [r"\frac{x+y+|x-y|}{2}"],
    },
    "integers": {
        r"\binom{n}{2}": [r"\frac{n(n-1)}{2}"],
        r"\sum_{i=1}^n\sum_{j=1}^n ij": [r"\frac{n^2(n+1)^2}{4}"],
        "(n+1)!": ["(n+1)n!"],
    },
}
DIFFERENT = {
    "cases": {
        "|x+5|": ["x+5", "-x-5"],
        r"\sqrt{x^2+10x+25}": ["x+5"],
        r"\sqrt{(x-5)^2}": ["5-x"],
        r"((x-5)^2)^{\frac{1}{2}}": ["5-x"],
        r"|x-1000000|": ["1000000-x"],
        r"\max(x,5)": ["5"],
        r"\max(0,1-|x-10|)": ["0"],
        r"\lfloor x/10\rfloor": [r"\lfloor x/20\rfloor"],
        r"\sqrt{(x+y-10)^2}": ["10-x-y"],
        r"e^x+\sqrt{(x-9)^2}": ["e^x+9-x"],
    },
    "relations": {
        "y=|x-6|": ["y=6-x"],
        "|x-7|=2": ["x=5"],
        "x=5": ["|x-10|=5"],
        "|x-10|<5": ["x>5"],
    },
    "integers": {
        "n": [r"n \bmod 24", r"n\bmod 500"],
        r"\binom{n}{50}": ["0"],
        r"\gcd(n,29)": ["1"],
    },
}


@pytest.mark.parametrize(("gold", "answer"), pairs(EQUAL))
def test_what_agrees_everywhere_is_equal(gold, answer):
    assert_judged(gold, answer, OPTIONS, equal=True)


@pytest.mark.parametrize(("gold", "answer"), pairs(DIFFERENT))
def test_what_differs_far_away_is_not(gold, answer):
    assert_judged(gold, answer, OPTIONS, equal=False)


def tree(text):
    return parse_whole(tokenize(text))


def test_landmarks_surround_the_constants():
    values = [point["x"] for point in landmarks(tree("|x-50|"), tree("x"), {"x": False}, positive=False)]
    assert 0 < len(values) <= 64
    assert any(49 < value < 50 for value in values)
    assert any(50 < value < 51 for value in values)
    assert min(values) < -(10**6)
    assert max(values) > 10**6
    assert min(map(abs, values)) < 1e-6


def test_positive_landmarks_are_positive():
    found = list(landmarks(tree("|x-50|"), tree("y"), {"x": False, "y": False}, positive=True))
    assert found
    assert all(value > 0 for point in found for value in point.values())


def test_without_cases_there_are_none():
    assert not list(landmarks(tree("x^2+1"), tree(r"\sin x"), {"x": False}, positive=False))


def test_work_at_landmarks_is_charged():
    def differ(point, part):
        part.charge(point["work"])
        return False

    budget = Budget(1_000)
    assert not differ_at_landmark(iter([{"work": 400}, {"work": 400}]), differ, budget)
    assert budget.left == 200
    with pytest.raises(TooLargeError, match="too much to evaluate"):
        differ_at_landmark(iter([{"work": 400}]), differ, budget)
