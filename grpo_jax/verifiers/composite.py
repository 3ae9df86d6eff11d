"""Weighted sums of verifiers behind gates, and the verifier that a configuration names."""

import math
import time
from collections.abc import Callable, Collection, Mapping

from grpo_jax.config import RewardName, VerifierConfig
from grpo_jax.records import Completion, Problem, Verdict
from grpo_jax.verifiers.base import ChecksReferences, NeedsStart, Verifier
from grpo_jax.verifiers.countdown import CountdownVerifier
from grpo_jax.verifiers.environment import EnvironmentVerifier
from grpo_jax.verifiers.format import FormatVerifier
from grpo_jax.verifiers.function import FunctionVerifier
from grpo_jax.verifiers.gym import GymVerifier
from grpo_jax.verifiers.mathematics.verifier import MathematicsVerifier
from grpo_jax.verifiers.numeric import NumericVerifier
from grpo_jax.verifiers.proof.verifier import ProofVerifier
from grpo_jax.verifiers.sandboxed import code_verifier, lint_verifier


def _function(config: VerifierConfig) -> Verifier:
    assert config.function is not None, "a validated configuration names it"
    return FunctionVerifier(config.function)


def _environment(config: VerifierConfig) -> Verifier:
    assert config.environment is not None, "a validated configuration names it"
    return EnvironmentVerifier(config.environment)


class WeightedSum:
    """Reward ``sum_i weight_i * reward_i`` over named verifiers; the first one decides ``correct``."""

    def __init__(
        self, verifiers: Mapping[str, Verifier], weights: Mapping[str, float], gates: Collection[str] = ()
    ) -> None:
        """Pairs each verifier with its weight.

        Args:
            verifiers: Verifiers by name. The first gives ``correct``, ``parsed`` and ``reason``.
            weights: A finite weight for each of these names.
            gates: Names of those that must call the completion correct before any other one is asked.

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
        if not set(gates) <= set(verifiers):
            raise ValueError(f"WeightedSum: got gates {sorted(gates)}, wanted some of {sorted(verifiers)}.")
        self._verifiers = dict(verifiers)
        self._weights = dict(weights)
        self._gates = frozenset(gates)
        self._order = sorted(verifiers, key=lambda name: name not in self._gates)

    def __call__(self, problem: Problem, completion: Completion, /) -> Verdict:
        """Asks the gates, then the other verifiers, and adds up their rewards.

        Args:
            problem: The problem.
            completion: The completion to judge.

        Returns:
            The sum, with each verifier's own reward in ``parts``. Behind a gate that does not hold nothing else is
            asked: those rewards are 0, the completion is not correct, and the reason is the gate's. If a verifier
            reports an error, so does the sum: half a reward would be a wrong one.
        """
        verdicts: dict[str, Verdict] = {}
        seconds: dict[str, float] = {}
        closed = ""
        for name in self._order:
            if closed and name not in self._gates:
                continue
            started = time.perf_counter()
            verdict = verdicts[name] = self._verifiers[name](problem, completion)
            seconds[name] = time.perf_counter() - started
            if verdict.error:
                reason = f"{name}: {verdict.reason}"
                return Verdict(
                    0.0, correct=False, parsed=None, reason=reason, error=True, part_seconds=seconds, failed_part=name
                )
            if name in self._gates and not verdict.correct and not closed:
                closed = f"{name}: {verdict.reason}"
        rewards = {name: verdicts[name].reward if name in verdicts else 0.0 for name in self._verifiers}
        primary = verdicts.get(next(iter(self._verifiers)))
        return Verdict(
            reward=sum(self._weights[name] * reward for name, reward in rewards.items()),
            correct=primary is not None and primary.correct and not closed,
            parsed=None if primary is None else primary.parsed,
            reason=primary.reason if primary is not None and not closed else closed,
            parts=rewards,
            part_seconds=seconds,
            flags=tuple(dict.fromkeys(flag for verdict in verdicts.values() for flag in verdict.flags)),
        )

    def reference_fault(self, problem: Problem, /) -> str:
        """The first fault that one of the verifiers finds in the problem's reference, with its name."""
        for name, verifier in self._verifiers.items():
            if isinstance(verifier, ChecksReferences) and (fault := verifier.reference_fault(problem)):
                return f"{name}: {fault}"
        return ""

    def start(self) -> Mapping[str, str]:
        """Starts every verifier that needs it."""
        return _start_all(self._verifiers.values())


