"""Generated problems of the reasoning-gym library."""

import json
from collections.abc import Sequence

import numpy as np

from grpo_jax.config import ConfigError, DataConfig
from grpo_jax.data.splits import Split, fixed_splits, text_hashes
from grpo_jax.foreign import gym
from grpo_jax.records import Problem

GYM = "gym"
"""Column that says which problem of the library it is, so that a judge can make it anew."""


class GymTask:
    """Problems of one or several tasks in turn; those with the same text as an earlier one are left out."""

    name = "reasoning_gym"

    def __init__(self, config: DataConfig):
        """Generates ``max_problems`` problems, the same ones for every seed of a run, and splits them.

        Args:
            config: Names of the tasks, their settings and seed, number of problems and prompt template.

        Raises:
            ConfigError: if the library or a task cannot be used, or there are too few different problems.
        """
        size = -(-config.max_problems // len(config.gym_tasks))
        settings = json.loads(config.gym_settings)
        problems: dict[str, Problem] = {}
        try:
            generators = [
                gym.generator(task, settings.get(task, {}), size, config.gym_seed) for task in config.gym_tasks
            ]
        except gym.GymError as error:
            raise ConfigError(f"config.data.gym_tasks: {error}.") from error
        for index in range(config.max_problems):
            task = config.gym_tasks[index % len(generators)]
            number = index // len(generators)
            entry = generators[index % len(generators)][number]
            made_by = {"task": task, "settings": settings.get(task, {}), "size": size, "seed": config.gym_seed}
            prompt = config.prompt_template.replace("{problem}", entry["question"])
            answer = "" if entry["answer"] is None else str(entry["answer"])
            problem = Problem(f"{task}/{number}", prompt, answer, {GYM: {**made_by, "index": number}})
            problems.setdefault(entry["question"], problem)
        remedy = f"raise data.max_problems (now {config.max_problems}) or name more data.gym_tasks"
        rows = fixed_splits(text_hashes(problems, len(problems)), config, remedy)
        made = list(problems.values())
        self._problems: dict[Split, list[Problem]] = {
            split: [made[row] for row in chosen.tolist()] for split, chosen in rows.items()
        }

    def problems(self, split: Split) -> Sequence[Problem]:
        """Returns the problems of a split."""
        return self._problems[split]

    def demonstration(self, problem: Problem, generator: np.random.Generator) -> str:  # noqa: ARG002 - the protocol
        """Raises ConfigError: the library has no worked examples."""
        raise ConfigError("config.cold_start.steps: reasoning-gym has no worked examples. Set it to 0.")
