"""Checks proofs with Lean 4, by its command line and its messages in JSON.

1. The statement is compiled alone, with ``sorry`` as its proof.
2. The model's text, free of code that would run in Lean, is compiled in a folder of its own. Only the compiled file
   is taken out.
3. A new process reads both compiled files as data, compares what the theorem says in each, constant by constant, and
   follows the proof down to its axioms.
4. If configured, one more program checks the compiled file with Lean's kernel again.
"""

import json
import secrets
from collections.abc import Mapping
from typing import Any

from grpo_jax.config.proof import ProofConfig
from grpo_jax.verifiers.proof import contracts, installation, lean_source
from grpo_jax.verifiers.proof.contracts import Challenge, Challenges, ProofRefusedError, ProverFaultError
from grpo_jax.verifiers.proof.installation import Installation
from grpo_jax.verifiers.proof.lean_program import PROGRAM
from grpo_jax.verifiers.sandbox.contracts import Execution
from grpo_jax.verifiers.sandbox.sandbox import Sandbox

THREADS = "-j2"
"""Lean would start one for each core, more than a sandbox may allow."""
_SOURCE, _COMPILED = "Proof.lean", "Proof.olean"
_SEVERITIES = ("info", "information", "warning", "error")
_MAX_SHOWN = 500


class LeanProver:
    """Accepts a theorem that says what the statement says, without ``sorry`` or axioms outside the list."""

    def __init__(self, config: ProofConfig, installed: Installation, sandbox: Sandbox) -> None:
        """Keeps the sandbox.

        Args:
            config: Limits, allowed imports and axioms.
            installed: Where Lean is.
            sandbox: Can read Lean and the compiled libraries.

        Raises:
            UnusableVerifierError: if proofs are to be replayed and the checker is not there.
        """
        self._config = config
        self._installed = installed
        self._sandbox = sandbox
        self._challenges = Challenges(self._compile_challenge)
        self._checker = (
            installation.find_checker("lean_checker", config.lean_checker, installed.prefix) if config.replay else ()
        )

    def check(self, challenge: Challenge, source: str) -> None:
        """Accepts a proof by returning.

        Args:
            challenge: Its statement is a theorem without its proof, or a proposition.
            source: A file that holds the theorem, or only its proof, from ``by`` or ``:=`` on.

        Raises:
            ProofRefusedError: if it is no proof.
            ProverFaultError: if the statement does not compile, or the comparison does not work.
        """
        text, nonce = self._composed(challenge, source), secrets.token_hex(8)
        statement = self._challenges.compiled(challenge)
        proof = self._compile_proof(text, nonce)
        files = {f"challenge/{_COMPILED}": statement, f"candidate/{_COMPILED}": proof, "Check.lean": PROGRAM.encode()}
        argv = [*self._installed.command, "--run", "Check.lean", self._installed.prefix, nonce, challenge.theorem]
        execution = self._run(argv, files, self._config.check_seconds, "candidate")
        contracts.refuse_unfinished(execution)
        self._refuse_difference(_answer(execution, nonce))
        if self._checker:
            execution = self._run([*self._checker, "Proof"], files, self._config.compile_seconds, "candidate")
            contracts.refuse_unfinished(execution)
            if execution.exit_code != 0:
                raise ProofRefusedError(contracts.REPLAY)

    def _composed(self, challenge: Challenge, source: str) -> str:
        trusted, theirs = (lean_source.split_imports(text) for text in (challenge.preamble, source))
        module = lean_source.refused_import(theirs.imports, {*trusted.imports, *self._config.lean_imports})
        if module is not None:
            raise ProofRefusedError(f"forbidden import: {module}")
        body = lean_source.without_diagnostics(theirs.body)
        own, context = body.strip(), trusted.body.strip()
        # A model may repeat the preamble or not.
        own = own.removeprefix(context)
        command = lean_source.refused_command(own, self._config.forbidden)
        if command is not None:
            raise ProofRefusedError(f"forbidden command: {command}")
        statement = lean_source.declaration(challenge.statement, challenge.theorem)
        own = lean_source.completed(own, statement)
        return _file((*trusted.imports, *theirs.imports), context, own)

    def _compile_challenge(self, challenge: Challenge) -> bytes:
        trusted = lean_source.split_imports(challenge.preamble)
        statement = lean_source.declaration(challenge.statement, challenge.theorem)
        execution = self._compile(_file(trusted.imports, trusted.body, f"{statement} := sorry"))
        if execution.exit_code != 0 or _COMPILED not in execution.files:
            raise ProverFaultError(f"the statement of {challenge.theorem!r} does not compile: {_said(execution)}")
        return execution.files[_COMPILED]

    def _compile_proof(self, text: str, nonce: str) -> bytes:
        # The last line shows that Lean has read that far.
        execution = self._compile(f'{text}\n#print "{nonce}"\n')
        contracts.refuse_unfinished(execution)
        messages = _messages(execution.stdout)
        if messages is None or execution.exit_code != 0 or any(message["severity"] == "error" for message in messages):
            raise ProofRefusedError(contracts.NOT_COMPILED)
        if any(_tells_of_sorry(message) for message in messages):
            raise ProofRefusedError(contracts.SORRY)
        last_line = text.count("\n") + 2
        reached = any(nonce in message["data"] and message["pos"]["line"] == last_line for message in messages)
        if not reached or _COMPILED not in execution.files:
            raise ProofRefusedError("ends before its last line")
        return execution.files[_COMPILED]

    def _refuse_difference(self, answer: Mapping[str, Any]) -> None:
        match answer["finding"]:
            case "no statement":
                raise ProverFaultError("the statement declares another name than the theorem's")
            case "missing":
                raise ProofRefusedError(contracts.NOT_FOUND)
            case "changed":
                raise ProofRefusedError(contracts.CHANGED)
        if "sorryAx" in answer["axioms"]:
            raise ProofRefusedError(contracts.SORRY)
        if not set(answer["axioms"]) <= set(self._config.lean_axioms):
            raise ProofRefusedError(contracts.AXIOMS)

    def _compile(self, text: str) -> Execution:
        # Both files have the same name: Lean makes it a part of hidden names.
        argv = [*self._installed.command, THREADS, "--json", "-o", _COMPILED, _SOURCE]
        return self._run(argv, {_SOURCE: text.encode()}, self._config.compile_seconds)

    def _run(self, argv: list[str], files: Mapping[str, bytes], seconds: float, *folders: str) -> Execution:
        environment = {"LEAN_PATH": ":".join((*folders, *self._config.lean_paths))}
        limits = contracts.step_limits(self._config, self._sandbox, seconds)
        return self._sandbox.run(argv, limits=limits, files=files, collect=[_COMPILED], environment=environment)


