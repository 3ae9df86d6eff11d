"""grpo_jax: reinforcement learning with verifiable rewards, without a critic, in JAX."""

__version__ = "0.1.0"
