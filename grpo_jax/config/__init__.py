"""The configuration of a run as frozen dataclasses: every key, its default and its checks.

The defaults live here and nowhere else. ``configs/base.py`` lists the same keys with comments for people to copy
from, and a test keeps the two equal. A key that would be ignored is an error.
"""

import dataclasses
from typing import Literal

from grpo_jax.config.algorithm import AlgorithmConfig
from grpo_jax.config.checks import LARGEST, ConfigError, Section, require
from grpo_jax.config.data import DataConfig
from grpo_jax.config.health import HealthConfig
from grpo_jax.config.model import LoRAConfig, ModelConfig
from grpo_jax.config.optimizer import OptimizerConfig, ReferenceConfig
from grpo_jax.config.ppo import PPOConfig, refuse_unread
from grpo_jax.config.sections import (
    CheckpointConfig,
    ColdStartConfig,
    CurriculumConfig,
    EvaluationConfig,
    MeshConfig,
    RolloutConfig,
    WatchdogConfig,
)
from grpo_jax.config.values import dotted, from_nested, require_key, to_nested
from grpo_jax.config.verifier import RewardName, VerifierConfig

__all__ = [
    "AlgorithmConfig",
    "CheckpointConfig",
    "ColdStartConfig",
    "ConfigError",
    "CurriculumConfig",
    "DataConfig",
    "EvaluationConfig",
    "HealthConfig",
    "LoRAConfig",
    "MeshConfig",
    "ModelConfig",
    "OptimizerConfig",
    "PPOConfig",
    "ReferenceConfig",
    "RewardName",
    "RolloutConfig",
    "RunConfig",
    "VerifierConfig",
    "WatchdogConfig",
    "dotted",
    "from_nested",
    "require_key",
    "to_nested",
]


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run."""

    seed: int = 0
    steps: int = 200
    recipe: Literal["grpo", "ppo"] = "grpo"
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    curriculum: CurriculumConfig = dataclasses.field(default_factory=CurriculumConfig)
    verifier: VerifierConfig = dataclasses.field(default_factory=VerifierConfig)
    rollout: RolloutConfig = dataclasses.field(default_factory=RolloutConfig)
    algorithm: AlgorithmConfig = dataclasses.field(default_factory=AlgorithmConfig)
    ppo: PPOConfig = dataclasses.field(default_factory=PPOConfig)
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    reference: ReferenceConfig = dataclasses.field(default_factory=ReferenceConfig)
    cold_start: ColdStartConfig = dataclasses.field(default_factory=ColdStartConfig)
    evaluation: EvaluationConfig = dataclasses.field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = dataclasses.field(default_factory=CheckpointConfig)
    health: HealthConfig = dataclasses.field(default_factory=HealthConfig)
    trackers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    mesh: MeshConfig = dataclasses.field(default_factory=MeshConfig)
    watchdog: WatchdogConfig = dataclasses.field(default_factory=WatchdogConfig)

    def validate(self) -> None:
        """Checks every section and what must hold between them.

        Raises:
            ConfigError: naming key, value, what was wanted and the remedy.
        """
        require(0 <= self.seed < 2**32, "seed", self.seed, "0 or more, and less than 2^32")
        require(0 <= self.steps < LARGEST, "steps", self.steps, "0 or more, and less than 2^31")
        require(len(set(self.trackers)) == len(self.trackers), "trackers", self.trackers, "each name once")
        for field in dataclasses.fields(self):
            section = getattr(self, field.name)
            if isinstance(section, Section):
                section.validate(field.name)
        refuse_unread(self.recipe, self.algorithm, self.ppo)
        self._validate_held()
        completions = self.rollout.prompts_per_step * self.rollout.completions_per_prompt
        require(
            completions % self.algorithm.micro_batch_completions == 0,
            "algorithm.micro_batch_completions",
            self.algorithm.micro_batch_completions,
            f"a divisor of the {completions} completions of a step (prompts_per_step * completions_per_prompt)",
            f"The nearest below is {self._largest_divisor(completions, self.algorithm.micro_batch_completions)}.",
        )
        for stop in self.rollout.stop:
            wanted = "texts that no answer block holds: verifiers see what stands before a stop"
            require("</answer>" not in stop, "rollout.stop", stop, wanted, "An answer would never be closed.")
        constant = self.algorithm.constant_length_tokens
        require(
            constant <= self.rollout.max_new_tokens or constant == 0,
            "algorithm.constant_length_tokens",
            constant,
            f"0 (rollout.max_new_tokens) or at most {self.rollout.max_new_tokens}",
        )
        for name in ("samples_per_problem", "test_samples_per_problem"):
            samples = getattr(self.evaluation, name)
            wanted = f"at most the {completions} completions of a training step, whose shape evaluation shares"
            require(samples <= completions, f"evaluation.{name}", samples, wanted)
        passes, wanted = (
            self.cold_start.max_passes,
            "1, since only the examples of data.task 'addition' re-check",
        )
        require(passes == 1 or self.data.task == "addition", "cold_start.max_passes", passes, wanted)
        task, rewards = self.data.task, self.verifier.rewards
        if task == "countdown":
            wanted = "'countdown' first, since data.task is 'countdown'"
            require(rewards[0] == "countdown", "verifier.rewards", rewards, wanted, "The target alone is no solution.")
        self._validate_own_judges()
        if task in ("addition", "maximum"):
            wanted = f"no 'countdown', since data.task is {task!r}"
            require("countdown" not in rewards, "verifier.rewards", rewards, wanted, "It needs a problem's numbers.")

    def _validate_own_judges(self) -> None:
        """Problems that come with a judge are judged by it, and it judges no others."""
        task, rewards = self.data.task, self.verifier.rewards
        for name in ("reasoning_gym", "environment"):
            wanted = f"{name!r} among them if and only if data.task is {name!r}"
            require((name in rewards) == (task == name), "verifier.rewards", rewards, wanted)
        if task == "environment":
            wanted = f"{self.data.path!r}, which data.path names: an environment judges its own problems"
            require(
                self.verifier.environment == self.data.path, "verifier.environment", self.verifier.environment, wanted
            )

    def _validate_held(self) -> None:
        self.optimizer.validate_for("optimizer", self.model)
        self.cold_start.optimizer.validate_for("cold_start.optimizer", self.model)
        if self.recipe == "ppo":
            # The critic has no adapters.
            whole = dataclasses.replace(self.model, lora=LoRAConfig())
            self.ppo.critic.validate_for("ppo.critic", whole)
            self.reference.validate_for("reference", self.model, self.ppo.kl_beta, "ppo.kl_beta")
        else:
            self.reference.validate_for("reference", self.model, self.algorithm.kl_beta, "algorithm.kl_beta")

    @staticmethod
    def _largest_divisor(number: int, limit: int) -> int:
        return max(divisor for divisor in range(1, min(number, limit) + 1) if number % divisor == 0)
