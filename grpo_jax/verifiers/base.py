"""What every verifier is: a callable from a problem and a completion to a verdict."""

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
