"""Labelled verifier cases: files of them, and how often a verifier agrees with the labels."""

import collections
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from grpo_jax.config import ConfigError, VerifierConfig
from grpo_jax.records import Completion, FinishReason, Problem, Verdict
from grpo_jax.verifiers.jsonl import read_rows
from grpo_jax.verifiers.pool import open_pool

Kind = Literal["math", "code", "proof"]


@dataclasses.dataclass(frozen=True)
class Case:
    """One completion with what a verifier should say of it.

    Attributes:
        identifier: Unique in its file.
        problem: The problem.
        completion: The completion.
        expected: Whether it is right.
        convention: The label is a matter of convention, so that options decide.
        is_bare: The text is an answer or a program alone, with nothing around it.
        tag: What the case is about, such as ``adv_injection``; empty where the file does not say.
    """

    identifier: str
    problem: Problem
    completion: Completion
    expected: bool
    convention: bool
    is_bare: bool
    tag: str = ""


def read_cases(path: Path, kind: Kind) -> list[Case]:
    """Reads a file of cases, one JSON object per line.

    Args:
        path: The file. Every row has an ``id``, and may have ``convention`` and ``form``: ``bare`` (the default: an
            answer or a program alone) or ``completion``. For ``math``: ``gold``, ``answer``, ``equal``. For ``code``:
            ``tests``, ``completion`` and ``expect`` (``pass``, ``fail``, ``timeout`` or ``blocked``). For ``proof``:
            ``prover``, ``statement``, ``theorem``, ``candidate`` and ``expect``.
        kind: What the cases are of.

    Returns:
        The cases in the order of the file.

    Raises:
        ConfigError: naming file, line and what is wrong with it.
    """
    parse = _CASE[kind]
    cases = read_rows(
        path,
        "--cases",
        f"case of kind {kind!r}",
        lambda _, row: dataclasses.replace(parse(row), tag=str(row.get("kind", ""))),
    )
    repeated = [name for name, count in collections.Counter(case.identifier for case in cases).items() if count > 1]
    if repeated:
        raise ConfigError(f"--cases: {path} has the id {repeated[0]!r} more than once, wanted each once.")
    return cases


def judge_cases(cases: Sequence[Case], kind: Kind, config: VerifierConfig) -> dict[str, Verdict]:
    """Judges every case in a pool as training does.

    Args:
        cases: The cases.
        kind: The verifier.
        config: Its options, the number of workers and the deadline; what it names as rewards is not looked at.

    Returns:
        Verdicts by the cases' identifiers.

    Raises:
        UnusableVerifierError: if the verifier cannot work on this machine.
    """
    verdicts: dict[str, Verdict] = {}
    for is_bare in sorted({case.is_bare for case in cases}):
        chosen = [case for case in cases if case.is_bare == is_bare]
        with open_pool(case_config(config, kind, is_bare=is_bare)) as pool:
            pool.wait_until_ready()
            futures = [pool.submit(case.problem, case.completion) for case in chosen]
            verdicts |= {case.identifier: future.result() for case, future in zip(chosen, futures, strict=True)}
    return {case.identifier: verdicts[case.identifier] for case in cases}


def case_config(config: VerifierConfig, kind: Kind, *, is_bare: bool) -> VerifierConfig:
    """The verifier's section for one kind of cases alone, with an extraction that fits the cases' texts."""
    section = getattr(config, kind)
    if is_bare:
        section = dataclasses.replace(section, extraction="whole")
    elif kind == "math":
        section = dataclasses.replace(section, extraction="final")
    own_limit_seconds = config.own_limits_seconds().get(kind, 0.0)
    return dataclasses.replace(
        config,
        rewards=(kind,),
        weights=(1.0,),
        gates=(),
        deadline_seconds=max(config.deadline_seconds, own_limit_seconds + DEADLINE_MARGIN_SECONDS),
        **{kind: section},
    )


DEADLINE_MARGIN_SECONDS = 5.0
"""What the pool waits beyond the time that a verifier gives itself."""


class Tally(NamedTuple):
    """How a verifier did on labelled cases.

    Attributes:
        cases: Cases.
        right: Verdicts as labelled.
        false_positives: Wrong answers that were accepted.
        false_negatives: Right answers that were refused, errors of the judge included.
    """

    cases: int
    right: int
    false_positives: int
    false_negatives: int


