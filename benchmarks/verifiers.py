"""Runs verifiers over labelled cases, math-verify beside ours, and makes the figures of docs/verifiers.md.

python -m benchmarks.verifiers [--math FILE] [--code FILE] [--proof FILE] [--workers 2] [--write]

The files hold cases as `python -m grpo_jax.verify --cases` reads them. math-verify (the extra of that name) runs in the
same workers, under the same deadline. --write keeps the figures in docs/verifiers.json.
"""

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.runs import REPOSITORY
from grpo_jax.config import VerifierConfig
from grpo_jax.records import Completion, Problem, Verdict
from grpo_jax.verifiers import cases
from grpo_jax.verifiers.pool import VerifierPool

MATH_DEADLINE_SECONDS = 10.0
"""Beyond math-verify's own alarm of 5 s, so that it can answer by itself."""

THROUGHPUT_ROUNDS = 4
"""How often the cases are judged where verifications per second are measured."""


def math_verify(problem: Problem, completion: Completion) -> Verdict:
    """Judges by math-verify with its defaults; the pool's workers import this function."""
    import math_verify as library

    gold = library.parse(f"${problem.answer}$")
    # An answer that stands alone is set as mathematics, as the reference is; a whole completion is left as it is.
    text = completion.text if problem.extra["form"] == "completion" else f"${completion.text}$"
    equal = library.verify(gold, library.parse(text))
    return Verdict(float(equal), correct=equal, parsed=None, reason="equal" if equal else "not equal")


def main() -> None:
    """Judges what was asked for and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for kind in ("math", "code", "proof"):
        parser.add_argument(f"--{kind}", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    config = VerifierConfig(workers=arguments.workers)
    figures: dict[str, Any] = {}
    for kind in ("math", "code", "proof"):
        if getattr(arguments, kind) is None:
            continue
        labelled = cases.read_cases(getattr(arguments, kind), kind)
        figures[kind] = summary(labelled, cases.judge_cases(labelled, kind, config))
        if kind == "math":
            figures[kind]["verifications_per_second"] = throughput(labelled, kind, config)
            figures["math-verify"] = summary(labelled, judge_by_math_verify(labelled, config))
    print(json.dumps(figures, indent=2))
    if arguments.write:
        (REPOSITORY / "docs" / "verifiers.json").write_text(json.dumps(figures, indent=2) + "\n")


def judge_by_math_verify(labelled: Sequence[cases.Case], config: VerifierConfig) -> dict[str, Verdict]:
    """The same cases in the same kind of workers, judged by math-verify."""
    with VerifierPool("benchmarks.verifiers:math_verify", config.workers, MATH_DEADLINE_SECONDS) as pool:
        pool.wait_until_ready()
        futures = [
            pool.submit(
                dataclasses.replace(case.problem, extra={"form": "bare" if case.is_bare else "completion"}),
                case.completion,
            )
            for case in labelled
        ]
        return {case.identifier: future.result() for case, future in zip(labelled, futures, strict=True)}


def summary(labelled: Sequence[cases.Case], verdicts: dict[str, Verdict]) -> dict[str, Any]:
    """The figures of docs, without single verdicts."""
    result = cases.report(labelled, verdicts)
    adversarial = [case for case in labelled if case.tag.startswith("adv")]
    return {
        "sure": result["sure"],
        "adversarial_rewarded": cases.tally(adversarial, verdicts).false_positives,
        "p50_ms": round(result["p50_ms"], 2),
        "p99_ms": round(result["p99_ms"], 1),
        "max_ms": round(result["max_ms"], 1),
        "over_1_s": sum(verdict.seconds > 1 for verdict in verdicts.values()),
        "timeouts": result["timeouts"],
        "errors": result["errors"],
    }


def throughput(labelled: Sequence[cases.Case], kind: cases.Kind, config: VerifierConfig) -> float:
    """Verifications per second of wall time, all workers together, of right answers over and over."""
    right = [case for case in labelled if case.expected and case.is_bare]
    repeated = [
        dataclasses.replace(case, identifier=f"{case.identifier}/{turn}")
        for turn in range(THROUGHPUT_ROUNDS)
        for case in right
    ]
    cases.judge_cases(right[: config.workers], kind, config)
    started, cpu_started = time.perf_counter(), sum(os.times()[:4])
    cases.judge_cases(repeated, kind, config)
    elapsed = time.perf_counter() - started
    cpu_seconds = sum(os.times()[:4]) - cpu_started
    print(f"{kind}: {cpu_seconds:.1f} CPU-seconds in {elapsed:.1f} s, start of the workers included")
    return round(len(repeated) / elapsed, 1)


if __name__ == "__main__":
    main()
