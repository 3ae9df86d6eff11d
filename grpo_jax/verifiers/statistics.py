"""What a verifier pool counts."""

import dataclasses
from collections.abc import Mapping

from grpo_jax.verifiers.sandbox.contracts import Level


@dataclasses.dataclass(frozen=True)
class PoolStatistics:
    """Counts since the pool was made.

    Attributes:
        workers: Processes that are ready or at work now.
        jobs: Verdicts given.
        timeouts: Verdicts with the reason ``"timeout"``.
        errors: Verdicts with ``error`` set.
        restarts: Workers started in place of one that hung or died.
        facts: What the verifiers say of themselves, such as ``{"sandbox": "namespaces"}``.
    """

    workers: int = 0
    jobs: int = 0
    timeouts: int = 0
    errors: int = 0
    restarts: int = 0
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def metrics(self) -> dict[str, float]:
        """Workers at hand and, where there is a sandbox, its level (1 the strongest, 4 none at all) and refusals."""
        metrics = {"verifier/workers": float(self.workers)}
        if "sandbox" in self.facts:
            metrics["verifier/sandbox_level"] = 1.0 + list(Level).index(Level(self.facts["sandbox"]))
            metrics["verifier/sandbox_refused_levels"] = float(sum(f"no {level}" in self.facts for level in Level))
        return metrics
