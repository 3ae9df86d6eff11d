"""One program against one problem's tests: the judge's side, which alone knows what is expected."""

import time
from collections.abc import Sequence
from typing import Any

from grpo_jax.config.sandbox import CodeConfig
from grpo_jax.verifiers.code import loading, values
from grpo_jax.verifiers.code.candidate import KINDS
from grpo_jax.verifiers.code.compare import equal_output, equal_values
from grpo_jax.verifiers.code.suite import Case, Suite, SuiteError
from grpo_jax.verifiers.sandbox.contracts import ConversationOverError, Ending, Execution, Limits
from grpo_jax.verifiers.sandbox.conversation import Conversation
from grpo_jax.verifiers.sandbox.sandbox import Sandbox

CANDIDATE, SCRIPT, JUDGE = (f"grpo_jax.verifiers.code.{name}" for name in ("candidate", "script", "judge"))
PROGRAMS = (CANDIDATE, SCRIPT, JUDGE)
"""What the sandbox must be able to run."""

PASSED, FAILED = "", "failed"
NO_FUNCTION, NOT_LOADED, NOT_COMPILED = "no such function", "error while loading", "syntax error"


class Trial:
    """Runs one program against one suite."""

    def __init__(self, config: CodeConfig, sandbox: Sandbox, suite: Suite, source: str) -> None:
        """Starts the clock.

        Args:
            config: Limits of time, tolerance, and whether to go on after a failure.
            sandbox: Where the program runs.
            suite: The tests.
            source: The program's text.
        """
        self._config = config
        self._sandbox = sandbox
        self._suite = suite
        self._source = source
        self._deadline = time.monotonic() + config.total_seconds

    def outcomes(self) -> list[str]:
        """Runs the tests.

        Returns:
            For each test nothing if it was passed, ``FAILED``, or a stable phrase that says what went wrong. Tests
            that were not run because one before them failed count as failed.

        Raises:
            SuiteError: if the tests in code cannot be used.
            SandboxError: if the sandbox failed.
        """
        if self._suite.style == "code":
            return self._run_code()
        cases, outcomes = self._suite.cases, list[str]()
        run = self._call if self._suite.style == "call" else self._run_script
        while len(outcomes) < len(cases) and (self._config.stepped or not any(outcomes)):
            if self._remaining_seconds() <= 0:
                outcomes.append(Ending.TIME)
            else:
                outcomes += run(cases[len(outcomes) :])
        return outcomes + [FAILED] * (len(cases) - len(outcomes))

    def _run_script(self, cases: Sequence[Case]) -> list[str]:
        """Runs the first of the cases."""
        execution = self._sandbox.run_python(
            SCRIPT,
            limits=self._limits(min(self._config.case_seconds, self._remaining_seconds())),
            stdin=_bytes(cases[0].given),
            files={loading.FILE_NAME: _bytes(self._source)},
        )
        fault = _script_fault(execution)
        if fault:
            return [fault]
        equal = equal_output(execution.stdout, _bytes(cases[0].expected), self._config.float_tolerance)
        return [PASSED if equal else FAILED]

    def _call(self, cases: Sequence[Case]) -> list[str]:
        """Runs the cases up to one that ends the program's process, or fails where that is enough."""
        with self._sandbox.converse(CANDIDATE, limits=self._limits(self._remaining_seconds())) as program:
            names, fault = self._load(program)
            if not fault and not {self._suite.entry.split(".")[0], "Solution"} & names.keys():
                fault = NO_FUNCTION
            if fault:
                return [fault] * len(cases)
            outcomes = []
            for case in cases:
                request = {"name": self._suite.entry, "attribute": None, **_arguments(case.given)}
                try:
                    reply = program.ask(request, self._config.case_seconds)
                except ConversationOverError as over:
                    return [*outcomes, over.ending]
                outcomes.append(self._outcome(reply, case))
                if outcomes[-1] and not self._config.stepped:
                    break
            return outcomes

    def _load(self, program: Conversation) -> tuple[dict[str, Any], str]:
        """Loads the source; returns the program's names as it describes them, or what went wrong."""
        try:
            loaded = program.ask({"source": self._source}, self._config.case_seconds)
        except ConversationOverError as over:
            return {}, over.ending
        if type(loaded) is not dict:
            return {}, Ending.PROTOCOL
        if "names" in loaded:
            names = loaded["names"]
            return (names, "") if _are_described(names) else ({}, Ending.PROTOCOL)
        return {}, NOT_COMPILED if loaded.get("fault") == NOT_COMPILED else _raised(loaded) or Ending.PROTOCOL

    def _outcome(self, reply: Any, case: Case) -> str:
        if type(reply) is not dict:
            return Ending.PROTOCOL
        if "value" not in reply:
            return FAILED if _raised(reply) == NOT_LOADED else _raised(reply) or Ending.PROTOCOL
        try:
            actual = values.decode(reply["value"])
        except values.NotPlainError:
            # Some object, or what a program wrote that took over its process.
            return FAILED
        return PASSED if equal_values(actual, case.expected, self._config.float_tolerance) else FAILED

    def _run_code(self) -> list[str]:
        limits = self._limits(self._remaining_seconds())
        with self._sandbox.converse(CANDIDATE, limits=limits) as program:
            names, fault = self._load(program)
            if fault:
                return [fault]
            with self._sandbox.converse(JUDGE, limits=limits) as judge:
                suite = self._suite
                asked = {"code": suite.code, "module": suite.module, "entry": suite.entry, "names": names}
                return self._mediate(judge, asked, program)

    def _mediate(self, judge: Conversation, message: dict[str, Any], program: Conversation) -> list[str]:
        """Carries the judge's requests to the program and the replies back, until the judge gives its results."""
        ending = ""
        while True:
            try:
                result = judge.ask(message, self._remaining_seconds())
            except RecursionError:
                # A reply so deep that it could be read but not be written again.
                message, ending = {"over": True}, Ending.PROTOCOL
                continue
            except ConversationOverError as over:
                if over.ending == Ending.TIME:
                    return [ending or over.ending]
                raise SuiteError(f"the tests' process ended: {over.ending}") from over
            if "request" not in result:
                break
            try:
                message = {"over": True} if ending else program.ask(result["request"], self._config.case_seconds)
            except ConversationOverError as over:
                message, ending = {"over": True}, over.ending
            if type(message) is not dict:
                message, ending = {"over": True}, Ending.PROTOCOL
        if "fault" in result:
            raise SuiteError(result["fault"])
        if not result["outcomes"]:
            raise SuiteError("the code holds no test")
        return [PASSED if passed else ending or FAILED for passed in result["outcomes"]]

    def _remaining_seconds(self) -> float:
        return self._deadline - time.monotonic()

    def _limits(self, wall_seconds: float) -> Limits:
        return self._sandbox.limits(max(wall_seconds, 0.001))