class PerProblem:
    """Judges each problem by the verifier that a column of its row names."""

    def __init__(self, config: VerifierConfig) -> None:
        """Remembers what may be named; a verifier is made when the first problem asks for it."""
        self._config = config
        self._made: dict[RewardName, Verifier] = {}

    def __call__(self, problem: Problem, completion: Completion, /) -> Verdict:
        """Asks the problem's own verifier.

        Args:
            problem: Its column names one of the other rewards.
            completion: The completion to judge.

        Returns:
            That verifier's verdict, or an error where the column names none.
        """
        if fault := self._naming_fault(problem):
            return Verdict(0.0, correct=False, parsed=None, reason=fault, error=True)
        return self._chosen(problem)(problem, completion)

    def reference_fault(self, problem: Problem, /) -> str:
        """What is wrong with the column, or else with the reference."""
        if fault := self._naming_fault(problem):
            return fault
        verifier = self._chosen(problem)
        return verifier.reference_fault(problem) if isinstance(verifier, ChecksReferences) else ""

    def start(self) -> Mapping[str, str]:
        """Starts the user's function, if there is one; the others start when a problem asks for them."""
        return {} if self._config.function is None else self._make("function")

    def _make(self, name: RewardName) -> Mapping[str, str]:
        verifier = VERIFIERS[name](self._config)
        facts = _start_all([verifier])
        self._made[name] = verifier
        return facts

    def _naming_fault(self, problem: Problem) -> str:
        name = problem.extra.get(self._config.column)
        known = [other for other in VERIFIERS if other not in _NOT_BY_COLUMN]
        if name not in known:
            return (
                f"column {self._config.column!r} of problem {problem.identifier!r} holds {name!r}, wanted one of "
                f"{', '.join(known)}"
            )
        if name == "function" and self._config.function is None:
            return f"problem {problem.identifier!r} asks for 'function', but verifier.function is not set"
        return ""

    def _chosen(self, problem: Problem) -> Verifier:
        name: RewardName = problem.extra[self._config.column]
        if name not in self._made:
            self._make(name)
        return self._made[name]


_NOT_BY_COLUMN = ("per_problem", "reasoning_gym", "environment")
"""The last two judge the problems of their own task alone."""

VERIFIERS: Mapping[RewardName, Callable[[VerifierConfig], Verifier]] = {
    "numeric": lambda config: NumericVerifier(config.numeric.extraction),
    "math": lambda config: MathematicsVerifier(config.math),
    "code": code_verifier,
    "lint": lint_verifier,
    "proof": lambda config: ProofVerifier(config.proof, config.sandbox),
    "countdown": lambda _: CountdownVerifier(),
    "format": lambda _: FormatVerifier(),
    "function": _function,
    "per_problem": PerProblem,
    "reasoning_gym": lambda _: GymVerifier(),
    "environment": _environment,
}
"""How each reward is made of the verifier's section."""


def build(config: VerifierConfig) -> WeightedSum:
    """Makes the verifier that a run's configuration names.

    Args:
        config: Names, weights and gates; the first name is the primary verifier.

    Returns:
        A weighted sum, also for a single name, so that ``parts`` is always there.
    """
    verifiers = {name: VERIFIERS[name](config) for name in config.rewards}
    return WeightedSum(verifiers, dict(zip(config.rewards, config.weights, strict=True)), config.gates)


def _start_all(verifiers: Collection[Verifier]) -> dict[str, str]:
    facts: dict[str, str] = {}
    for verifier in verifiers:
        if isinstance(verifier, NeedsStart):
            facts |= verifier.start()
    return facts
