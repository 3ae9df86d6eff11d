"""Published settings of the objective by name.

A run takes one as the argument of its configuration file: ``--config configs/quickstart.py:dapo``. Each changes the
algorithm only; learning rates, group sizes and lengths of the publications are in the comments, since they belong to
models a thousand times larger. docs/algorithms.md says when to use which.
"""

from collections.abc import Callable

from ml_collections import ConfigDict


def grpo(config: ConfigDict) -> None:
    """DeepSeekMath: the default objective. Published with learning rate 1e-6, G 64, 1,024 tokens."""
    config.algorithm.kl_beta = 0.04


def deepseek_r1(config: ConfigDict) -> None:
    """DeepSeek-R1: a bound that hardly binds and a weak pull. Published with 3e-6, G 16, 32,768 tokens."""
    config.algorithm.clip_epsilon = 10.0
    config.algorithm.kl_beta = 0.001


def dr_grpo(config: ConfigDict) -> None:
    """Dr. GRPO: no division by the spread or by the length. Published with 1e-6, G 8, 3,000 tokens."""
    config.algorithm.advantage = "group_centered"
    config.algorithm.aggregation = "constant_length"
    config.algorithm.kl_beta = 0.0


def dapo(config: ConfigDict) -> None:
    """DAPO: a higher upper bound, all tokens alike, batches of active groups. G 16, 16,384 + 4,096 tokens."""
    config.algorithm.clip_epsilon = 0.2
    config.algorithm.clip_epsilon_high = 0.28
    config.algorithm.aggregation = "token_mean"
    config.algorithm.kl_beta = 0.0
    config.algorithm.dynamic_sampling_max_batches = 3
    longest = config.rollout.max_new_tokens
    config.algorithm.overlong_max_tokens = longest
    config.algorithm.overlong_cache_tokens = max(longest // 5, 1)


def gspo(config: ConfigDict) -> None:
    """GSPO: one ratio per completion, and bounds that fit its small spread."""
    config.algorithm.ratio = "sequence"
    config.algorithm.clip_epsilon = 3e-4
    config.algorithm.clip_epsilon_high = 4e-4
    config.algorithm.kl_beta = 0.0


def cispo(config: ConfigDict) -> None:
    """CISPO: a capped ratio as a weight, so no token loses its gradient."""
    config.algorithm.policy_loss = "cispo"
    config.algorithm.cispo_cap = 5.0
    config.algorithm.aggregation = "token_mean"
    config.algorithm.kl_beta = 0.0


def rloo(config: ConfigDict) -> None:
    """RLOO: compares with the mean of the others; the KL is part of the reward."""
    config.algorithm.advantage = "leave_one_out"
    config.algorithm.kl_beta = 0.05
    config.algorithm.kl_estimator = "k1"
    config.algorithm.kl_placement = "reward"


def reinforce_plus_plus(config: ConfigDict) -> None:
    """REINFORCE++ with a baseline: centred by group, scaled by batch; KL by k2 in the loss."""
    config.algorithm.advantage = "batch_normalized"
    config.algorithm.aggregation = "token_mean"
    config.algorithm.kl_beta = 0.01
    config.algorithm.kl_estimator = "k2"


def sapo(config: ConfigDict) -> None:
    """SAPO: a smooth gate in the place of the clip."""
    config.algorithm.policy_loss = "sapo"
    config.algorithm.kl_beta = 0.0


PRESETS: dict[str, Callable[[ConfigDict], None]] = {
    preset.__name__: preset
    for preset in (grpo, deepseek_r1, dr_grpo, dapo, gspo, cispo, rloo, reinforce_plus_plus, sapo)
}


def apply(config: ConfigDict, name: str) -> None:
    """Puts a preset over a configuration; an empty name leaves it as it is.

    Args:
        config: The configuration to change.
        name: One of ``PRESETS``.

    Raises:
        ValueError: for another name, with the choices.
    """
    if name and name not in PRESETS:
        raise ValueError(f"preset: got {name!r}, wanted one of {', '.join(PRESETS)}")
    if name:
        PRESETS[name](config)
