"""Checks proofs with Coq, in steps that share nothing but compiled files.

1. The statement is compiled alone, as ``Challenge.goal``.
2. The model's text is compiled beside it, in a folder of its own. Only the compiled file is taken out.
3. A new process reads both compiled files, without opening any name of the model's. It lets Coq's kernel check that
   the model's theorem proves the goal, and tell what it assumes.

``coqc`` exits with 0 for texts that prove nothing, so the verdict comes from the third step alone.
"""

import re
import secrets
from collections.abc import Mapping

from grpo_jax.config.proof import ProofConfig
from grpo_jax.verifiers.proof import contracts, coq_source, installation
from grpo_jax.verifiers.proof.contracts import Challenge, Challenges, ProofRefusedError, ProverFaultError
from grpo_jax.verifiers.proof.installation import Installation
from grpo_jax.verifiers.sandbox.contracts import Execution
from grpo_jax.verifiers.sandbox.sandbox import Sandbox

CLOSED = "Closed under the global context\n"
"""All that Coq prints for a theorem that assumes nothing."""
MODULE = "Challenge"
_MAX_SHOWN = 500
_ENTRY = re.compile(r"[\w'.]+\s+:\s")
_FLAGS = ("-q", "-noglob", "-w", "none", "-Q", ".", "")


class CoqProver:
    """Accepts a proof that Coq's kernel accepts for the statement, without axioms outside the list."""

    def __init__(self, config: ProofConfig, installed: Installation, sandbox: Sandbox) -> None:
        """Keeps the sandbox.

        Args:
            config: Limits and allowed axioms.
            installed: Where Coq is.
            sandbox: Can read what Coq needs.

        Raises:
            UnusableVerifierError: if proofs are to be replayed and the checker is not there.
        """
        self._config = config
        self._command = installed.command
        self._sandbox = sandbox
        self._challenges = Challenges(self._compile_challenge)
        self._checker = (
            installation.find_checker("coq_checker", config.coq_checker, installed.prefix) if config.replay else ()
        )

    def check(self, challenge: Challenge, source: str) -> None:
        """Accepts a proof by returning.

        Args:
            challenge: Its statement is a proposition.
            source: Either a file that may say ``Require Challenge`` and proves ``Challenge.goal``, or the same
                proposition written out, under the theorem's name; or only ``Proof. ... Qed.``.

        Raises:
            ProofRefusedError: if it is no proof.
            ProverFaultError: if the statement does not compile.
        """
        command = coq_source.refused_command(source, self._config.forbidden)
        if command is not None:
            raise ProofRefusedError(f"forbidden command: {command}")
        statement = self._challenges.compiled(challenge)
        # Names that the model cannot know cannot be used up, shadowed or written to.
        nonce = secrets.token_hex(8)
        files = {
            f"{MODULE}.vo": statement,
            f"Proof_{nonce}.vo": self._compile_proof(challenge, source, statement, nonce),
        }
        self._check_theorem(challenge, files, nonce)
        if self._checker:
            limits = contracts.step_limits(self._config, self._sandbox, self._config.compile_seconds)
            argv = [*self._checker, "-silent", "-Q", ".", "", f"Proof_{nonce}"]
            execution = self._sandbox.run(argv, limits=limits, files=files)
            contracts.refuse_unfinished(execution)
            if execution.exit_code != 0:
                raise ProofRefusedError(contracts.REPLAY)

    def _compile_challenge(self, challenge: Challenge) -> bytes:
        text = f"{challenge.preamble}\nDefinition goal : Prop := {challenge.statement.removesuffix('.')}.\n"
        execution = self._compile(MODULE, text, {}, self._config.compile_seconds)
        if execution.exit_code != 0 or f"{MODULE}.vo" not in execution.files:
            raise ProverFaultError(f"the statement of {challenge.theorem!r} does not compile: {_said(execution)}")
        return execution.files[f"{MODULE}.vo"]

    def _compile_proof(self, challenge: Challenge, source: str, statement: bytes, nonce: str) -> bytes:
        if coq_source.is_bare_proof(source):
            # The goal is shown written out: most tactics do not look behind a name.
            goal = f"ltac:(let goal := eval unfold {MODULE}.goal in {MODULE}.goal in exact goal)"
            source = f"Require Import {MODULE}.\nTheorem {challenge.theorem} : {goal}.\n{source}"
        text = f"{coq_source.context(challenge.preamble, MODULE)}\n{source}\n"
        name = f"Proof_{nonce}"
        execution = self._compile(name, text, {f"{MODULE}.vo": statement}, self._config.compile_seconds)
        contracts.refuse_unfinished(execution)
        if execution.exit_code != 0 or f"{name}.vo" not in execution.files:
            raise ProofRefusedError(contracts.NOT_COMPILED)
        return execution.files[f"{name}.vo"]

    def _check_theorem(self, challenge: Challenge, files: Mapping[str, bytes], nonce: str) -> None:
        text = _check_text(challenge.theorem, nonce, ())
        execution = self._compile(f"Check_{nonce}", text, files, self._config.check_seconds)
        contracts.refuse_unfinished(execution)
        if execution.exit_code != 0:
            raise ProofRefusedError(_mismatch(execution))
        if execution.stdout.decode("utf-8", "replace") == CLOSED:
            return
        if not self._config.coq_axioms or not self._assumes_allowed(challenge, files, nonce):
            raise ProofRefusedError(contracts.AXIOMS)

    def _assumes_allowed(self, challenge: Challenge, files: Mapping[str, bytes], nonce: str) -> bool:
        """Whether all assumptions are allowed: both are printed by one process, so that equal text is equal names."""
        text = _check_text(challenge.theorem, nonce, self._config.coq_axioms)
        execution = self._compile(f"Check_{nonce}", text, files, self._config.check_seconds)
        contracts.refuse_unfinished(execution)
        if execution.exit_code != 0:
            raise ProverFaultError(f"config.verifier.proof.coq_axioms: Coq does not know them all: {_said(execution)}")
        assumed, marker, allowed = execution.stdout.decode("utf-8", "replace").partition(f"{nonce}\n")
        entries = _entries(assumed)
        return bool(marker) and all(map(_ENTRY.match, entries)) and entries <= _entries(allowed)

    def _compile(self, name: str, text: str, files: Mapping[str, bytes], seconds: float) -> Execution:
        argv = [*self._command, *_FLAGS, f"{name}.v"]
        contents = {f"{name}.v": text.encode(), **files}
        limits = contracts.step_limits(self._config, self._sandbox, seconds)
        return self._sandbox.run(argv, limits=limits, files=contents, collect=[f"{name}.vo"])


