"""The section for proofs that a prover checks."""

import dataclasses
import os
from typing import Literal

from grpo_jax.config.checks import Section, require

ProverName = Literal["coq", "lean4"]


@dataclasses.dataclass(frozen=True)
class ProofConfig(Section):
    """How proofs are taken from completions, checked by a prover and rewarded."""

    prover: ProverName = "coq"
    extraction: Literal["fenced", "whole"] = "fenced"
    max_source_characters: int = 100_000
    compile_seconds: float = 20.0
    check_seconds: float = 10.0
    memory_mebibytes: int = 2048
    forbidden: tuple[str, ...] = ()
    replay: bool = False
    read_paths: tuple[str, ...] = ()
    coq_command: tuple[str, ...] = ("coqc",)
    coq_checker: tuple[str, ...] = ("coqchk",)
    coq_axioms: tuple[str, ...] = ()
    lean_command: tuple[str, ...] = ("lean",)
    lean_checker: tuple[str, ...] = ("leanchecker",)
    lean_axioms: tuple[str, ...] = ("propext", "Classical.choice", "Quot.sound")
    lean_imports: tuple[str, ...] = ("Init", "Std", "Batteries", "Aesop", "Mathlib")
    lean_paths: tuple[str, ...] = ()

    @property
    def longest_seconds(self) -> float:
        """Wall time of the slowest judgement: the statement, the proof, two checks and the replay."""
        return (3 if self.replay else 2) * self.compile_seconds + 2 * self.check_seconds

    def validate(self, path: str) -> None:
        """Refuses empty commands, limits without time and paths that depend on the working directory."""
        self._positive(path, "compile_seconds", "check_seconds")
        self._at_least(path, 1, "max_source_characters")
        self._at_least(path, 64, "memory_mebibytes")
        for name in ("coq_command", "coq_checker", "lean_command", "lean_checker"):
            command = getattr(self, name)
            require(bool(command) and all(command), f"{path}.{name}", command, "a program and its arguments")
        for name in ("read_paths", "lean_paths"):
            for place in getattr(self, name):
                require(os.path.isabs(place), f"{path}.{name}", place, "absolute paths")
        for name in self.coq_axioms:
            require("." in name, f"{path}.coq_axioms", name, "full names such as 'Coq.Logic.Classical_Prop.classic'")
        for phrase in self.forbidden:
            require(bool(phrase.strip()), f"{path}.forbidden", phrase, "words of the prover's language")