def _file(imports: tuple[str, ...], *parts: str) -> str:
    return "\n".join((*(f"import {module}" for module in dict.fromkeys(imports)), *parts))


def _messages(stdout: bytes) -> list[dict[str, Any]] | None:
    """The messages that Lean has printed, or ``None`` if it has printed anything else."""
    messages = []
    for line in stdout.decode("utf-8", "replace").splitlines():
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not _is_message(message):
            return None
        messages.append(message)
    return messages


def _is_message(message: Any) -> bool:
    return (
        isinstance(message, dict)
        and message.get("severity") in _SEVERITIES
        and isinstance(message.get("data"), str)
        and isinstance(message.get("pos"), dict)
        and type(message["pos"].get("line")) is int
    )


def _tells_of_sorry(message: Mapping[str, Any]) -> bool:
    return message["severity"] == "warning" and "declaration uses" in message["data"] and "sorry" in message["data"]


def _answer(execution: Execution, nonce: str) -> dict[str, Any]:
    try:
        answer = json.loads(execution.stdout)
    except (ValueError, RecursionError):
        answer = None
    if (
        execution.exit_code != 0
        or not isinstance(answer, dict)
        or answer.get("nonce") != nonce
        or answer.get("finding") not in ("same", "changed", "missing", "no statement")
        or not isinstance(answer.get("axioms"), list)
    ):
        raise ProverFaultError(f"Lean cannot compare the proof with the statement: {_said(execution)}")
    return answer


def _said(execution: Execution) -> str:
    ending = "it runs out of time or memory. " if execution.exit_code is None else ""
    return ending + (execution.stdout + execution.stderr).decode("utf-8", "replace").strip()[-_MAX_SHOWN:]
