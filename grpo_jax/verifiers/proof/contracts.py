"""What a prover is asked and what it answers."""

import dataclasses
import re
from collections.abc import Callable
from typing import Protocol

from grpo_jax.config.proof import ProofConfig
from grpo_jax.records import Problem
from grpo_jax.verifiers.sandbox.contracts import Execution, Limits
from grpo_jax.verifiers.sandbox.sandbox import Sandbox

PROVED = "proved"
NOT_COMPILED = "does not compile"
NOT_FOUND = "theorem not found"
CHANGED = "statement changed"
AXIOMS = "uses axioms"
SORRY = "uses sorry"
REPLAY = "replay failed"
TIME, MEMORY, OUTPUT, CRASHED = "time limit", "memory limit", "output limit", "prover crashed"

MAX_CHALLENGES = 256
"""Compiled statements that a worker keeps: the completions of a group share one."""

MIN_FILE_BYTES = 32 * 2**20
"""Least size of files and output that a prover is allowed: compiled libraries are larger than what programs print."""

_NAME = re.compile(r"[^\W\d][\w']*(?:\.[^\W\d][\w']*)*")


@dataclasses.dataclass(frozen=True)
class Challenge:
    """What is to be proved, from the data and trusted.

    Attributes:
        statement: The proposition in Coq; the theorem without its proof, or the proposition, in Lean.
        theorem: Name that the proof must give it.
        preamble: Imports, openings and definitions that the statement needs.
    """

    statement: str
    theorem: str
    preamble: str = ""


class ProofRefusedError(Exception):
    """A proof is not accepted; the message is a short, stable phrase."""


class ProverFaultError(Exception):
    """The statement or the prover does not work: a fault of the data or of the judge, not of the proof."""


class Prover(Protocol):
    """Checks proofs with one prover."""

    def check(self, challenge: Challenge, source: str) -> None:
        """Accepts a proof by returning.

        Args:
            challenge: What is to be proved.
            source: The model's text; never trusted.

        Raises:
            ProofRefusedError: if it is no proof.
            ProverFaultError: if that cannot be decided.
        """
        ...


def parse_challenge(problem: Problem) -> Challenge:
    """Reads a problem's challenge.

    Args:
        problem: ``extra`` holds ``statement``, ``theorem`` and, if needed, ``preamble``.

    Returns:
        The challenge.

    Raises:
        ProverFaultError: saying what is missing.
    """
    values = {name: problem.extra.get(name, "") for name in ("statement", "theorem", "preamble")}
    for name, value in values.items():
        if not isinstance(value, str) or (name != "preamble" and not value.strip()):
            raise ProverFaultError(f"problem {problem.identifier!r}: extra[{name!r}]: got {value!r}, wanted a text")
    if not _NAME.fullmatch(values["theorem"]):
        raise ProverFaultError(
            f"problem {problem.identifier!r}: extra['theorem']: got {values['theorem']!r}, wanted a theorem's name"
        )
    return Challenge(values["statement"].strip(), values["theorem"], values["preamble"].strip())


def step_limits(config: ProofConfig, sandbox: Sandbox, seconds: float) -> Limits:
    """What a step of a prover may use: more memory and larger files than a small program.

    Args:
        config: Gives the memory.
        sandbox: Gives the rest.
        seconds: Wall time.

    Returns:
        The limits.
    """
    usual = sandbox.limits(seconds)
    return dataclasses.replace(
        usual,
        memory_bytes=config.memory_mebibytes * 2**20,
        file_bytes=max(usual.file_bytes, MIN_FILE_BYTES),
        output_bytes=max(usual.output_bytes, MIN_FILE_BYTES),
    )


def refuse_unfinished(execution: Execution) -> None:
    """Raises a ProofRefusedError unless a step came to its own end."""
    if execution.timed_out or execution.exit_code == -24:
        # The signal of the limit on CPU time.
        raise ProofRefusedError(TIME)
    if execution.out_of_memory or (execution.exit_code and b"Out of memory" in execution.stderr):
        raise ProofRefusedError(MEMORY)
    if execution.output_truncated:
        raise ProofRefusedError(OUTPUT)
    if execution.exit_code is None or execution.exit_code < 0:
        raise ProofRefusedError(CRASHED)


class Challenges:
    """Compiled challenges, so that the completions of a group share one."""

    def __init__(self, build: Callable[[Challenge], bytes]) -> None:
        """Remembers how one is compiled."""
        self._build = build
        self._compiled: dict[Challenge, bytes] = {}

    def compiled(self, challenge: Challenge) -> bytes:
        """The compiled statement.

        Raises:
            ProverFaultError: if it does not compile.
        """
        if challenge not in self._compiled:
            content = self._build(challenge)
            if len(self._compiled) >= MAX_CHALLENGES:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[challenge] = content
        return self._compiled[challenge]
