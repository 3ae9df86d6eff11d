"""The configuration of a run as frozen dataclasses: every key, its default and its checks.

The defaults live here and nowhere else. ``configs/base.py`` lists the same keys with comments for people to copy
from, and a test keeps the two equal. A key that would be ignored is an error.
"""

import dataclasses

from grpo_jax.config.checks import ConfigError, Section, require
from grpo_jax.config.sections import (
    AlgorithmConfig,
    CheckpointConfig,
    ColdStartConfig,
    DataConfig,
    EvaluationConfig,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
    RewardName,
    RolloutConfig,
    VerifierConfig,
)
from grpo_jax.config.values import from_nested, require_key, to_nested

__all__ = [
    "AlgorithmConfig",
    "CheckpointConfig",
    "ColdStartConfig",
    "ConfigError",
    "DataConfig",
    "EvaluationConfig",
    "MeshConfig",
    "ModelConfig",
    "OptimizerConfig",
    "RewardName",
    "RolloutConfig",
    "RunConfig",
    "VerifierConfig",
    "from_nested",
    "require_key",
    "to_nested",
]


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run."""

    seed: int = 0
    steps: int = 200
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    verifier: VerifierConfig = dataclasses.field(default_factory=VerifierConfig)
    rollout: RolloutConfig = dataclasses.field(default_factory=RolloutConfig)
    algorithm: AlgorithmConfig = dataclasses.field(default_factory=AlgorithmConfig)
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    cold_start: ColdStartConfig = dataclasses.field(default_factory=ColdStartConfig)
    evaluation: EvaluationConfig = dataclasses.field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = dataclasses.field(default_factory=CheckpointConfig)
    mesh: MeshConfig = dataclasses.field(default_factory=MeshConfig)

    def validate(self) -> None:
        """Checks every section and what must hold between them.

        Raises:
            ConfigError: naming key, value, what was wanted and the remedy.
        """
        require(self.seed >= 0, "seed", self.seed, "0 or more")
        require(self.steps >= 0, "steps", self.steps, "0 or more")
        for field in dataclasses.fields(self):
            section = getattr(self, field.name)
            if isinstance(section, Section):
                section.validate(field.name)
        completions = self.rollout.prompts_per_step * self.rollout.completions_per_prompt
        require(
            completions % self.algorithm.micro_batch_completions == 0,
            "algorithm.micro_batch_completions",
            self.algorithm.micro_batch_completions,
            f"a divisor of the {completions} completions of a step (prompts_per_step * completions_per_prompt)",
        )
        batch_slots = completions // self.evaluation.samples_per_problem
        require(
            batch_slots > 0 and completions // self.evaluation.test_samples_per_problem > 0,
            "evaluation.test_samples_per_problem",
            self.evaluation.test_samples_per_problem,
            f"at most the {completions} completions of a training step, whose shape evaluation shares",
        )
