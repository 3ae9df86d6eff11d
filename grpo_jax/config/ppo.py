"""PPO's section of a run's configuration."""

import dataclasses

from grpo_jax.config.algorithm import AlgorithmConfig
from grpo_jax.config.checks import Section, require
from grpo_jax.config.optimizer import OptimizerConfig

SHARED_WITH_ALGORITHM = frozenset(
    {
        "length_budget_initial_tokens",
        "length_budget_tokens",
        "length_penalty",
        "length_penalty_initial",
        "length_schedule_steps",
        "mask_truncated",
        "max_nonfinite_steps",
        "micro_batch_completions",
        "old_logprobs",
        "overlong_cache_tokens",
        "overlong_max_tokens",
        "passes_per_batch",
        "repetition_ngram_tokens",
        "repetition_threshold",
        "repetition_weight",
        "router_bias_update",
        "router_replay",
    }
)
"""Keys of ``algorithm`` that PPO reads too; the others belong to GRPO's objective."""


@dataclasses.dataclass(frozen=True)
class PPOConfig(Section):
    """PPO with a critic, the baseline; read when ``recipe`` is ``ppo``."""

    gamma: float = 1.0
    gae_lambda: float = 1.0
    clip_epsilon: float = 0.2
    value_clip: float | None = 0.2
    kl_beta: float = 0.04
    critic: OptimizerConfig = dataclasses.field(default_factory=lambda: OptimizerConfig(learning_rate=1e-5))

    def validate(self, path: str) -> None:
        """Refuses values outside PPO's domain."""
        self._share(path, "gamma", "gae_lambda")
        self._positive(path, "clip_epsilon")
        self._at_least(path, 0, "kl_beta")
        require(
            self.value_clip is None or self.value_clip > 0,
            f"{path}.value_clip",
            self.value_clip,
            "None (off) or a positive number",
        )
        self.critic.validate(f"{path}.critic")


def refuse_unread(recipe: str, algorithm: AlgorithmConfig, ppo: PPOConfig) -> None:
    """Refuses settings of the objective that is not the run's.

    Args:
        recipe: The run's.
        algorithm: GRPO's objective, and what both share.
        ppo: PPO's.

    Raises:
        ConfigError: for a setting that differs from its default and would not be read.
    """
    if recipe == "grpo":
        path, section, shared, remedy = "ppo", ppo, frozenset(), "Set config.recipe to 'ppo'."
    else:
        path, section, shared = "algorithm", algorithm, SHARED_WITH_ALGORITHM
        remedy = "PPO's own settings are in config.ppo."
    default = type(section)()
    for field in dataclasses.fields(section):
        got, wanted = getattr(section, field.name), getattr(default, field.name)
        require(
            field.name in shared or got == wanted,
            f"{path}.{field.name}",
            got,
            f"{wanted!r}, its default: it is not read when recipe is {recipe!r}",
            remedy,
        )
