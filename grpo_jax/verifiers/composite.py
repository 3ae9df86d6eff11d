"""Weighted sums of verifiers, and the verifier that a configuration names."""

import math
from collections.abc import Callable, Mapping

from grpo_jax.config import RewardName, VerifierConfig
from grpo_jax.records import Completion, Problem, Verdict
from grpo_jax.verifiers.base import Verifier
from grpo_jax.verifiers.countdown import CountdownVerifier
from grpo_jax.verifiers.format import FormatVerifier
from grpo_jax.verifiers.numeric import NumericVerifier

VERIFIERS: Mapping[RewardName, Callable[[], Verifier]] = {
    "numeric": NumericVerifier,
    "countdown": CountdownVerifier,
    "format": FormatVerifier,
}


class WeightedSum:
    """Reward ``sum_i weight_i * reward_i`` over named verifiers; the first one decides ``correct``."""

    def __init__(self, verifiers: Mapping[str, Verifier], weights: Mapping[str, float]) -> None:
        """Pairs each verifier with its weight.

        Args:
            verifiers: Verifiers by name. The first gives ``correct``, ``parsed`` and ``reason``.
            weights: A finite weight for each of these names.

        Raises:
            ValueError: if there is no verifier, the names differ or a weight is not finite.
        """
        if not verifiers:
            raise ValueError("WeightedSum: got no verifier, wanted at least one.")
        if set(verifiers) != set(weights):
            raise ValueError(
                f"WeightedSum: got weights for {sorted(weights)}, wanted one for each of {sorted(verifiers)}."
            )
        for name, weight in weights.items():
            if not math.isfinite(weight):
                raise ValueError(f"WeightedSum: got weight {weight!r} for {name!r}, wanted a finite number.")
        self._verifiers = dict(verifiers)
        self._weights = dict(weights)

    def __call__(self, problem: Problem, completion: Completion, /) -> Verdict:
        """Asks every verifier and adds up their rewards.

        Args:
            problem: The problem.
            completion: The completion to judge.

        Returns:
            The sum, with each verifier's own reward in ``parts``. If one of them reports an error,
            so does the sum: half a reward would be a wrong one.
        """
        verdicts = {name: verifier(problem, completion) for name, verifier in self._verifiers.items()}
        primary = next(iter(verdicts.values()))
        for name, verdict in verdicts.items():
            if verdict.error:
                return Verdict(
                    0.0, correct=False, parsed=primary.parsed, reason=f"{name}: {verdict.reason}", error=True
                )
        return Verdict(
            reward=sum(self._weights[name] * verdict.reward for name, verdict in verdicts.items()),
            correct=primary.correct,
            parsed=primary.parsed,
            reason=primary.reason,
            parts={name: verdict.reward for name, verdict in verdicts.items()},
        )


def build(config: VerifierConfig) -> Verifier:
    """Makes the verifier that a run's configuration names.

    Args:
        config: Names and weights; the first name is the primary verifier.

    Returns:
        A weighted sum, also for a single name, so that ``parts`` is always there.
    """
    verifiers = {name: VERIFIERS[name]() for name in config.rewards}
    return WeightedSum(verifiers, dict(zip(config.rewards, config.weights, strict=True)))
