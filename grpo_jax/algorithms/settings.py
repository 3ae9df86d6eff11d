"""Every setting of the objective."""

import dataclasses
from typing import Literal

from grpo_jax.algorithms import advantages, kl, reduce, surrogate


@dataclasses.dataclass(frozen=True)
class GRPOLossConfig:
    """Settings of the objective; docs/algorithms.md gives the formulas.

    Attributes:
        clip_epsilon: How far the ratio may fall below 1, and rise above it unless ``clip_epsilon_high`` is set.
        kl_beta: Weight of the KL term; 0 takes it out.
        length_penalty: Reward lost per token over the budget.
        length_budget_tokens: Length in tokens up to which nothing is lost.
        variance_epsilon: Floor of a group's standard deviation, and the least one of an active group.
        advantage: How rewards become advantages.
        reward_weights: Weight of each reward, for ``decoupled_normalized``.
        advantage_ddof: For ``group_normalized``: 0 divides the variance by n, 1 by n - 1.
        aggregation: How token losses become one number.
        constant_length_tokens: Divisor of the ``constant_length`` aggregation.
        ratio: One ratio per token, or one per completion.
        policy_loss: What bounds the ratio: the clip, CISPO's capped weight or SAPO's gate.
        clip_epsilon_high: How far the ratio may rise above 1; None is ``clip_epsilon``.
        dual_clip: Bound on the ratio where the advantage is negative; None is off.
        cispo_cap: Upper bound of the ratio as a weight, for ``cispo``.
        sapo_temperature_positive: Steepness of the gate where the advantage is positive, for ``sapo``.
        sapo_temperature_negative: The same elsewhere.
        kl_estimator: Estimator of the KL to the reference.
        kl_placement: Whether the KL is a term of the loss, or is taken off the reward before the group statistics.
        overlong_max_tokens: Length from which the soft overlong penalty is whole; 0 is off.
        overlong_cache_tokens: Length over which it grows.
        importance: Correction for a sampler that differs from the trainer.
        importance_cap: Upper bound of its weights.
        importance_lowest: Weights below are set to 0.
        importance_highest: Weights above are set to 0; None is off.
    """

    clip_epsilon: float = 0.2
    kl_beta: float = 0.04
    length_penalty: float = 1e-5
    length_budget_tokens: int = 8192
    variance_epsilon: float = 1e-6
    advantage: advantages.AdvantageName = "group_normalized"
    reward_weights: tuple[float, ...] = (1.0,)
    advantage_ddof: int = 0
    aggregation: reduce.AggregationName = "sequence_mean"
    constant_length_tokens: int = 1
    ratio: surrogate.RatioName = "token"
    policy_loss: surrogate.SurrogateName = "clip"
    clip_epsilon_high: float | None = None
    dual_clip: float | None = None
    cispo_cap: float = 5.0
    sapo_temperature_positive: float = 1.0
    sapo_temperature_negative: float = 1.05
    kl_estimator: kl.KLName = "k3"
    kl_placement: Literal["loss", "reward"] = "loss"
    overlong_max_tokens: int = 0
    overlong_cache_tokens: int = 1
    importance: surrogate.ImportanceName = "none"
    importance_cap: float = 2.0
    importance_lowest: float = 0.0
    importance_highest: float | None = None

    def __post_init__(self) -> None:
        """Refuses what would be ignored in silence or divide by 0."""
        for name, least in (("kl_beta", 0), ("length_penalty", 0), ("clip_epsilon", 0), ("variance_epsilon", 0)):
            value = getattr(self, name)
            strict = name in ("clip_epsilon", "variance_epsilon")
            if value < least or (strict and value == least):
                raise ValueError(
                    f"GRPOLossConfig.{name}: got {value}, wanted {'more than' if strict else 'at least'} {least}"
                )
