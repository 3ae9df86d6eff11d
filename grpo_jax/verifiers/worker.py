"""The process that runs a verifier for the pool: ``python -m grpo_jax.verifiers.worker``.

It reads jobs from its standard input and writes verdicts to its standard output. A verifier sees
neither: its own standard input is empty, and what it prints goes to standard error.
"""

import dataclasses
import importlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from grpo_jax.config import VerifierConfig, from_nested
from grpo_jax.records import Completion, Problem, Verdict
from grpo_jax.verifiers import messages
from grpo_jax.verifiers.base import Verifier
from grpo_jax.verifiers.composite import build

MEMORY_LIMIT_BYTES = 2 * 1024**3
"""Address space of a worker (enforced on Linux)."""
MAX_REASON_CHARACTERS = 500


def main() -> None:
    """Serves jobs until standard input is closed.

    Raises:
        ValueError: if a ``module:function`` name has another form.
        ImportError: if the module is not there.
        AttributeError: if the function is not there.
    """
    requests, replies = _take_over_standard_streams()
    _limit_resources()
    start = messages.receive(requests)
    if start is None:
        return
    verifier = _build_verifier(start)
    messages.send(replies, messages.encode({"ready": True}))
    while (request := messages.receive(requests)) is not None:
        messages.send(replies, _reply(verifier, request))


def _take_over_standard_streams() -> tuple[int, int]:
    # Plain descriptors, because they stay open until the process is gone: the pool may take the end
    # of the stream for the end of the process. dup() makes them non-inheritable.
    requests, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, replies


def _limit_resources() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return
    import ctypes

    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = MEMORY_LIMIT_BYTES if hard == resource.RLIM_INFINITY else min(hard, MEMORY_LIMIT_BYTES)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    # A verifier that hangs does not read the end of its input, so the kernel is asked to end it with
    # the pool's thread that started it. PR_SET_PDEATHSIG is 1.
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(1, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def _build_verifier(start: dict[str, Any]) -> Verifier | Callable[[Problem, Completion], Verdict]:
    if "config" in start:
        return build(from_nested(VerifierConfig, start["config"], "verifier"))
    module, _, function = start["function"].partition(":")
    return getattr(importlib.import_module(module), function)


def _reply(verifier: Callable[[Problem, Completion], Verdict], request: dict[str, Any]) -> bytes:
    number = request["job"]
    started = time.perf_counter()
    try:
        verdict = verifier(*messages.job_from_message(request))
        if not isinstance(verdict, Verdict):
            raise TypeError(f"the verifier returned a {type(verdict).__name__}, wanted a Verdict")
        verdict = dataclasses.replace(verdict, seconds=time.perf_counter() - started)
        frame = messages.encode(messages.verdict_to_message(number, verdict))
        if len(frame) > messages.MAX_REPLY_BYTES:
            raise ValueError(f"the verdict takes {len(frame)} bytes, wanted at most {messages.MAX_REPLY_BYTES}")
    except Exception as error:
        # Whatever goes wrong in a verifier is a fault of the judge, and is reported as one.
        reason = f"{type(error).__name__}: {error}"[:MAX_REASON_CHARACTERS]
        seconds = time.perf_counter() - started
        failed = Verdict(0.0, correct=False, parsed=None, reason=reason, seconds=seconds, error=True)
        frame = messages.encode(messages.verdict_to_message(number, failed))
    return frame


if __name__ == "__main__":
    main()
