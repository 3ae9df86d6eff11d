"""The scorers of the reasoning-gym library."""

import functools
import json
from collections.abc import Mapping
from typing import Any

from grpo_jax.foreign import gym
from grpo_jax.records import Completion, Problem, Verdict
from grpo_jax.verifiers.base import UnusableVerifierError
from grpo_jax.verifiers.extract import extract_answer


class GymVerifier:
    """Hands the content of the answer block to the scorer of the problem's task; a full score is a right answer.

    The problem is made anew here, from its name and number, so that the scorer sees the library's own objects. Tasks
    whose scorers would run an answer as a program are refused.
    """

    def start(self) -> Mapping[str, str]:
        """Imports the library, in the process that will judge.

        Returns:
            Its version.

        Raises:
            UnusableVerifierError: if it is not installed.
        """
        try:
            return {"reasoning-gym": gym.version()}
        except gym.GymError as error:
            raise UnusableVerifierError(f"config.verifier.rewards: {error}.") from error

    def reference_fault(self, problem: Problem, /) -> str:
        """Says so where the problem is none of the library's."""
        made_by = problem.extra.get("gym")
        wanted = {"task": str, "settings": Mapping, "size": int, "seed": int, "index": int}
        if isinstance(made_by, Mapping) and all(isinstance(made_by.get(key), kind) for key, kind in wanted.items()):
            return ""
        return f"problem {problem.identifier!r} is none of data.task 'reasoning_gym'"

    def __call__(self, problem: Problem, completion: Completion, /) -> Verdict:
        """Scores one completion.

        Args:
            problem: One of ``data.task`` "reasoning_gym".
            completion: Judged by its answer block; a truncated one is never right.

        Returns:
            A verdict whose reward is the score. An answer over which the scorer fails is wrong; where it fails over the
            library's own answer too, the verdict is an error.
        """
        if fault := self.reference_fault(problem):
            return Verdict(0.0, correct=False, parsed=None, reason=fault, error=True)
        answer, reason = extract_answer(completion)
        if answer is None:
            return Verdict(0.0, correct=False, parsed=None, reason=reason)
        made_by = problem.extra["gym"]
        source = _generator(made_by["task"], json.dumps(made_by["settings"]), made_by["size"], made_by["seed"])
        entry = source[made_by["index"]]
        try:
            score = float(source.score_answer(answer, entry))
        except Exception:
            # The library's scorers raise over answers of other forms. A scorer that works fails over the answer alone.
            source.score_answer(entry["answer"], entry)
            return Verdict(0.0, correct=False, parsed=answer, reason="not readable to its scorer")
        correct = score >= 1.0
        return Verdict(score, correct=correct, parsed=answer, reason="full score" if correct else "not full score")


@functools.lru_cache(maxsize=256)
def _generator(task: str, settings: str, size: int, seed: int) -> Any:
    return gym.generator(task, json.loads(settings), size, seed)
