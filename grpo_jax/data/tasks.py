"""What a task is, and the choice of one."""

import logging
from collections.abc import Container, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from grpo_jax.config import ColdStartConfig, ConfigError, DataConfig
from grpo_jax.data.addition import AdditionTask
from grpo_jax.data.chat import ChatTask
from grpo_jax.data.countdown import CountdownTask
from grpo_jax.data.files import NO_DEMONSTRATIONS, FileTask, listed_error
from grpo_jax.data.gym import GymTask
from grpo_jax.data.maximum import MaximumTask
from grpo_jax.data.splits import SPLITS, LazyProblems, Split
from grpo_jax.data.tokenizer import Tokenizer, open_files
from grpo_jax.records import Problem

_SAMPLED_PROMPTS = 1000

_logger = logging.getLogger(__name__)


@runtime_checkable
class Task(Protocol):
    """A source of problems in three disjoint splits, the same for every seed."""

    @property
    def name(self) -> str:
        """Short name, as in ``data.task``."""
        ...

    def problems(self, split: Split) -> Sequence[Problem]:
        """Returns the problems of a split, for access in any order."""
        ...

    def demonstration(self, problem: Problem, generator: np.random.Generator) -> str:
        """Returns the text of a worked example without an end-of-sequence token.

        Args:
            problem: One of this task's problems.
            generator: Source of all the chance in it.

        Raises:
            ValueError: for a task without worked examples.
        """
        ...


def build_task(config: DataConfig, cold_start: ColdStartConfig, *, whole: bool = False) -> Task:
    """Builds the task of a configuration.

    Args:
        config: Validated data section.
        cold_start: Validated cold-start section, which shapes the worked examples.
        whole: Every row of ``data.path`` is in every split; only problems from files know that.

    Returns:
        The task with its splits.

    Raises:
        ConfigError: where the data cannot be used, or a cold start is asked of a task without worked examples.
    """
    task = _build_inner(config, cold_start, whole)
    return ChatTask(task, open_files(config.tokenizer), config) if config.chat else task


def _build_inner(config: DataConfig, cold_start: ColdStartConfig, whole: bool) -> Task:
    if whole and config.task not in ("file", "environment"):
        raise ConfigError(f"config.data.task: got {config.task!r}, wanted 'file' for every row of data.path.")
    if config.task == "addition":
        return AdditionTask(config, cold_start)
    if config.task == "countdown":
        return CountdownTask(config, cold_start)
    if cold_start.steps > 0:
        raise ConfigError(NO_DEMONSTRATIONS.format(task=config.task))
    if config.task == "reasoning_gym":
        return GymTask(config)
    return MaximumTask(config) if config.task == "maximum" else FileTask(config, whole=whole)


def check_prompt_lengths(task: Task, tokenizer: Tokenizer, config: DataConfig) -> Task:
    """Refuses or leaves out problems whose prompts exceed ``data.max_prompt_tokens`` or cannot be encoded.

    Every prompt of a file is measured. Of a generated task, whose prompts are all alike, a sample and the longest
    text are; a prompt that is too long there is always an error.

    Args:
        task: The task to check.
        tokenizer: Tokenizer of the model.
        config: Its ``max_prompt_tokens`` and ``bad_rows`` are used.

    Returns:
        The task, without the problems that are too long where ``bad_rows`` is ``"skip"``.

    Raises:
        ConfigError: naming the problems, their lengths or what is wrong with their text, and the limit.
    """
    generated = isinstance(task.problems("train"), LazyProblems)
    faults: dict[str, str] = {}
    for split in SPLITS:
        for problem in _to_measure(task.problems(split)):
            fault = _prompt_fault(problem, tokenizer, config.max_prompt_tokens)
            if fault is not None:
                faults[problem.identifier] = fault
    if not faults:
        return task
    if config.bad_rows == "skip" and not generated:
        _logger.warning("left out %d prompts that %d tokens cannot hold", len(faults), config.max_prompt_tokens)
        return without(task, faults, f"data.max_prompt_tokens: got {config.max_prompt_tokens}")
    raise listed_error(
        f"config.data.max_prompt_tokens: got {config.max_prompt_tokens}, which cannot hold {len(faults)} "
        f"{'of the prompts tried' if generated else 'prompts'}",
        [f"{identifier}: {fault}" for identifier, fault in faults.items()],
        "Raise data.max_prompt_tokens or change data.tokenizer"
        + ("." if generated else ", or set data.bad_rows to 'skip' to leave them out."),
    )


def _to_measure(problems: Sequence[Problem]) -> Sequence[Problem]:
    if not isinstance(problems, LazyProblems):
        return problems
    step = -(-len(problems) // _SAMPLED_PROMPTS)
    return [problems[problems.longest], *problems[::step]]


def _prompt_fault(problem: Problem, tokenizer: Tokenizer, limit_tokens: int) -> str | None:
    try:
        length = len(tokenizer.encode_prompt(problem.prompt))
    except ValueError as error:
        return str(error)
    return None if 0 < length <= limit_tokens else f"{length} tokens"


def without(task: Task, identifiers: Container[str], cause: str) -> Task:
    """A task less some of its problems.

    Args:
        task: The task.
        identifiers: Problems to leave out.
        cause: The key and value that made them unusable, for the message.

    Returns:
        The rest.

    Raises:
        ConfigError: if a split is left empty.
    """
    return _Without(task, identifiers, cause)


class _Without:
    def __init__(self, task: Task, identifiers: Container[str], cause: str):
        self.name = task.name
        self._task = task
        self._problems = {
            split: [p for p in task.problems(split) if p.identifier not in identifiers] for split in SPLITS
        }
        for split in SPLITS:
            if not self._problems[split]:
                raise ConfigError(f"config.{cause}, which leaves no {split} problem. Change it, or mend the rows.")

    def problems(self, split: Split) -> Sequence[Problem]:
        return self._problems[split]

    def demonstration(self, problem: Problem, generator: np.random.Generator) -> str:
        return self._task.demonstration(problem, generator)
