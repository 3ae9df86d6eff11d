"""Learning-rate schedules at their corners."""

import dataclasses

import numpy as np
import pytest

from grpo_jax.config import OptimizerConfig
from grpo_jax.training import recipe

CONFIG = OptimizerConfig(learning_rate=0.8, warmup_steps=4, final_fraction=0.25)
TOTAL = 12


def learning_rates(**changes):
    schedule = recipe.learning_rate_schedule(dataclasses.replace(CONFIG, **changes), TOTAL)
    return np.array([schedule(update) for update in range(TOTAL + 1)])


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_the_warm_up_rises_in_equal_steps_and_its_last_update_has_the_peak(schedule):
    np.testing.assert_allclose(learning_rates(schedule=schedule)[:5], [0.2, 0.4, 0.6, 0.8, 0.8], rtol=1e-6)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("warmup_steps", [0, 1])
def test_without_a_warm_up_the_first_update_has_the_peak(schedule, warmup_steps):
    assert learning_rates(schedule=schedule, warmup_steps=warmup_steps)[0] == np.float32(0.8)


def test_constant_stays():
    np.testing.assert_array_equal(learning_rates(schedule="constant")[3:], np.float32(0.8))


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_decay_passes_the_middle_half_way_and_ends_at_its_final_fraction(schedule):
    rates = learning_rates(schedule=schedule)
    np.testing.assert_allclose([rates[4], rates[8], rates[12]], [0.8, 0.5, 0.2], rtol=1e-5)
    assert np.all(np.diff(rates[4:]) < 0)


def test_the_last_update_still_moves_when_the_decay_ends_at_zero():
    rates = learning_rates(schedule="linear", final_fraction=0.0)
    np.testing.assert_allclose([rates[TOTAL - 1], rates[TOTAL]], [0.1, 0], atol=1e-6)
