"""The rubric of an environment of the ``verifiers`` library as a verifier."""

import asyncio
import importlib.util
import inspect
from collections.abc import Mapping
from typing import Any

from grpo_jax.foreign import environments
from grpo_jax.foreign.modules import described, imported
from grpo_jax.records import Completion, FinishReason, Problem, Verdict
from grpo_jax.verifiers.base import UnusableVerifierError
from grpo_jax.verifiers.function import FULL_REWARD


class EnvironmentVerifier:
    """Reward ``sum_i weight_i * reward_i`` over the rubric's functions; the first of them decides ``correct``.

    Whatever a function raises is an error of the judge; the library itself would count it as 0.
    """

    def __init__(self, name: str) -> None:
        """Remembers which environment it is; ``start`` loads it.

        Args:
            name: As for ``environments.load``.
        """
        self._name = name
        self._rewards: list[environments.Reward] = []

    def start(self) -> Mapping[str, str]:
        """Loads the environment, in the process that will judge.

        Returns:
            Its name and reward functions, with a digest of its file.

        Raises:
            UnusableVerifierError: if it cannot be used.
        """
        try:
            self._rewards = environments.rewards(environments.load(self._name))
        except environments.EnvironmentFault as error:
            raise UnusableVerifierError(f"config.verifier.environment: {error}.") from error
        module = imported(self._name.partition(":")[0], environments.KIND)
        return {"environment": described(f"{self._name}: {', '.join(one.name for one in self._rewards)}", [module])}

    def reference_fault(self, problem: Problem, /) -> str:
        """Says so where the problem is none of an environment's."""
        known = isinstance(problem.extra.get(environments.COLUMN), Mapping)
        return "" if known else f"problem {problem.identifier!r} is none of data.task 'environment'"

    def __call__(self, problem: Problem, completion: Completion, /) -> Verdict:
        """Asks the rubric's functions.

        Args:
            problem: One of ``data.task`` "environment".
            completion: The completion; ``state["is_truncated"]`` says whether it was cut off.

        Returns:
            The weighted sum. From a first reward of 1.0 on, the answer counts as right.
        """
        assert self._rewards, "start() comes first"
        if fault := self.reference_fault(problem):
            return Verdict(0.0, correct=False, parsed=None, reason=fault, error=True)
        given = _given(problem.extra[environments.COLUMN], completion)
        values = [asyncio.run(_value(reward, given)) for reward in self._rewards]
        total = sum(reward.weight * value for reward, value in zip(self._rewards, values, strict=True))
        correct = values[0] >= FULL_REWARD
        reason = ", ".join(f"{reward.name} {value:g}" for reward, value in zip(self._rewards, values, strict=True))
        return Verdict(total, correct=correct, parsed=None, reason=reason)


def _given(row: Mapping[str, Any], completion: Completion) -> dict[str, Any]:
    """What a reward function may ask for, by name."""
    in_chat = not isinstance(row["prompt"], str)
    written = [{"role": "assistant", "content": completion.text}] if in_chat else completion.text
    given = {
        "prompt": _messages(row["prompt"]),
        "completion": _messages(written),
        "answer": row["answer"],
        "info": row["info"],
    }
    task = {**row["columns"], **given}
    truncated = completion.finish == FinishReason.LENGTH
    return {**task, "task": task, "state": {**task, "task": task, "trajectory": [], "is_truncated": truncated}}


def _messages(messages: Any) -> Any:
    """Messages as the installed library hands them to reward functions: objects that are read like dicts."""
    if isinstance(messages, str) or importlib.util.find_spec("verifiers") is None:
        return messages
    return importlib.import_module("verifiers.utils.message_utils").normalize_messages(messages)


async def _value(reward: environments.Reward, given: Mapping[str, Any]) -> float:
    objects = {**given, **reward.objects}
    parameters = inspect.signature(reward.function).parameters
    takes_all = any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values())
    value = reward.function(**(objects if takes_all else {key: objects[key] for key in parameters if key in objects}))
    return float(await value if inspect.isawaitable(value) else value)
