"""The objective's section of a run's configuration."""

import dataclasses
from typing import Literal

from grpo_jax.config.checks import Section, require


@dataclasses.dataclass(frozen=True)
class AlgorithmConfig(Section):
    """The objective; docs/algorithms.md gives the formulas and says when to use what."""

    advantage: Literal[
        "group_normalized", "group_centered", "leave_one_out", "batch_normalized", "decoupled_normalized"
    ] = "group_normalized"
    advantage_ddof: int = 0
    variance_epsilon: float = 1e-6
    aggregation: Literal["sequence_mean", "token_mean", "constant_length"] = "sequence_mean"
    constant_length_tokens: int = 0
    credit: Literal["uniform", "prefix_mean"] = "uniform"
    policy_loss: Literal["clip", "cispo", "sapo"] = "clip"
    ratio: Literal["token", "sequence"] = "token"
    clip_epsilon: float = 0.2
    clip_epsilon_high: float | None = None
    dual_clip: float | None = None
    cispo_cap: float = 5.0
    sapo_temperature_positive: float = 1.0
    sapo_temperature_negative: float = 1.05
    kl_beta: float = 0.04
    kl_estimator: Literal["k1", "k2", "k3", "k3_unbiased"] = "k3"
    kl_placement: Literal["loss", "reward"] = "loss"
    length_penalty: float = 1e-5
    length_budget_tokens: int = 8192
    length_schedule_steps: int = 0
    length_penalty_initial: float = 0.0
    length_budget_initial_tokens: int = 8192
    overlong_max_tokens: int = 0
    overlong_cache_tokens: int = 1
    mask_truncated: bool = False
    repetition_weight: float = 0.0
    repetition_ngram_tokens: int = 8
    repetition_threshold: float = 0.2
    old_logprobs: Literal["sampler", "trainer"] = "sampler"
    importance: Literal["none", "token", "sequence"] = "none"
    importance_cap: float = 2.0
    importance_lowest: float = 0.0
    importance_highest: float | None = None
    router_bias_update: float = 0.0
    router_replay: bool = False
    passes_per_batch: int = 1
    micro_batch_completions: int = 32
    dynamic_sampling_max_batches: int = 1
    max_nonfinite_steps: int = 5

    def validate(self, path: str) -> None:
        """Refuses values outside the objective's domain, and settings that the chosen variant would ignore."""
        self._positive(path, "clip_epsilon", "variance_epsilon", "cispo_cap", "importance_cap")
        self._positive(path, "sapo_temperature_positive", "sapo_temperature_negative")
        self._at_least(path, 0, "kl_beta", "length_penalty", "length_penalty_initial", "length_schedule_steps")
        self._at_least(path, 0, "constant_length_tokens", "overlong_max_tokens", "importance_lowest")
        self._at_least(path, 0, "repetition_weight", "router_bias_update")
        self._at_least(path, 1, "length_budget_tokens", "length_budget_initial_tokens", "overlong_cache_tokens")
        self._at_least(path, 1, "passes_per_batch", "micro_batch_completions", "max_nonfinite_steps")
        self._at_least(path, 1, "repetition_ngram_tokens", "dynamic_sampling_max_batches")
        self._share(path, "repetition_threshold")
        require(self.repetition_threshold < 1, f"{path}.repetition_threshold", self.repetition_threshold, "less than 1")
        require(self.advantage_ddof in (0, 1), f"{path}.advantage_ddof", self.advantage_ddof, "0 or 1")
        for name in ("clip_epsilon_high", "dual_clip"):
            value, least = getattr(self, name), 1 if name == "dual_clip" else 0
            require(value is None or value > least, f"{path}.{name}", value, f"None (off) or more than {least}")
        require(
            self.overlong_cache_tokens <= max(self.overlong_max_tokens, 1),
            f"{path}.overlong_cache_tokens",
            self.overlong_cache_tokens,
            f"at most overlong_max_tokens ({self.overlong_max_tokens})",
        )
        highest = self.importance_highest
        wanted = f"None (off) or more than importance_lowest ({self.importance_lowest})"
        require(highest is None or highest > self.importance_lowest, f"{path}.importance_highest", highest, wanted)
        self._refuse_ignored(path)

    def _refuse_ignored(self, path: str) -> None:
        clip, kl_in_loss = self.policy_loss == "clip", self.kl_beta > 0
        read_when = {
            "advantage_ddof": (self.advantage == "group_normalized", "advantage is 'group_normalized'"),
            "constant_length_tokens": (self.aggregation == "constant_length", "aggregation is 'constant_length'"),
            "clip_epsilon": (clip, "policy_loss is 'clip'"),
            "clip_epsilon_high": (clip, "policy_loss is 'clip'"),
            "dual_clip": (clip, "policy_loss is 'clip'"),
            "cispo_cap": (self.policy_loss == "cispo", "policy_loss is 'cispo'"),
            "sapo_temperature_positive": (self.policy_loss == "sapo", "policy_loss is 'sapo'"),
            "sapo_temperature_negative": (self.policy_loss == "sapo", "policy_loss is 'sapo'"),
            "kl_estimator": (kl_in_loss, "kl_beta is positive"),
            "kl_placement": (kl_in_loss, "kl_beta is positive"),
            "length_penalty_initial": (self.length_schedule_steps > 0, "length_schedule_steps is positive"),
            "length_budget_initial_tokens": (self.length_schedule_steps > 0, "length_schedule_steps is positive"),
            "overlong_cache_tokens": (self.overlong_max_tokens > 0, "overlong_max_tokens is positive"),
            "repetition_threshold": (self.repetition_weight > 0, "repetition_weight is positive"),
            "importance": (self.old_logprobs == "trainer", "old_logprobs is 'trainer'"),
            "importance_cap": (self.importance != "none", "importance is not 'none'"),
            "importance_lowest": (self.importance != "none", "importance is not 'none'"),
            "importance_highest": (self.importance != "none", "importance is not 'none'"),
        }
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name, (read, condition) in read_when.items():
            value = getattr(self, name)
            wanted = f"{defaults[name]!r}, its default: it is only read when {condition}"
            require(read or value == defaults[name], f"{path}.{name}", value, wanted)
        require(
            self.kl_placement == "loss" or self.kl_estimator != "k3_unbiased",
            f"{path}.kl_estimator",
            self.kl_estimator,
            "k1, k2 or k3, since kl_placement is 'reward'",
            "The reward carries no gradient, which is all that 'k3_unbiased' differs in.",
        )
        aggregated_by_completion = self.aggregation == "sequence_mean"
        require(
            self.ratio == "token" or aggregated_by_completion,
            f"{path}.aggregation",
            self.aggregation,
            "'sequence_mean', since ratio is 'sequence'",
            "A completion's one ratio counts once, not once for each of its tokens.",
        )
