"""A run that takes seconds: every phase of the quickstart, too small to learn."""

from ml_collections import ConfigDict

from configs import quickstart


def get_config() -> ConfigDict:
    """The quickstart, shrunk."""
    config = quickstart.get_config()
    config.steps = 6
    config.model.num_layers = 1
    config.model.d_model = 16
    config.model.head_dim = 4
    config.model.d_ff = 16
    config.data.digits = 2
    config.data.validation_problems = 2
    config.data.test_problems = 2
    config.cold_start.steps = 4
    config.cold_start.checkpoint_every_steps = 2
    config.cold_start.batch_size = 8
    config.rollout.prompts_per_step = 4
    config.rollout.completions_per_prompt = 4
    config.rollout.max_new_tokens = 32
    config.rollout.decode_chunk_tokens = 8
    config.verifier.rewards = ("numeric", "format")
    config.verifier.weights = (1.0, 0.5)
    config.algorithm.micro_batch_completions = 8
    config.algorithm.kl_beta = 0.04
    # Nothing is right so early: lengths make the rewards of a group differ, so that every step updates.
    config.algorithm.length_penalty = 0.1
    config.algorithm.length_budget_tokens = 1
    config.optimizer.learning_rate = 1e-3
    config.evaluation.every_steps = 3
    config.evaluation.test_samples_per_problem = 2
    config.checkpoint.every_steps = 2
    return config