def tally(cases: Sequence[Case], verdicts: Mapping[str, Verdict]) -> Tally:
    """Counts agreement with the labels.

    Args:
        cases: Labelled cases.
        verdicts: A verdict for each of them.

    Returns:
        The counts. A case on which the judge failed is never right; it is a false negative if it should be accepted.
    """
    accepted = [(case.expected, verdicts[case.identifier].correct) for case in cases]
    positives, negatives = accepted.count((False, True)), accepted.count((True, False))
    undecided = sum(verdicts[case.identifier].error and not case.expected for case in cases)
    return Tally(len(cases), len(cases) - positives - negatives - undecided, positives, negatives)


def report(cases: Sequence[Case], verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    """What the command-line tool writes as JSON.

    Args:
        cases: Labelled cases.
        verdicts: A verdict for each of them.

    Returns:
        Counts over all cases; under ``sure`` the same counts without those that are a matter of convention;
        milliseconds of wall time in the worker; ``timeouts`` and ``errors``; and ``verdicts`` by case.
    """
    milliseconds = sorted(1000 * verdict.seconds for verdict in verdicts.values())
    sure = [case for case in cases if not case.convention]
    return {
        **tally(cases, verdicts)._asdict(),
        "sure": tally(sure, verdicts)._asdict(),
        "p50_ms": percentile(milliseconds, 50),
        "p99_ms": percentile(milliseconds, 99),
        "max_ms": milliseconds[-1],
        "timeouts": sum(verdict.reason == "timeout" for verdict in verdicts.values()),
        "errors": sum(verdict.error for verdict in verdicts.values()),
        "verdicts": {
            identifier: {
                "correct": verdict.correct,
                "reward": verdict.reward,
                "reason": verdict.reason,
                "parsed": verdict.parsed,
                "flags": list(verdict.flags),
                "error": verdict.error,
            }
            for identifier, verdict in verdicts.items()
        },
    }


def percentile(ordered: Sequence[float], percent: int) -> float:
    """The smallest of the ordered values that at least ``percent`` of them do not exceed."""
    return ordered[max(math.ceil(percent / 100 * len(ordered)) - 1, 0)]


def _text(row: Mapping[str, Any], key: str) -> str:
    if type(row[key]) is not str:
        raise TypeError(f"{key} is a {type(row[key]).__name__}, wanted a text")
    return row[key]


def _completion(text: str) -> Completion:
    return Completion(text, length_tokens=1, finish=FinishReason.STOP)


_EXPECTATIONS = ("pass", "fail", "timeout", "blocked")
"""A program that should run into its time limit, or into the walls of the sandbox, is one that should not pass."""


def _passes(row: Mapping[str, Any]) -> bool:
    if row["expect"] not in _EXPECTATIONS:
        raise ValueError(f"expect is {row['expect']!r}, wanted one of {', '.join(map(repr, _EXPECTATIONS))}")
    return row["expect"] == "pass"


def _is_bare(row: Mapping[str, Any]) -> bool:
    form = row.get("form", "bare")
    if form not in ("bare", "completion"):
        raise ValueError(f"form is {form!r}, wanted 'bare' or 'completion'")
    return form == "bare"


def _math_case(row: Mapping[str, Any]) -> Case:
    if type(row["equal"]) is not bool:
        raise TypeError(f"equal is {row['equal']!r}, wanted true or false")
    identifier = str(row["id"])
    problem = Problem(identifier, "", _text(row, "gold"))
    convention = bool(row.get("convention", False))
    return Case(identifier, problem, _completion(_text(row, "answer")), row["equal"], convention, _is_bare(row))


def _code_case(row: Mapping[str, Any]) -> Case:
    identifier = str(row["id"])
    problem = Problem(identifier, "", "", extra={"tests": row["tests"]})
    convention = bool(row.get("convention", False))
    return Case(identifier, problem, _completion(_text(row, "completion")), _passes(row), convention, _is_bare(row))


def _proof_case(row: Mapping[str, Any]) -> Case:
    identifier = str(row["id"])
    extra = {name: _text(row, name) for name in ("prover", "statement", "theorem")}
    problem = Problem(identifier, "", "", extra=extra)
    convention = bool(row.get("convention", False))
    return Case(identifier, problem, _completion(_text(row, "candidate")), _passes(row), convention, _is_bare(row))


_CASE: Mapping[Kind, Callable[[Mapping[str, Any]], Case]] = {
    "math": _math_case,
    "code": _code_case,
    "proof": _proof_case,
}
