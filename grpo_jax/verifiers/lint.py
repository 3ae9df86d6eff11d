"""Rewards a program's text for keeping rules: it parses, it compiles, and it has what it must and nothing it must not.

The rules read the text. A program can still reach a forbidden function by a name that it makes up while it runs, which
only the sandbox of the code verifier stops.
"""

from grpo_jax.config.sandbox import LintConfig
from grpo_jax.records import Completion, Problem, Verdict
from grpo_jax.verifiers.code import syntax
from grpo_jax.verifiers.code.source import extract_source
from grpo_jax.verifiers.sandbox.contracts import ConversationOverError, SandboxError
from grpo_jax.verifiers.sandbox.sandbox import Sandbox

SYNTAX = "grpo_jax.verifiers.code.syntax"
PROGRAMS = (SYNTAX,)
"""What the sandbox must be able to run."""
_FENCES = {"python": ("python", "py", "python3"), "c": ("c",)}
_C_FILE = "program.c"


class LintVerifier:
    """Reward 1 if the program keeps every rule, else 0, with the first broken rule as the reason."""

    def __init__(self, config: LintConfig, sandbox: Sandbox) -> None:
        """Keeps rules and sandbox.

        Args:
            config: The rules.
            sandbox: Made with ``PROGRAMS``; shared with other verifiers of the process.
        """
        self._config = config
        self._sandbox = sandbox

    def __call__(self, problem: Problem, completion: Completion, /) -> Verdict:
        """Checks the program of a completion without running it.

        Args:
            problem: Not looked at: the rules are the same for all problems.
            completion: Holds the program.

        Returns:
            A verdict, with ``error`` set if the sandbox failed.
        """
        del problem
        config = self._config
        source, reason = extract_source(
            completion, config.extraction, config.max_code_characters, _FENCES[config.language]
        )
        if source is None:
            return Verdict(0.0, correct=False, parsed=None, reason=reason)
        try:
            reason = self._check_python(source) if config.language == "python" else self._check_c(source)
        except SandboxError as error:
            return Verdict(0.0, correct=False, parsed=source, reason=str(error), error=True)
        kept = reason == syntax.KEPT
        return Verdict(float(kept), correct=kept, parsed=source, reason=reason)

    def _check_python(self, source: str) -> str:
        config = self._config
        rules = {
            "forbidden_imports": config.forbidden_imports,
            "forbidden_calls": config.forbidden_calls,
            "required_function": config.required_function,
            "required_arguments": config.required_arguments,
            "compile_program": config.compile_program,
        }
        with self._sandbox.converse(SYNTAX, limits=self._sandbox.limits(config.seconds)) as parser:
            try:
                return parser.ask({"source": source, "rules": rules}, config.seconds)["reason"]
            except ConversationOverError as over:
                # A text on which the parser itself fails is no program.
                return over.ending

    def _check_c(self, source: str) -> str:
        output = ["-c", "-o", "program.o"] if self._config.compile_program else ["-fsyntax-only"]
        execution = self._sandbox.run(
            ["gcc", "-std=c17", *output, _C_FILE],
            limits=self._sandbox.limits(self._config.seconds),
            files={_C_FILE: source.encode("utf-8", "surrogatepass")},
        )
        if execution.exit_code is None:
            return "time limit" if execution.timed_out else "output limit"
        return syntax.KEPT if execution.exit_code == 0 else syntax.NOT_COMPILED
