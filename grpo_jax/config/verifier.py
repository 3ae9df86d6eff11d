"""The section that says what is rewarded, and where verifiers run."""

import dataclasses
from typing import Literal

from grpo_jax.config.checks import Section, require
from grpo_jax.config.mathematics import MathematicsConfig
from grpo_jax.config.proof import ProofConfig
from grpo_jax.config.sandbox import CodeConfig, LintConfig, SandboxConfig

RewardName = Literal[
    "numeric",
    "math",
    "code",
    "lint",
    "proof",
    "countdown",
    "format",
    "function",
    "per_problem",
    "reasoning_gym",
    "environment",
]

_READS: dict[str, tuple[RewardName, ...]] = {
    "numeric": ("numeric",),
    "math": ("math",),
    "code": ("code",),
    "lint": ("lint",),
    "proof": ("proof",),
    "sandbox": ("code", "lint", "proof"),
}
"""Sub-sections, and the rewards that read them."""


@dataclasses.dataclass(frozen=True)
class NumericConfig(Section):
    """Where an exact number is looked for: in the answer block at the end, or in the whole text."""

    extraction: Literal["answer_block", "whole"] = "answer_block"


@dataclasses.dataclass(frozen=True)
class VerifierConfig(Section):
    """Rewards: a weighted sum of named verifiers behind gates, run in killable worker processes."""

    rewards: tuple[RewardName, ...] = ("numeric",)
    weights: tuple[float, ...] = (1.0,)
    gates: tuple[RewardName, ...] = ()
    function: str | None = None
    environment: str | None = None
    column: str = "verifier"
    pool: Literal["local", "ray"] = "local"
    workers: int = 1
    deadline_seconds: float = 5.0
    worker_memory_mebibytes: int = 2048
    numeric: NumericConfig = dataclasses.field(default_factory=NumericConfig)
    math: MathematicsConfig = dataclasses.field(default_factory=MathematicsConfig)
    code: CodeConfig = dataclasses.field(default_factory=CodeConfig)
    lint: LintConfig = dataclasses.field(default_factory=LintConfig)
    proof: ProofConfig = dataclasses.field(default_factory=ProofConfig)
    sandbox: SandboxConfig = dataclasses.field(default_factory=SandboxConfig)

    def validate(self, path: str) -> None:
        """Refuses rewards without a weight each, and settings that no reward would read."""
        self._validate_rewards(path)
        self._at_least(path, 1, "workers")
        self._at_least(path, 64, "worker_memory_mebibytes")
        self._positive(path, "deadline_seconds")
        for name in _READS:
            getattr(self, name).validate(f"{path}.{name}")
        self._refuse_unread(path)
        for name, seconds in self.own_limits_seconds().items():
            require(
                seconds < self.deadline_seconds or name not in self.rewards,
                f"{path}.deadline_seconds",
                self.deadline_seconds,
                f"more than the {seconds:g} seconds that '{name}' may take by its own limits",
            )

        memory = {"code": self.sandbox.memory_mebibytes, "lint": self.sandbox.memory_mebibytes}
        for name, mebibytes in (memory | {"proof": self.proof.memory_mebibytes}).items():
            require(
                mebibytes <= self.worker_memory_mebibytes or name not in self.rewards,
                f"{path}.worker_memory_mebibytes",
                self.worker_memory_mebibytes,
                f"the {mebibytes} that a program of '{name}' may use, or more, since it inherits the limit",
            )

    def own_limits_seconds(self) -> dict[RewardName, float]:
        """Wall time that verifiers give themselves; the deadline is only their last line."""
        return {
            "code": self.code.total_seconds,
            "lint": self.lint.seconds,
            "proof": self.proof.longest_seconds,
        }

    def may_use(self, reward: str) -> bool:
        """Whether some problem may be judged by that verifier."""
        return reward in self.rewards or "per_problem" in self.rewards

    def _validate_rewards(self, path: str) -> None:
        for key in ("rewards", "gates"):
            value = getattr(self, key)
            require(len(set(value)) == len(value), f"{path}.{key}", value, "each name once")
        require(len(self.rewards) > 0, f"{path}.rewards", self.rewards, "at least one reward name")
        wanted = f"one weight for each of the {len(self.rewards)} rewards"
        require(len(self.rewards) == len(self.weights), f"{path}.weights", self.weights, wanted)
        require(
            all(abs(weight) <= 1e6 for weight in self.weights),
            f"{path}.weights",
            self.weights,
            "finite numbers up to 1e6",
        )
        wanted = f"some of the rewards {self.rewards}, but not all of them"
        remedy = "Add it to verifier.rewards, with weight 0 if it should only be a gate."
        require(set(self.gates) < set(self.rewards), f"{path}.gates", self.gates, wanted, remedy)

    def _refuse_unread(self, path: str) -> None:
        if "function" in self.rewards:
            wanted = "FILE.py:NAME or package.module:NAME, since verifier.rewards names 'function'"
            require(self.function is not None, f"{path}.function", self.function, wanted)
        elif "per_problem" not in self.rewards:
            wanted = "None, since verifier.rewards does not name 'function'"
            require(self.function is None, f"{path}.function", self.function, wanted)
        if "environment" not in self.rewards:
            wanted = "None, since verifier.rewards does not name 'environment'"
            require(self.environment is None, f"{path}.environment", self.environment, wanted)
        wanted = "'verifier', since verifier.rewards does not name 'per_problem'"
        require("per_problem" in self.rewards or self.column == "verifier", f"{path}.column", self.column, wanted)
        for name, readers in _READS.items():
            section = getattr(self, name)
            wanted = f"the defaults, since verifier.rewards names none of {readers}"
            require(any(map(self.may_use, readers)) or section == type(section)(), f"{path}.{name}", section, wanted)
