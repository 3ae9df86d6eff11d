"""The sections of a run's configuration that need few words of their own."""

import dataclasses
from typing import Literal

from grpo_jax.config.checks import Section, require
from grpo_jax.config.optimizer import OptimizerConfig


@dataclasses.dataclass(frozen=True)
class CurriculumConfig(Section):
    """Which problems are left out of training because every completion would get the same reward."""

    enabled: bool = False
    decay: float = 0.7
    min_visits: int = 2
    readmit_probability: float = 0.05
    readmit_after_steps: int = 1000
    weighting: Literal["uniform", "variance"] = "uniform"

    def validate(self, path: str) -> None:
        """Refuses settings under which a problem could be lost for ever."""
        self._share(path, "decay", "readmit_probability")
        require(self.decay < 1, f"{path}.decay", self.decay, "less than 1", "Old visits would never be forgotten.")
        self._at_least(path, 1, "min_visits")
        self._at_least(path, 0, "readmit_after_steps")
        require(
            self.readmit_probability > 0 or self.readmit_after_steps > 0,
            f"{path}.readmit_probability",
            self.readmit_probability,
            "a positive share, since readmit_after_steps is 0",
            "What is left out would never come back.",
        )


@dataclasses.dataclass(frozen=True)
class RolloutConfig(Section):
    """How completions are sampled."""

    prompts_per_step: int = 32
    completions_per_prompt: int = 8
    batch_prompts: int = 0
    max_new_tokens: int = 64
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    decode_chunk_tokens: int = 16
    stop: tuple[str, ...] = ()

    def validate(self, path: str) -> None:
        """Refuses a batch that GRPO cannot learn from."""
        self._of_a_row(path, "max_new_tokens")
        self._at_least(path, 1, "prompts_per_step", "max_new_tokens", "decode_chunk_tokens")
        require(
            self.completions_per_prompt >= 2,
            f"{path}.completions_per_prompt",
            self.completions_per_prompt,
            "2 or more",
            "A group of one has no variance: its advantage is always 0 and nothing is learned.",
        )
        self._positive(path, "temperature", "top_p")
        self._share(path, "top_p")
        self._at_least(path, 0, "top_k")
        require(
            0 <= self.batch_prompts <= self.prompts_per_step,
            f"{path}.batch_prompts",
            self.batch_prompts,
            f"0 (all of a step at once) to prompts_per_step, {self.prompts_per_step}",
        )
        validate_stops(self.stop, f"{path}.stop")

    @property
    def prompts_at_once(self) -> int:
        """Prompts of a step whose completions are sampled at once."""
        return self.batch_prompts or self.prompts_per_step


LONGEST_STOPS_CHARACTERS = 256
"""All stop texts together; the table that finds them grows with their length."""


def validate_stops(stops: tuple[str, ...], path: str) -> None:
    """Refuses texts that could not end a completion.

    Args:
        stops: Stop texts.
        path: Dotted path of their key.

    Raises:
        ConfigError: naming the stop and what is wrong with it.
    """
    length = sum(map(len, stops))
    require(length <= LONGEST_STOPS_CHARACTERS, path, stops, f"at most {LONGEST_STOPS_CHARACTERS} characters in all")
    for stop in stops:
        written = stop.encode(errors="replace").decode()
        require(bool(stop), path, stops, "texts of one character or more")
        require(
            stop == written and "\N{REPLACEMENT CHARACTER}" not in stop,
            path,
            stop,
            "whole characters of Unicode",
            "What is no UTF-8 decodes to the replacement character, which tells nothing.",
        )
        require(stops.count(stop) == 1, path, stops, "each text once")
        others = [other for other in stops if other in stop]
        require(len(others) == 1, path, stops, f"no text that holds another one, as {stop!r} does", "It is never read.")


@dataclasses.dataclass(frozen=True)
class ColdStartConfig(Section):
    """Supervised warm-up on worked examples before GRPO; 0 steps leave it out."""

    steps: int = 0
    batch_size: int = 32
    thinking_share: float = 0.35
    slip_probability: float = 0.05
    max_passes: int = 1
    recheck_probability: float = 0.4
    recheck_slip_factor: float = 0.5
    checkpoint_every_steps: int = 500
    optimizer: OptimizerConfig = dataclasses.field(
        default_factory=lambda: OptimizerConfig(
            learning_rate=5e-3, warmup_steps=20, schedule="cosine", final_fraction=0.1, weight_decay=0.01
        )
    )

    def validate(self, path: str) -> None:
        """Refuses shares outside [0, 1], and settings of re-checks that there are none of."""
        self._at_least(path, 0, "steps")
        self._at_least(path, 1, "batch_size", "max_passes", "checkpoint_every_steps")
        self._share(path, "thinking_share", "slip_probability", "recheck_probability", "recheck_slip_factor")
        for name in ("recheck_probability", "recheck_slip_factor"):
            value, default = getattr(self, name), getattr(ColdStartConfig, name)
            wanted = f"{default}, its default: it is only read when max_passes is more than 1"
            require(self.max_passes > 1 or value == default, f"{path}.{name}", value, wanted)
        self.optimizer.validate(f"{path}.optimizer")
        placement, wanted = self.optimizer.placement, "'device': what follows starts from the float32 parameters"
        require(placement == "device", f"{path}.optimizer.placement", placement, wanted)


@dataclasses.dataclass(frozen=True)
class EvaluationConfig(Section):
    """Held-out evaluation: how often, and how many samples each problem gets."""

    every_steps: int = 20
    samples_per_problem: int = 1
    test_samples_per_problem: int = 4
    logged_samples: int = 16

    def validate(self, path: str) -> None:
        """Refuses counts below 1."""
        self._at_least(path, 1, "every_steps", "samples_per_problem", "test_samples_per_problem")
        self._at_least(path, 0, "logged_samples")


@dataclasses.dataclass(frozen=True)
class CheckpointConfig(Section):
    """When the whole training state is saved, and how many of the newest steps are kept."""

    every_steps: int = 50
    keep: int = 2

    def validate(self, path: str) -> None:
        """Refuses counts below 1."""
        self._at_least(path, 1, "every_steps", "keep")


@dataclasses.dataclass(frozen=True)
class MeshConfig(Section):
    """Devices along each axis of the mesh; one axis may be -1: all that are left."""

    data: int = -1
    fsdp: int = 1
    tensor: int = 1
    context: int = 1
    expert: int = 1

    def validate(self, path: str) -> None:
        """Refuses sizes that no mesh can have."""
        sizes = dataclasses.asdict(self)
        for name, size in sizes.items():
            require(size == -1 or size > 0, f"{path}.{name}", size, "a positive number of devices, or -1")
        require(list(sizes.values()).count(-1) <= 1, path, sizes, "at most one axis of -1")


@dataclasses.dataclass(frozen=True)
class WatchdogConfig(Section):
    """How long a run waits for what should happen, before it ends so that it can be started again."""

    start_seconds: int = 3600
    rollout_seconds: int = 3600
    update_seconds: int = 3600
    save_seconds: int = 3600
    barrier_seconds: int = 1800
    connect_seconds: int = 300
    heartbeat_seconds: int = 60

    def validate(self, path: str) -> None:
        """Refuses limits that no run could keep."""
        self._at_least(path, 1, *(field.name for field in dataclasses.fields(self)))
