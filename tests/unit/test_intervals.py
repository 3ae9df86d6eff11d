import math

import numpy as np
import pytest

from grpo_jax import intervals


def test_wilson_is_the_published_interval():
    # Newcombe 1998, table I: 81 of 263, and 0 of 20.
    assert intervals.wilson(81 / 263, 263.0) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert intervals.wilson(0.0, 20.0) == pytest.approx((0.0, 0.1611), abs=5e-5)


def test_the_bootstrap_has_the_width_of_a_normal_interval_and_hangs_on_the_seed_alone():
    values = np.random.default_rng(0).beta(2, 2, 400)
    half = intervals.Z_95 * np.std(values) / math.sqrt(400)
    found = intervals.bootstrap(values, 0)
    assert found == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)
    assert found == intervals.bootstrap(values.tolist(), 0) != intervals.bootstrap(values, 1)
