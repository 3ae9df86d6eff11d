"""Verifiers that the pool's tests have its workers import: well-behaved ones and hostile ones."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from grpo_jax.records import Completion, Problem, Verdict


def _right(parsed: str | None = None) -> Verdict:
    return Verdict(1.0, correct=True, parsed=parsed, reason="right")


def echo(problem: Problem, completion: Completion) -> Verdict:
    return Verdict(completion.length_tokens, True, completion.text, problem.answer, parts={"a": 1})


def process_id(problem: Problem, completion: Completion) -> Verdict:
    return _right(str(os.getpid()))


def hang_if_asked(problem: Problem, completion: Completion) -> Verdict:
    if completion.text == "hang":
        # Catastrophic backtracking: no Python code runs and the interpreter lock is held.
        re.fullmatch(r"(a+)+b", "a" * 60)
    return _right()


def hang_with_a_child(problem: Problem, completion: Completion) -> Verdict:
    child = subprocess.Popen(["sleep", "600"])
    pathlib.Path(problem.extra["marker"]).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(600)
    return _right()


def sleep_the_first_time(problem: Problem, completion: Completion) -> Verdict:
    marker = pathlib.Path(problem.extra["marker"])
    if marker.exists():
        return _right("second attempt")
    marker.write_text(str(os.getpid()))
    time.sleep(600)
    return _right("first attempt")


def die_if_asked(problem: Problem, completion: Completion) -> Verdict:
    if completion.text == "die":
        with open(problem.extra["marker"], "a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
    return _right()


def exit_quietly(problem: Problem, completion: Completion) -> Verdict:
    sys.exit(3)


def misbehave(problem: Problem, completion: Completion) -> Verdict:
    match completion.text:
        case "raise":
            raise TypeError("no such thing")
        case "not a verdict":
            return "one"  # pyright: ignore[reportReturnType]
        case "not finite":
            return Verdict(float("nan"), True, None, "right")
        case "not JSON":
            return Verdict(1.0, True, b"bytes", "right")  # pyright: ignore[reportArgumentType]
        case "too large":
            return _right("x" * (2 << 20))
        case "memory":
            return _right(str(len(bytearray(3 << 30))))
    return _right()


def forge_a_reply(problem: Problem, completion: Completion) -> Verdict:
    for descriptor in range(3, 10):
        with contextlib.suppress(OSError):
            os.write(descriptor, completion.text.encode("latin-1"))
    return _right()


def talk(problem: Problem, completion: Completion) -> Verdict:
    print("x" * 200_000)
    os.write(1, b"\x00\x00\x00\x02{}")
    subprocess.run(["echo", "hello"], check=True)
    return _right(sys.stdin.read())


def meet(problem: Problem, completion: Completion) -> Verdict:
    pathlib.Path(problem.extra["mine"]).touch()
    while not pathlib.Path(problem.extra["other"]).exists():
        time.sleep(0.005)
    return _right()


def loaded_modules(problem: Problem, completion: Completion) -> Verdict:
    return _right(",".join(sorted({"jax", "jaxlib", "numpy", "sympy", "flax"} & set(sys.modules))))


def hang_with_a_child_the_first_time(problem: Problem, completion: Completion) -> Verdict:
    if pathlib.Path(problem.extra["marker"]).exists():
        return _right("second attempt")
    return hang_with_a_child(problem, completion)
