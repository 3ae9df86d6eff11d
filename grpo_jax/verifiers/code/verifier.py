"""The verifier of programs: runs them in the sandbox and compares what comes back."""

from grpo_jax.config.sandbox import CodeConfig
from grpo_jax.records import Completion, Problem, Verdict
from grpo_jax.verifiers.code.source import extract_source
from grpo_jax.verifiers.code.suite import SuiteError, parse_suite
from grpo_jax.verifiers.code.trial import FAILED, Trial
from grpo_jax.verifiers.sandbox.contracts import SandboxError
from grpo_jax.verifiers.sandbox.sandbox import Sandbox


class CodeVerifier:
    """Reward 1 if the program passes every test, else 0; or the share of tests passed.

    Expected values never enter the sandbox, and neither an exit code nor a printed text passes a program.
    """

    def __init__(self, config: CodeConfig, sandbox: Sandbox) -> None:
        """Keeps the sandbox.

        Args:
            config: Extraction, limits of time and the reward's form.
            sandbox: Made with ``trial.PROGRAMS``; shared with other verifiers of the process.
        """
        self._config = config
        self._sandbox = sandbox

    def __call__(self, problem: Problem, completion: Completion, /) -> Verdict:
        """Runs the program of a completion.

        Args:
            problem: Its tests are ``extra["tests"]``; ``suite.parse_suite`` tells their form.
            completion: Holds the program.

        Returns:
            A verdict, with ``error`` set if the tests cannot be used or the sandbox failed.
        """
        try:
            suite = parse_suite(problem.extra.get("tests"))
        except SuiteError as error:
            reason = f"problem {problem.identifier!r}: extra['tests']: {error}"
            return Verdict(0.0, correct=False, parsed=None, reason=reason, error=True)
        source, reason = extract_source(completion, self._config.extraction, self._config.max_code_characters)
        if source is None:
            return Verdict(0.0, correct=False, parsed=None, reason=reason)
        try:
            outcomes = Trial(self._config, self._sandbox, suite, source).outcomes()
        except (SandboxError, SuiteError) as error:
            reason = f"problem {problem.identifier!r}: {error}"
            return Verdict(0.0, correct=False, parsed=source, reason=reason, error=True)
        failures = [(number, outcome) for number, outcome in enumerate(outcomes, 1) if outcome]
        correct = not failures
        share = 1 - len(failures) / len(outcomes)
        return Verdict(
            reward=share if self._config.stepped else float(correct),
            correct=correct,
            parsed=source,
            reason=_reason(*failures[0], len(outcomes)) if failures else "all tests passed",
        )


def _reason(number: int, outcome: str, tests: int) -> str:
    return f"test {number} of {tests} failed" if outcome == FAILED else outcome