def _check_text(theorem: str, nonce: str, allowed: tuple[str, ...]) -> str:
    libraries = [f"Require {axiom.rpartition('.')[0]}." for axiom in allowed]
    # What is printed is compared as text, so a setting of the model's must not shorten it.
    settings = ["Set Printing Depth 1000000.", "Set Printing Width 100."] if allowed else []
    marker = [f'Goal True. idtac "{nonce}". Abort.'] if allowed else []
    return "\n".join(
        (
            f"Require {MODULE}.",
            *dict.fromkeys(libraries),
            # Bound before any of the model's names exist; and none is opened afterwards.
            f"Definition goal_{nonce} : Prop := {MODULE}.goal.",
            f"Require Proof_{nonce}.",
            f"Definition proof_{nonce} : goal_{nonce} := Proof_{nonce}.{theorem}.",
            *settings,
            f"Print Assumptions proof_{nonce}.",
            *marker,
            *(f"Print Assumptions {axiom}." for axiom in allowed),
            "",
        )
    )


def _mismatch(execution: Execution) -> str:
    found_nothing = b"was not found in the current" in execution.stderr
    return contracts.NOT_FOUND if found_nothing else contracts.CHANGED


def _entries(printed: str) -> frozenset[str]:
    """The assumptions in what ``Print Assumptions`` prints: each begins a line, and its other lines are indented."""
    entries = re.split(r"\n(?!\s)", printed.strip("\n"))
    return frozenset(entries) - {"Axioms:", ""}


def _said(execution: Execution) -> str:
    ending = "it runs out of time or memory. " if execution.exit_code is None else ""
    return ending + execution.stderr.decode("utf-8", "replace").strip()[-_MAX_SHOWN:]
