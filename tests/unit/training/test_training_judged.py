"""What acts on rewards before the objective, worked by hand."""

import pytest

from grpo_jax import config as config_lib
from grpo_jax.training import judged

SCHEDULE = config_lib.AlgorithmConfig(
    length_penalty=0.5,
    length_budget_tokens=100,
    length_schedule_steps=4,
    length_penalty_initial=0.0,
    length_budget_initial_tokens=200,
)


@pytest.mark.parametrize(
    ("step", "wanted"),
    [(1, (0.0, 200)), (2, (0.125, 175)), (3, (0.25, 150)), (5, (0.5, 100)), (6, (0.5, 100)), (1000, (0.5, 100))],
)
def test_penalty_and_budget_move_in_a_straight_line_and_stay(step, wanted):
    assert judged.length_schedule(SCHEDULE, step) == wanted


@pytest.mark.parametrize("step", [1, 2, 1000])
def test_without_a_schedule_the_final_values_hold_from_the_first_step(step):
    constant = config_lib.AlgorithmConfig(length_penalty=1e-5, length_budget_tokens=4096)
    assert judged.length_schedule(constant, step) == (1e-5, 4096)
