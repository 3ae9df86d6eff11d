"""Verifiers that share the one sandbox of a worker, which is opened when judging is about to begin."""

from collections.abc import Callable, Mapping

from grpo_jax.config import ConfigError, VerifierConfig
from grpo_jax.records import Completion, Problem, Verdict
from grpo_jax.verifiers import lint
from grpo_jax.verifiers.base import UnusableVerifierError, Verifier
from grpo_jax.verifiers.code import trial
from grpo_jax.verifiers.code.suite import SuiteError, parse_suite
from grpo_jax.verifiers.code.verifier import CodeVerifier
from grpo_jax.verifiers.lint import LintVerifier
from grpo_jax.verifiers.sandbox.sandbox import Sandbox

_sandboxes: dict[str, Sandbox] = {}
"""The open sandbox of this process by its settings. A worker is single-threaded and has one configuration."""


class SandboxedVerifier:
    """A verifier that is made once the sandbox is open; references are checked without one."""

    def __init__(
        self,
        config: VerifierConfig,
        make: Callable[[Sandbox], Verifier],
        reference_fault: Callable[[Problem], str] = lambda _: "",
    ) -> None:
        """Remembers how the verifier is made.

        Args:
            config: The verifiers' section.
            make: Makes the verifier with an open sandbox.
            reference_fault: Says why a problem cannot be judged, without running anything.
        """
        self._config = config
        self._make = make
        self._reference_fault = reference_fault
        self._verifier: Verifier | None = None

    def start(self) -> Mapping[str, str]:
        """Opens the sandbox, unless another verifier of this process has.

        Returns:
            Its level, and why stronger ones do not work here.

        Raises:
            UnusableVerifierError: if no level as strong as the minimum works on this machine.
        """
        sandbox = _shared_sandbox(self._config)
        self._verifier = self._make(sandbox)
        refused = {f"no {level.value}": reason for level, reason in sandbox.refusals.items()}
        return {"sandbox": sandbox.level.value, **refused}

    def reference_fault(self, problem: Problem, /) -> str:
        """Says why a problem cannot be judged, or nothing."""
        return self._reference_fault(problem)

    def __call__(self, problem: Problem, completion: Completion, /) -> Verdict:
        """Judges one completion in the sandbox.

        Args:
            problem: The problem.
            completion: The completion.

        Returns:
            The verdict.
        """
        assert self._verifier is not None, "start() comes first"
        return self._verifier(problem, completion)


def code_verifier(config: VerifierConfig) -> SandboxedVerifier:
    """The verifier of programs by their tests."""
    return SandboxedVerifier(config, lambda sandbox: CodeVerifier(config.code, sandbox), _tests_fault)


def lint_verifier(config: VerifierConfig) -> SandboxedVerifier:
    """The verifier of programs by their text."""
    return SandboxedVerifier(config, lambda sandbox: LintVerifier(config.lint, sandbox))


def _shared_sandbox(config: VerifierConfig) -> Sandbox:
    key = repr(config.sandbox)
    if key not in _sandboxes:
        try:
            _sandboxes[key] = Sandbox(config.sandbox, programs=(*trial.PROGRAMS, *lint.PROGRAMS))
        except ConfigError as error:
            raise UnusableVerifierError(str(error)) from error
    return _sandboxes[key]


def _tests_fault(problem: Problem) -> str:
    try:
        parse_suite(problem.extra.get("tests"))
    except SuiteError as error:
        return f"problem {problem.identifier!r}: extra['tests']: {error}"
    return ""
