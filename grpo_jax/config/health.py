"""When a run warns of itself."""

import dataclasses

from grpo_jax.config.checks import Section, require


@dataclasses.dataclass(frozen=True)
class HealthConfig(Section):
    """Limits of what is healthy; beyond them a run says what is wrong and what to change."""

    enabled: bool = True
    collapsed_groups: float = 0.9
    truncated_completions: float = 0.25
    length_growth: float = 1.5
    repetition: float = 0.4
    kl: float = 0.3
    verifier_errors: float = 0.01

    def validate(self, path: str) -> None:
        """Refuses shares outside [0, 1], and limits that nothing reads."""
        self._share(path, "collapsed_groups", "truncated_completions", "repetition", "verifier_errors")
        self._positive(path, "length_growth", "kl")
        require(self.length_growth > 1, f"{path}.length_growth", self.length_growth, "a factor above 1")
        for field in dataclasses.fields(self)[1:]:
            value = getattr(self, field.name)
            wanted = f"{field.default}, its default: it is only read when {path}.enabled is True"
            require(self.enabled or value == field.default, f"{path}.{field.name}", value, wanted)
