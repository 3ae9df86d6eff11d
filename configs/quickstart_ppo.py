"""The quickstart trained with PPO: a critic in the place of group statistics.

Command: python -m grpo_jax.train --config configs/quickstart_ppo.py
Hardware: two CPU cores, 2 GB of memory (peak 1 GB); about 200 CPU seconds.
Expected: held-out pass@1 from about 0.3 after the cold start to about 0.8 at step 20 and 0.95 or more at step 150;
on the test problems 0.975, 0.971 and 0.961 for seeds 0, 1 and 2 (docs/quickstart_ppo_seeds.json).

It is there to be compared with. In benchmarks/ppo_vs_grpo.py, 40 steps of each from one cold start (seed 0, no KL, 8
completions for each problem), PPO holds 2.0 times GRPO's bytes of state and takes 2.0 times its CPU seconds for each
sampled token, since it updates two models on every completion; held-out pass@1 goes from 0.28 to
0.89, GRPO's to 0.86, which one seed does not tell apart.
"""

from ml_collections import ConfigDict

from configs import base, quickstart


def get_config() -> ConfigDict:
    """The quickstart with another recipe."""
    config = quickstart.get_config()
    config.recipe = "ppo"
    config.steps = 150
    config.algorithm = base.get_config().algorithm  # the objective of GRPO is not read
    config.ppo.kl_beta = 0.0  # as in the quickstart

    config.ppo.critic.learning_rate = 1e-3
    config.ppo.critic.schedule = "linear"
    config.ppo.critic.final_fraction = 0.05
    return config
