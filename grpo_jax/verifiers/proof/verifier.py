"""The verifier of proofs: takes the proof from a completion and lets a prover check it."""

from collections.abc import Mapping

from grpo_jax.config.checks import ConfigError
from grpo_jax.config.proof import ProofConfig, ProverName
from grpo_jax.config.sandbox import SandboxConfig
from grpo_jax.records import Completion, Problem, Verdict
from grpo_jax.verifiers.base import UnusableVerifierError
from grpo_jax.verifiers.code.source import extract_source
from grpo_jax.verifiers.proof import contracts
from grpo_jax.verifiers.proof.contracts import ProofRefusedError, Prover, ProverFaultError
from grpo_jax.verifiers.proof.coq import CoqProver
from grpo_jax.verifiers.proof.installation import find_coq, find_lean
from grpo_jax.verifiers.proof.lean import LeanProver
from grpo_jax.verifiers.sandbox.contracts import SandboxError
from grpo_jax.verifiers.sandbox.sandbox import Sandbox

LANGUAGES: Mapping[ProverName, tuple[str, ...]] = {"coq": ("coq", "rocq", "v"), "lean4": ("lean", "lean4")}
"""Names of a prover's language on a fenced block."""


class ProofVerifier:
    """Reward 1 if a prover accepts the completion's proof of the problem's statement, else 0."""

    def __init__(self, config: ProofConfig, sandbox: SandboxConfig) -> None:
        """Remembers both; ``start``, or else the first problem, opens a sandbox and looks for the prover.

        Args:
            config: The prover, its limits, and what proofs may use.
            sandbox: How provers are confined.
        """
        self._config = config
        self._sandbox_config = sandbox
        self._provers: dict[ProverName, Prover] = {}
        self._sandboxes: list[Sandbox] = []

    def start(self) -> Mapping[str, str]:
        """Opens the sandbox with the configured prover, in the process that will judge.

        Returns:
            The sandbox's level and the prover's version.

        Raises:
            UnusableVerifierError: if the prover or a good enough sandbox is not there.
        """
        return self._open(self._config.prover)

    def close(self) -> None:
        """Ends the sandboxes."""
        while self._sandboxes:
            self._sandboxes.pop().close()
        self._provers.clear()

    def reference_fault(self, problem: Problem, /) -> str:
        """What is wrong with a problem's statement, theorem, preamble or prover, as far as reading tells."""
        try:
            contracts.parse_challenge(problem)
            self._prover_name(problem)
        except ProverFaultError as error:
            return str(error)
        return ""

    def __call__(self, problem: Problem, completion: Completion, /) -> Verdict:
        """Lets the prover check the proof.

        Args:
            problem: ``extra`` holds ``statement``, ``theorem`` and, if needed, ``preamble`` and ``prover``.
            completion: Holds the proof.

        Returns:
            A verdict, with ``error`` set if the statement, the prover or the sandbox does not work.
        """
        source = None
        try:
            challenge = contracts.parse_challenge(problem)
            name = self._prover_name(problem)
            if name not in self._provers:
                self._open(name)
            source, reason = extract_source(
                completion, self._config.extraction, self._config.max_source_characters, LANGUAGES[name]
            )
            if source is None:
                return Verdict(0.0, correct=False, parsed=None, reason=reason)
            if any("\ud800" <= character <= "\udfff" for character in source):
                raise ProofRefusedError("no valid text")
            self._provers[name].check(challenge, source)
        except ProofRefusedError as refusal:
            return Verdict(0.0, correct=False, parsed=source, reason=str(refusal))
        except (ProverFaultError, SandboxError, UnusableVerifierError) as fault:
            return Verdict(0.0, correct=False, parsed=source, reason=str(fault), error=True)
        return Verdict(1.0, correct=True, parsed=source, reason=contracts.PROVED)

    def _prover_name(self, problem: Problem) -> ProverName:
        name = problem.extra.get("prover", self._config.prover)
        if name not in LANGUAGES:
            raise ProverFaultError(
                f"problem {problem.identifier!r}: extra['prover']: got {name!r}, wanted {' or '.join(LANGUAGES)}"
            )
        return name

    def _open(self, name: ProverName) -> dict[str, str]:
        installed = find_coq(self._config) if name == "coq" else find_lean(self._config)
        try:
            sandbox = Sandbox(self._sandbox_config, read_paths=installed.read_paths)
        except ConfigError as error:
            raise UnusableVerifierError(str(error)) from error
        self._sandboxes.append(sandbox)
        make = CoqProver if name == "coq" else LeanProver
        self._provers[name] = make(self._config, installed, sandbox)
        return {"sandbox": sandbox.level.value, name: installed.version}
