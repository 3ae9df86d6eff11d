"""A user's own reward function as a verifier."""

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from grpo_jax.foreign.modules import described, imported, module_of
from grpo_jax.records import Completion, Problem, RewardOutOfRange, Verdict
from grpo_jax.verifiers.base import UnusableVerifierError

FULL_REWARD = 1.0
"""From this number on a reward that is a plain number counts as a right answer."""

_KIND = "reward"
"""What its module is called for ``foreign.modules``."""


class FunctionVerifier:
    """Calls ``function(problem, completion)``, which returns a Verdict, a number or a bool.

    A number is the reward, and the answer counts as right from ``FULL_REWARD`` on. Whatever the function raises is an
    error of the judge, and the completion takes no part in training.
    """

    def __init__(self, name: str) -> None:
        """Remembers which function it is; ``start`` imports it.

        Args:
            name: As for ``load_function``.
        """
        self._name = name
        self._function: Callable[[Problem, Completion], Any] | None = None

    def start(self) -> Mapping[str, str]:
        """Imports the function, in the process that will call it.

        Returns:
            Its name, with a digest of the file that was named and of the one that the function was written in.

        Raises:
            UnusableVerifierError: as ``load_function``.
        """
        self._function = load_function(self._name)
        named = imported(_place_and_attribute(self._name)[0], _KIND)
        written_in = sys.modules.get(getattr(self._function, "__module__", None) or "", named)
        return {"function": described(self._name, [named, written_in])}

    def __call__(self, problem: Problem, completion: Completion, /) -> Verdict:
        """Judges one completion.

        Args:
            problem: The problem.
            completion: The completion.

        Returns:
            The function's verdict, or one made of its number.

        Raises:
            TypeError: if the function returns anything else.
            RewardOutOfRange: if its reward is not finite, or larger than ``records.LARGEST_REWARD``.
        """
        assert self._function is not None, "start() comes first"
        try:
            return self._verdict(self._function(problem, completion))
        except RewardOutOfRange as error:
            raise RewardOutOfRange(f"{self._name}: {error}. Scale its rewards down.") from error

    def _verdict(self, result: Any) -> Verdict:
        if isinstance(result, Verdict):
            return result
        try:
            if isinstance(result, str | bytes):
                raise TypeError("a text is no number")
            reward = float(result)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{self._name} returned a {type(result).__name__}, wanted a Verdict, a number or a bool"
            ) from error
        correct = reward >= FULL_REWARD
        return Verdict(reward, correct=correct, parsed=None, reason="full reward" if correct else "not full reward")


def load_function(name: str) -> Callable[[Problem, Completion], Any]:
    """Imports a function by name; the process that judges imports it anew, so it needs no pickling.

    Args:
        name: ``path/to/file.py:function``, ``package.module:function`` or ``package.module.function``. A relative
            path counts from the working directory.

    Returns:
        The function.

    Raises:
        UnusableVerifierError: if there is no such file, module or function, importing it fails, or it does not take
            two arguments.
    """
    place, attribute = _place_and_attribute(name)
    if not place or not attribute.isidentifier():
        raise _unusable(name, "that is no such name")
    try:
        module = module_of(place, _KIND)
    except (Exception, SystemExit) as error:
        raise _unusable(name, f"importing it fails: {type(error).__name__}: {error}") from error
    function = getattr(module, attribute, None)
    if not callable(function):
        public = ", ".join(sorted(key for key, value in vars(module).items() if callable(value) and key[0] != "_"))
        raise _unusable(name, f"there is no function {attribute!r} in it (functions there: {public or 'none'})")
    _check_signature(name, function)
    return function


def _place_and_attribute(name: str) -> tuple[str, str]:
    place, colon, attribute = name.rpartition(":")
    if not colon and name.endswith(".py"):
        raise _unusable(name, "it names a file and no function")
    if not colon:
        place, _, attribute = name.rpartition(".")
    return place, attribute


def _check_signature(name: str, function: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # A function written in C need not tell its arguments.
        return
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise _unusable(name, f"it cannot be called with a problem and a completion: {error}") from error


def _unusable(name: str, cause: str) -> UnusableVerifierError:
    return UnusableVerifierError(
        f"config.verifier.function: got {name!r}, but {cause}. Wanted FILE.py:FUNCTION or package.module:FUNCTION of a "
        "function at the top level of its file (no lambda, no inner function)."
    )
