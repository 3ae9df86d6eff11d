"""What an evaluation is of and what it says: problems, categories, prompts for servers, results and records."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from grpo_jax.config import ConfigError, DataConfig, RunConfig
from grpo_jax.data.chat import conversation
from grpo_jax.data.rows import column
from grpo_jax.data.splits import LazyProblems, hash_order, text_hashes
from grpo_jax.data.tasks import Task, build_task
from grpo_jax.records import FinishReason, Problem
from grpo_jax.training import scores, setup
from grpo_jax.training.evaluation import Graded

_TRAINING = {
    "steps",
    "recipe",
    "algorithm",
    "ppo",
    "optimizer",
    "reference",
    "cold_start",
    "curriculum",
    "checkpoint",
    "health",
    "trackers",
    "watchdog",
}
_READ_OF_MODEL = ("model.path", "model.compute_dtype")

WITHOUT_CATEGORY = "(none)"
"""Where a problem's row holds nothing in the column of categories."""


def require_read(overrides: Iterable[str]) -> None:
    """Refuses to be given keys that training alone reads; a configuration file may hold them.

    Args:
        overrides: Dotted keys of the command line.

    Raises:
        ConfigError: naming the first that nothing would read.
    """
    for key in overrides:
        section = key.partition(".")[0]
        if section in _TRAINING or (section == "model" and key not in _READ_OF_MODEL):
            why = "the model is that of --model or the server" if section == "model" else "it tells how to train"
            raise ConfigError(f"config.{key}: wanted none, since an evaluation does not read it: {why}. Leave it out.")


def chosen(problems: Sequence[Problem], limit: int | None) -> list[Problem]:
    """At most so many problems: a fair sample that depends on their texts alone, in their order.

    Args:
        problems: All problems of a split.
        limit: Problems at most, or None.

    Returns:
        The problems.
    """
    if limit is None or len(problems) <= limit:
        return list(problems[:])
    if isinstance(problems, LazyProblems):
        # Generated problems are in a pseudo-random order already, and there may be a million.
        return list(problems[:limit])
    order = hash_order(text_hashes((problem.prompt for problem in problems), len(problems)))
    return [problems[index] for index in np.sort(order[:limit]).tolist()]


def categories(problems: Sequence[Problem], name: str) -> list[str]:
    """Each problem's category.

    Args:
        problems: The problems.
        name: Column of their rows, or a path into it; nothing for no categories.

    Returns:
        Texts, all of them empty where no column is named.

    Raises:
        ConfigError: if no problem has such a column.
    """
    if not name:
        return [""] * len(problems)
    values = [column(problem.extra, name) for problem in problems]
    if all(value is None for value in values):
        known = sorted({key for problem in problems for key in problem.extra})
        raise ConfigError(f"--category: got {name!r}, wanted a column of the problems: {', '.join(known) or 'none'}.")
    return [WITHOUT_CATEGORY if value is None else str(value) for value in values]


def plain_task(config: RunConfig, api: Literal["completions", "chat"], *, whole: bool) -> Task:
    """The problems for a server, which has a tokenizer of its own.

    Args:
        config: The validated run.
        api: With ``chat`` the server applies the chat template; with ``completions`` it is applied here, and only then
            is ``data.tokenizer`` needed.
        whole: Every problem of a file is in every split.

    Returns:
        The task; its prompts are not measured.
    """
    data = config.data
    if api == "chat" or not data.chat:
        data = dataclasses.replace(
            data, chat=False, tokenizer="bytes", system_prompt="", chat_variables="{}", chat_date=""
        )
    return setup.check_references(build_task(data, config.cold_start, whole=whole), config)


def endpoint_prompt(
    problem: Problem, config: DataConfig, api: Literal["completions", "chat"]
) -> str | list[dict[str, str]]:
    """What a server is sent for a problem: its text, or messages."""
    return problem.prompt if api == "completions" else conversation(problem, config.system_prompt)


def results(rows: Sequence[Graded], ks: Sequence[int], seed: int, category: str) -> dict[str, Any]:
    """Scores and counts of judged completions, as JSON values.

    Args:
        rows: Problems with their judged completions.
        ks: For which k.
        seed: Decides the resamples of the intervals.
        category: Column of the categories, or nothing.

    Returns:
        Estimates in all and by category, and counts.
    """
    verdicts = [row.verdicts for row in rows]
    flat = [verdict for row in verdicts for verdict in row]
    judged = [verdict for verdict in flat if not verdict.error]
    completions = [completion for row in rows for completion in row.completions]
    split = scores.by_category(verdicts, categories([row.problem for row in rows], category), ks, seed)
    return {
        "problems": len(rows),
        "completions": len(flat),
        "judge_errors": len(flat) - len(judged),
        "timeouts": sum(verdict.reason == "timeout" for verdict in flat),
        "unanswered": sum(verdict.parsed is None for verdict in judged),
        "cut_off": sum(completion.finish == FinishReason.LENGTH for completion in completions),
        "mean_length_tokens": _mean([completion.length_tokens for completion in completions]),
        "mean_reward": _mean([verdict.reward for verdict in judged]),
        "scores": _plain(scores.scores(verdicts, ks, seed)),
        "categories": {name: _plain(found) for name, found in split.items()} if category else {},
        "method": scores.METHOD,
    }


def records(rows: Sequence[Graded], category: str) -> Iterator[dict[str, Any]]:
    """One row for each completion, as JSON values.

    Args:
        rows: Problems with their judged completions.
        category: Column of the categories, or nothing.

    Yields:
        Rows in the order of the problems.
    """
    names = categories([row.problem for row in rows], category)
    for (problem, completions, verdicts), name in zip(rows, names, strict=True):
        for sample, (completion, verdict) in enumerate(zip(completions, verdicts, strict=True)):
            yield {
                "problem": problem.identifier,
                "sample": sample,
                **({"category": name} if category else {}),
                "prompt": problem.prompt,
                "answer": problem.answer,
                "completion": completion.text,
                "length_tokens": completion.length_tokens,
                "cut_off": completion.finish == FinishReason.LENGTH,
                "correct": verdict.correct,
                "reward": verdict.reward,
                "parsed": verdict.parsed,
                "reason": verdict.reason,
                "judge_error": verdict.error,
            }


def _plain(found: Mapping[str, scores.Estimate]) -> dict[str, dict[str, float | None]]:
    """Estimates by name; None over no problem, since JSON has no NaN."""
    return {
        name: {key: None if math.isnan(value) else value for key, value in estimate._asdict().items()}
        for name, estimate in found.items()
    }


def _mean(values: Sequence[float | int]) -> float | None:
    return float(np.mean(values)) if values else None
