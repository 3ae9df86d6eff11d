"""Three-digit addition, learned from scratch by a 0.1 M parameter policy on two CPU cores.

Command: python -m grpo_jax.train --config configs/quickstart.py
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    """The base configuration with what the quickstart changes."""
    config = base.get_config()
    config.steps = 200

    # 0.1 M parameters. Rotary positions matter: with absolute ones the cold start learns the direct answer.
    config.model.init_std = 0.1
    config.model.embedding_init_std = 0.5

    config.data.task = "addition"
    config.data.prompt_template = "{problem}="
    config.data.max_prompt_tokens = 16

    # A sloppy teacher that rarely thinks: GRPO has to find that thinking pays, and to drop the slips.
    config.cold_start.steps = 1000

    config.rollout.max_new_tokens = 38
    config.algorithm.kl_beta = 0.0

    config.optimizer.learning_rate = 1e-3
    config.optimizer.schedule = "linear"
    config.optimizer.final_fraction = 0.05
    return config
