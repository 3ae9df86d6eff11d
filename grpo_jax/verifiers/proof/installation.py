"""Finds the provers of this machine."""

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Sequence

from grpo_jax.config.proof import ProofConfig
from grpo_jax.verifiers.base import UnusableVerifierError

QUESTION_SECONDS = 30.0
"""Wall time for a prover to say where it is installed."""
_FINDLIB = ("/etc/ocamlfind.conf", "/etc/ocamlfind.conf.d")


@dataclasses.dataclass(frozen=True)
class Installation:
    """A prover of this machine.

    Attributes:
        command: Program and first arguments.
        version: What it says of itself.
        prefix: Folder that it is installed in.
        read_paths: What it must be able to read and run.
    """

    command: tuple[str, ...]
    version: str
    prefix: str
    read_paths: tuple[str, ...]


def find_coq(config: ProofConfig) -> Installation:
    """Finds Coq.

    Raises:
        UnusableVerifierError: if it is not there, or does not say where its library is.
    """
    remedy = "Install it, for example with 'apt-get install coq' or 'opam install coq', or set coq_command to its path."
    program = _found("coq_command", config.coq_command, remedy)
    command = (program, *config.coq_command[1:])
    version = _answer("coq_command", [*command, "--print-version"], remedy).split()[0]
    library = _answer("coq_command", [*command, "-where"], remedy)
    prefix = os.path.dirname(os.path.dirname(os.path.realpath(program)))
    return Installation(command, version, prefix, _existing((prefix, library, *_FINDLIB, *config.read_paths)))


def find_lean(config: ProofConfig) -> Installation:
    """Finds Lean 4, behind the program of elan that chooses a toolchain.

    Raises:
        UnusableVerifierError: if it is not there, or does not say where it is installed.
    """
    remedy = "Install it with elan (https://lean-lang.org/install), or set lean_command to its path."
    program = _found("lean_command", config.lean_command, remedy)
    command = (program, *config.lean_command[1:])
    prefix = _answer("lean_command", [*command, "--print-prefix"], remedy)
    version = _answer("lean_command", [*command, "--version"], remedy)
    inner = os.path.join(prefix, "bin", "lean")
    if os.path.exists(inner):
        command = (inner, *config.lean_command[1:])
    return Installation(command, version, prefix, _existing((prefix, *config.lean_paths, *config.read_paths)))


def find_checker(key: str, command: Sequence[str], prefix: str) -> tuple[str, ...]:
    """Finds the program that replays proofs, in the prover's own folder first.

    Args:
        key: Its key in the configuration, for the message.
        command: Program and first arguments.
        prefix: The prover's folder.

    Returns:
        The command with the program's path.

    Raises:
        UnusableVerifierError: if it is not there.
    """
    path = os.pathsep.join((os.path.join(prefix, "bin"), os.environ.get("PATH", os.defpath)))
    remedy = f"Install it, set {key} to its path, or set replay to False."
    return (_found(key, command, remedy, path), *command[1:])


def _found(key: str, command: Sequence[str], remedy: str, path: str | None = None) -> str:
    program = shutil.which(command[0], path=path)
    if program is None:
        raise UnusableVerifierError(
            f"config.verifier.proof.{key}: got {command[0]!r}, wanted a program; there is none. {remedy}"
        )
    return os.path.abspath(program)


def _answer(key: str, command: Sequence[str], remedy: str) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=QUESTION_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UnusableVerifierError(
            f"config.verifier.proof.{key}: {' '.join(command)[:200]!r} fails: {error}. {remedy}"
        ) from error
    if not done.stdout.strip():
        raise UnusableVerifierError(
            f"config.verifier.proof.{key}: {' '.join(command)[:200]!r} answers nothing. {remedy}"
        )
    return done.stdout.strip()


def _existing(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for path in map(os.path.abspath, paths) if os.path.exists(path)))
