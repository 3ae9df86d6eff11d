"""What every verifier is: a callable from a problem and a completion to a verdict."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from grpo_jax.records import Completion, Problem, Verdict


@runtime_checkable
class Verifier(Protocol):
    """Judges one completion, the same way every time.

    A completion that is wrong, unparsable or truncated gets a verdict with reward 0 and a reason.
    A fault of the judge itself (a reference answer that cannot be read) gets ``error=True``; an
    exception is turned into such a verdict by the pool. The pool also measures ``seconds``.
    """

    def __call__(self, problem: Problem, completion: Completion, /) -> Verdict:
        """Judges one completion.

        Args:
            problem: The problem with its reference answer.
            completion: What the model wrote; never trusted.

        Returns:
            The verdict.
        """
        ...


@runtime_checkable
class ChecksReferences(Protocol):
    """A verifier that can tell a useless reference without a completion, so that a run finds it before it starts."""

    def reference_fault(self, problem: Problem, /) -> str:
        """Says why a problem cannot be judged.

        Args:
            problem: The problem; its reference is read and nothing is run.

        Returns:
            The fault, or an empty text where there is none.
        """
        ...


@runtime_checkable
class NeedsStart(Protocol):
    """A verifier that needs something of the machine, such as a sandbox, before it can judge."""

    def start(self) -> Mapping[str, str]:
        """Gets ready, once and in the process that will judge.

        Returns:
            What people should know of it, by name: ``{"sandbox": "namespaces"}``.

        Raises:
            UnusableVerifierError: with what is missing and how to get it.
        """
        ...


class UnusableVerifierError(RuntimeError):
    """A verifier cannot work on this machine or with this configuration; trying again does not help."""

    exit_status = 2
