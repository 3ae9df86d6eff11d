"""Three-digit addition, learned from scratch by a policy of 0.1 M parameters on two CPU cores.

Command: python -m grpo_jax.train --config configs/quickstart.py
With other published settings of the objective: --config configs/quickstart.py:dapo
Hardware: two CPU cores, 2 GB of memory; about 2 minutes.
Expected: held-out pass@1 from about 0.3 after the cold start to 0.95 or more after GRPO, for any seed.

The teacher of the cold start is sloppy: it shows its working in a third of the examples and slips in every twentieth
column; otherwise it writes the bare answer, which the policy cannot work out in its head. From the reward alone (1 for
a right number in one answer block at the very end, 0 otherwise) GRPO finds that thinking pays, and drops the slips.
"""

from ml_collections import ConfigDict

from configs import base
from configs.algorithms import presets


def get_config(preset: str = "") -> ConfigDict:
    """The base configuration with what the quickstart changes.

    Args:
        preset: Published settings of the objective by name, see configs/algorithms/presets.py.

    Returns:
        The configuration.
    """
    config = base.get_config()
    config.steps = 200

    # Rotary positions of a short range: with absolute ones the cold start learns the direct answer instead.
    config.model.rope_theta = 100.0
    config.model.init_std = 0.1
    config.model.embedding_init_std = 0.5

    config.data.task = "addition"
    config.data.prompt_template = "{problem}="
    config.data.max_prompt_tokens = 9

    config.cold_start.steps = 1400  # at 2,000 some seeds begin to work out the bare answer
    config.cold_start.optimizer.learning_rate = 2e-3

    config.rollout.max_new_tokens = 38
    config.algorithm.kl_beta = 0.0  # configs/quickstart_kl.py holds a reference

    config.optimizer.learning_rate = 1e-3
    config.optimizer.schedule = "linear"  # a constant rate peaks and falls back
    config.optimizer.final_fraction = 0.05
    presets.apply(config, preset)
    return config
