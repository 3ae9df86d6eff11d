"""Measures sandboxed executions per second by level, and verifications of programs per second.

python -m benchmarks.sandbox [--seconds 3] [--output FILE]

Prints JSON. A level that does not work on the machine is listed with the reason. CPU seconds are those of this process
and of all that it started, taken from the machine's own counter, so nothing else should run meanwhile.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grpo_jax.config import ConfigError
from grpo_jax.config.sandbox import CodeConfig, SandboxConfig
from grpo_jax.records import Completion, FinishReason, Problem
from grpo_jax.verifiers.code.trial import CANDIDATE, PROGRAMS
from grpo_jax.verifiers.code.verifier import CodeVerifier
from grpo_jax.verifiers.sandbox.contracts import Level
from grpo_jax.verifiers.sandbox.sandbox import Sandbox

SANDBOX = SandboxConfig(minimum_level="limits", allow_unsafe=True)
SUITES = {
    "call, 4 cases": (
        {"style": "call", "entry": "add", "cases": [[[1, 2], 3], [[0, 0], 0], [[-5, 3], -2], [[7, 1], 8]]},
        "def add(a, b): return a + b",
    ),
    "asserts, 4 tests": (
        {"style": "asserts", "code": "\n".join(f"assert add({n}, 1) == {n + 1}" for n in range(4))},
        "def add(a, b): return a + b",
    ),
    "stdin, 2 cases": (
        {"style": "stdin", "cases": [["1 2\n", "3\n"], ["4 5\n", "9\n"]]},
        "print(sum(map(int, input().split())))",
    ),
}


def main() -> None:
    """Measures every level that works here."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="wall time of each measurement")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    levels = {level.value: measured(level, arguments.seconds) for level in Level}
    machine = {"system": platform.release(), "cores": os.cpu_count(), "root": os.geteuid() == 0}
    text = json.dumps({"machine": machine, "levels": levels}, indent=2)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")


def measured(level: Level, seconds: float) -> dict[str, Any]:
    """Measures one level."""
    began = time.perf_counter()
    try:
        sandbox = Sandbox(SANDBOX, programs=PROGRAMS, levels=[level])
    except ConfigError as error:
        return {"refused": str(error)}
    with sandbox:
        start_seconds = time.perf_counter() - began
        limits = sandbox.limits(10.0)
        verifier = CodeVerifier(CodeConfig(extraction="whole"), sandbox)

        def converse() -> None:
            with sandbox.converse(CANDIDATE, limits=limits) as program:
                program.ask({"source": "x = 1"}, 10.0)

        rows = {
            "program (/bin/true)": rate(lambda: sandbox.run(["/bin/true"], limits=limits), seconds),
            "Python, one exchange": rate(converse, seconds),
        }
        for name, (tests, text) in SUITES.items():
            problem, completion = Problem("p", "", "", {"tests": tests}), Completion(text, 1, FinishReason.STOP)

            def verify(problem: Problem = problem, completion: Completion = completion) -> None:
                verdict = verifier(problem, completion)
                if not verdict.correct:
                    raise RuntimeError(f"{level}: {verdict.reason}")

            rows[f"verification ({name})"] = rate(verify, seconds)
    return {"start_seconds": round(start_seconds, 3), "rates": rows}


def rate(work: Callable[[], object], seconds: float) -> dict[str, float]:
    """Repeats work for some time, one after another."""
    work()
    began, busy, times = time.perf_counter(), busy_seconds(), []
    while time.perf_counter() - began < seconds:
        before = time.perf_counter()
        work()
        times.append(time.perf_counter() - before)
    elapsed = time.perf_counter() - began
    return {
        "per_second": round(len(times) / elapsed, 1),
        "median_milliseconds": round(sorted(times)[len(times) // 2] * 1000, 2),
        "machine_cpu_milliseconds": round((busy_seconds() - busy) / len(times) * 1000, 2),
    }


def busy_seconds() -> float:
    """CPU seconds that the whole machine has spent; 0 where it does not say."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    except FileNotFoundError:
        return 0.0
    idle = sum(map(int, fields[3:5]))
    return (sum(map(int, fields[:8])) - idle) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
