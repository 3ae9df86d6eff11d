"""The table of losses that the contract suites run over: every preset, and combinations that fill in the rest."""

import dataclasses
import functools
import typing

from configs import base
from configs.algorithms import presets
from grpo_jax import config as config_lib
from grpo_jax.algorithms.settings import GRPOLossConfig
from grpo_jax.training import grpo

LONGEST_TOKENS = 6
"""``rollout.max_new_tokens``: completions of 1, 3, 5 and 7 tokens lie on both sides of it."""

TWO_REWARDS = {"rewards": ("numeric", "format"), "weights": (1.0, 0.5)}

# A value of a Literal that no preset takes belongs here; a preset is in the table by itself.
COMBINATIONS: dict[str, dict[str, typing.Any]] = {
    "decoupled_rewards": {
        "advantage": "decoupled_normalized",
        "length_penalty": 0.05,
        "length_budget_tokens": 2,
    },
    "bounds": {"clip_epsilon_high": 0.28, "dual_clip": 1.3, "aggregation": "token_mean", "kl_estimator": "k2"},
    "sample_variance": {"advantage_ddof": 1, "aggregation": "constant_length", "constant_length_tokens": 4},
    "unbiased_kl": {"kl_estimator": "k3_unbiased", "length_penalty": 0.05, "length_budget_tokens": 2},
    "k3_in_reward": {"kl_placement": "reward", "advantage": "batch_normalized", "aggregation": "constant_length"},
    "token_importance": {
        "importance": "token",
        "importance_cap": 1.1,
        "importance_lowest": 0.8,
        "importance_highest": 1.25,
        "old_logprobs": "trainer",
    },
    "sequence_importance": {"importance": "sequence", "ratio": "sequence", "old_logprobs": "trainer"},
    "sequence_cispo": {"policy_loss": "cispo", "cispo_cap": 1.05, "ratio": "sequence", "kl_estimator": "k1"},
    "sapo_rloo": {
        "policy_loss": "sapo",
        "sapo_temperature_negative": 1.5,
        "advantage": "leave_one_out",
        "aggregation": "token_mean",
        "kl_estimator": "k3_unbiased",
    },
}

NAMES = (*presets.PRESETS, *COMBINATIONS)


@functools.cache
def run_config(name: str) -> config_lib.RunConfig:
    """The run whose objective has that name in the table."""
    nested = base.get_config()
    nested.rollout.max_new_tokens = LONGEST_TOKENS
    if name in presets.PRESETS:
        presets.apply(nested, name)
    run = config_lib.from_nested(config_lib.RunConfig, nested.to_dict())
    if name in COMBINATIONS:
        algorithm = dataclasses.replace(run.algorithm, **COMBINATIONS[name])
        run = dataclasses.replace(run, algorithm=algorithm)
    if run.algorithm.advantage == "decoupled_normalized":
        run = dataclasses.replace(run, verifier=dataclasses.replace(run.verifier, **TWO_REWARDS))
    run.validate()
    return run


def loss_config(name: str) -> GRPOLossConfig:
    """Its settings, as training hands them to the objective."""
    return grpo.loss_settings(run_config(name))