def _arguments(given: list[Any] | dict[str, Any]) -> dict[str, Any]:
    arguments, keywords = ((), given) if isinstance(given, dict) else (given, {})
    return {"arguments": values.encode(list(arguments)), "keywords": values.encode(dict(keywords))}


def _are_described(names: Any) -> bool:
    """Whether names have the form that the candidate program gives them, unless something else has taken its place."""
    if type(names) is not dict or not all(map(str.isidentifier, names)):
        return False
    for described in names.values():
        if type(described) is not list or len(described) != 2 or described[0] not in KINDS:
            return False
        if type(described[1]) is not list or not all(type(name) is str for name in described[1]):
            return False
    return True


def _raised(reply: dict[str, Any]) -> str:
    raised = reply.get("raised")
    if type(raised) is not list:
        return ""
    return Ending.MEMORY if "MemoryError" in raised else NOT_LOADED


def _script_fault(execution: Execution) -> str:
    if execution.timed_out:
        return Ending.TIME
    if execution.output_truncated:
        return Ending.OUTPUT
    if execution.out_of_memory:
        return Ending.MEMORY
    if execution.exit_code == 0:
        return ""
    last_line = execution.stderr.rstrip().rpartition(b"\n")[2]
    for name, phrase in ((b"MemoryError", Ending.MEMORY), (b"SyntaxError", NOT_COMPILED)):
        if last_line.startswith(name):
            return phrase
    return Ending.CRASHED


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
