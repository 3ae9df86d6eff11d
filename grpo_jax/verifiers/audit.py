"""What a reward accepts among completions that a user has, and which of them look like a hole in it."""

import collections
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grpo_jax.config import VerifierConfig
from grpo_jax.records import Completion, FinishReason, Problem, Verdict
from grpo_jax.verifiers.jsonl import read_rows
from grpo_jax.verifiers.pool import open_pool

SHOWN_ROWS = 5
SHOWN_CHARACTERS = 200


class Row(NamedTuple):
    """One completion of a file.

    Attributes:
        line: Its line, counted from 1.
        problem: The problem with its reference.
        completion: The completion.
    """

    line: int
    problem: Problem
    completion: Completion


class Judged(NamedTuple):
    """One completion and what the rewards say of it."""

    row: Row
    verdict: Verdict


def read_completions(path: Path) -> list[Row]:
    """Reads completions, one JSON object per line.

    Args:
        path: The file. A row has ``completion``; ``answer``, ``problem`` and ``truncated`` (true for a completion that
            the token limit cut off) are optional, and verifiers see every other column too.

    Returns:
        The rows in the order of the file.

    Raises:
        ConfigError: naming file, line and what is wrong with it.
    """
    return read_rows(path, "--completions", "completion", _row)


def audit(rows: Sequence[Row], config: VerifierConfig) -> dict[str, Any]:
    """Judges every completion in a pool as training does, and looks for what a model could exploit.

    Args:
        rows: Completions.
        config: The rewards.

    Returns:
        Counts, means, reasons and flags by how often they occur, ``findings`` with the rows that they are about, and
        ``verdicts`` in the order of the rows.

    Raises:
        UnusableVerifierError: if a verifier cannot work on this machine.
    """
    with open_pool(config) as pool:
        pool.wait_until_ready()
        futures = [pool.submit(row.problem, row.completion) for row in rows]
        judged = [Judged(row, future.result()) for row, future in zip(rows, futures, strict=True)]
    verdicts = [one.verdict for one in judged]
    valid = [verdict for verdict in verdicts if not verdict.error]
    return {
        "completions": len(judged),
        "accepted": sum(verdict.correct for verdict in verdicts),
        "mean_reward": sum(verdict.reward for verdict in valid) / max(len(valid), 1),
        "timeouts": sum(verdict.reason == "timeout" for verdict in verdicts),
        "errors": len(verdicts) - len(valid),
        "reasons": _frequencies(verdict.reason for verdict in verdicts),
        "flags": _frequencies(flag for verdict in verdicts for flag in verdict.flags),
        "findings": [finding for look in _LOOKS for finding in look(judged)],
        "verdicts": [
            {
                "line": one.row.line,
                "correct": one.verdict.correct,
                "reward": one.verdict.reward,
                "reason": one.verdict.reason,
                "parsed": one.verdict.parsed,
                "parts": dict(one.verdict.parts),
                "flags": list(one.verdict.flags),
                "error": one.verdict.error,
            }
            for one in judged
        ],
    }


def _accepted_for_several_answers(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    by_text = collections.defaultdict(list)
    for one in judged:
        if one.verdict.correct:
            by_text[one.row.completion.text].append(one.row)
    several = [rows for rows in by_text.values() if len({row.problem.answer for row in rows}) > 1]
    why = "one text is accepted for problems with different answers"
    return [_finding(why, rows) for rows in several]


def _rewarded_though_wrong(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    right = [one.verdict.reward for one in judged if one.verdict.correct]
    if not right:
        return []
    rows = [one.row for one in judged if not one.verdict.correct and one.verdict.reward >= min(right)]
    why = "refused completions earn as much as an accepted one: the other rewards outweigh the primary one"
    return [_finding(why, rows)] if rows else []


def _accepted_without_words(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    rows = [one.row for one in judged if one.verdict.correct and not one.row.completion.text.strip()]
    return [_finding("empty completions are accepted", rows)] if rows else []


def _accepted_though_cut_off(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    cut = [one for one in judged if one.row.completion.finish == FinishReason.LENGTH]
    rows = [one.row for one in cut if one.verdict.correct]
    return [_finding("completions that the token limit cut off are accepted", rows)] if rows else []


_LOOKS: tuple[Callable[[Sequence[Judged]], list[dict[str, Any]]], ...] = (
    _accepted_for_several_answers,
    _rewarded_though_wrong,
    _accepted_without_words,
    _accepted_though_cut_off,
)


def _finding(why: str, rows: Sequence[Row]) -> dict[str, Any]:
    shown = [
        {
            "line": row.line,
            "answer": row.problem.answer,
            "completion": row.completion.text[:SHOWN_CHARACTERS],
        }
        for row in rows[:SHOWN_ROWS]
    ]
    return {"why": f"{why} ({len(rows)} completion{'s' if len(rows) > 1 else ''})", "rows": shown}


def _frequencies(values: Any) -> dict[str, int]:
    return dict(collections.Counter(values).most_common())


def _row(number: int, values: Any) -> Row:
    texts: Mapping[str, Any] = {"problem": "", "answer": "", **values}
    for name in ("problem", "answer", "completion"):
        if type(texts.get(name)) is not str:
            raise TypeError(f"{name} is {texts.get(name)!r}, wanted a text")
    truncated = values.get("truncated", False)
    if type(truncated) is not bool:
        raise TypeError(f"truncated is {truncated!r}, wanted true or false")
    finish = FinishReason.LENGTH if truncated else FinishReason.STOP
    extra = {name: value for name, value in values.items() if name not in ("problem", "answer", "completion")}
    problem = Problem(f"line {number}", texts["problem"], texts["answer"], extra=extra)
    return Row(number, problem, Completion(texts["completion"], length_tokens=1, finish=finish))
