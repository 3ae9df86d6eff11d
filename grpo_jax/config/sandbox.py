"""Sections for the verifiers that run or read a model's programs: their sandbox, code and lint."""

import dataclasses
from typing import Literal

from grpo_jax.config.checks import Section, require


@dataclasses.dataclass(frozen=True)
class SandboxConfig(Section):
    """How a model's programs are confined, and what one execution may use."""

    minimum_level: Literal["namespaces", "bubblewrap", "landlock", "limits"] = "landlock"
    allow_unsafe: bool = False
    start_seconds: float = 20.0
    memory_mebibytes: int = 512
    file_mebibytes: int = 16
    processes: int = 16
    output_kibibytes: int = 1024

    def validate(self, path: str) -> None:
        """Refuses empty limits, and running without confinement unless it is asked for twice."""
        self._positive(path, "start_seconds")
        self._at_least(path, 64, "memory_mebibytes")
        self._at_least(path, 1, "file_mebibytes", "processes", "output_kibibytes")
        require(
            self.allow_unsafe == (self.minimum_level == "limits"),
            f"{path}.allow_unsafe",
            self.allow_unsafe,
            "True exactly if minimum_level is 'limits'",
            "Limits alone do not keep a hostile program from reading, writing or sending your files.",
        )


@dataclasses.dataclass(frozen=True)
class CodeConfig(Section):
    """How programs are taken from completions, run against tests and rewarded."""

    extraction: Literal["fenced", "whole"] = "fenced"
    stepped: bool = False
    case_seconds: float = 2.0
    total_seconds: float = 4.0
    float_tolerance: float = 1e-9
    max_code_characters: int = 100_000

    def validate(self, path: str) -> None:
        """Refuses limits that leave no time for a case."""
        self._positive(path, "case_seconds", "total_seconds")
        self._at_least(path, 0, "float_tolerance")
        self._at_least(path, 1, "max_code_characters")
        require(
            self.case_seconds <= self.total_seconds,
            f"{path}.case_seconds",
            self.case_seconds,
            f"at most total_seconds ({self.total_seconds})",
        )


@dataclasses.dataclass(frozen=True)
class LintConfig(Section):
    """Rules that a program's text must keep, without being run."""

    language: Literal["python", "c"] = "python"
    extraction: Literal["fenced", "whole"] = "fenced"
    forbidden_imports: tuple[str, ...] = ()
    forbidden_calls: tuple[str, ...] = ()
    required_function: str | None = None
    required_arguments: tuple[str, ...] = ()
    compile_program: bool = True
    seconds: float = 3.0
    max_code_characters: int = 100_000

    def validate(self, path: str) -> None:
        """Refuses rules that nothing would read."""
        self._positive(path, "seconds")
        self._at_least(path, 1, "max_code_characters")
        require(
            bool(self.required_function) or not self.required_arguments,
            f"{path}.required_arguments",
            self.required_arguments,
            "(), since required_function is not set",
        )
        if self.language == "c":
            for name in ("forbidden_imports", "forbidden_calls", "required_function"):
                value = getattr(self, name)
                require(not value, f"{path}.{name}", value, "nothing, since language is 'c'", "It reads Python only.")
