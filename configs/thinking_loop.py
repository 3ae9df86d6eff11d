"""A task where longer thinking pays: re-checked two-digit addition, which grows into repetition without length control.

Command: python -m grpo_jax.train --config configs/thinking_loop.py
With length control: --config configs/thinking_loop.py:regularised
Hardware: two CPU cores, 2 GB of memory (peak 1.3 GB); about 10 minutes of one busy core.
Expected (seed 0; docs/algorithms.md has the figure): completions grow from 46 to 92 tokens and test pass@1 from 0.33 to
0.83; with length control they end at 53 tokens and 0.78. No tolerance is known: with 140 steps
of a slightly other schedule the same seed ended within 1 token and 0.02 of this, other seeds were not run to the end.
"""

from ml_collections import ConfigDict

from configs import quickstart


def get_config(variant: str = "") -> ConfigDict:
    """The quickstart with a teacher that re-checks.

    Args:
        variant: ``regularised`` for the scheduled length penalty, empty for none.

    Returns:
        The configuration.

    Raises:
        ValueError: for another variant.
    """
    if variant not in ("", "regularised"):
        raise ValueError(f"configs/thinking_loop.py:{variant}: wanted nothing or 'regularised' after the colon")
    config = quickstart.get_config()
    config.steps = 120

    config.data.digits = 2
    config.data.max_prompt_tokens = 7

    # More often than not the first pass slips, so the policy's most likely one is wrong and going over it again pays:
    # the teacher is right in 0.06, 0.30, 0.53, 0.70, 0.81 and 0.89 of its examples of one to six passes.
    config.cold_start.steps = 800
    config.cold_start.thinking_share = 1.0
    config.cold_start.slip_probability = 0.75
    config.cold_start.max_passes = 6
    config.cold_start.recheck_probability = 0.6
    config.cold_start.recheck_slip_factor = 0.6
    config.cold_start.optimizer.learning_rate = 4e-3

    config.rollout.max_new_tokens = 134  # seven passes
    config.optimizer.learning_rate = 4e-4  # at 1e-3 the slips are gone before re-checking can grow

    # A mean over each completion's tokens would give those of short right answers more weight.
    config.algorithm.aggregation = "token_mean"

    if variant == "regularised":
        config.algorithm.length_penalty = 0.003  # a pass of 18 tokens costs 0.05
        config.algorithm.length_penalty_initial = 0.003
        config.algorithm.length_budget_tokens = 60  # three passes
        config.algorithm.length_budget_initial_tokens = 78  # four
        config.algorithm.length_schedule_steps = 20
    return config
