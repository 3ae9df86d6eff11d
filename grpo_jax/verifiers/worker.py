"""The process that runs a verifier for the pool: ``python -m grpo_jax.verifiers.worker``.

It reads jobs from its standard input and writes verdicts to its standard output. A verifier sees
neither: its own standard input is empty, and what it prints goes to standard error.
"""

import dataclasses
import os
import resource
import sys
import time
from collections.abc import Mapping
from typing import Any

from grpo_jax.config import VerifierConfig, from_nested
from grpo_jax.records import Verdict
from grpo_jax.verifiers import messages
from grpo_jax.verifiers.base import UnusableVerifierError, Verifier
from grpo_jax.verifiers.composite import build
from grpo_jax.verifiers.function import FunctionVerifier

MAX_REASON_CHARACTERS = 500


def main() -> None:
    """Serves jobs until standard input is closed."""
    requests, replies = _take_over_standard_streams()
    start = messages.receive(requests)
    if start is None:
        return
    _limit_resources(start["memory_bytes"])
    try:
        verifier, facts = _started_verifier(start)
    except UnusableVerifierError as error:
        messages.send(replies, messages.encode({"unusable": str(error)}))
        return
    messages.send(replies, messages.encode({"ready": dict(facts)}))
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


def _limit_resources(memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = memory_bytes if hard == resource.RLIM_INFINITY else min(hard, memory_bytes)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _started_verifier(start: dict[str, Any]) -> tuple[Verifier, Mapping[str, str]]:
    if "config" in start:
        verifier = build(from_nested(VerifierConfig, start["config"], "verifier"))
    else:
        verifier = FunctionVerifier(start["function"])
    return verifier, verifier.start()


def _reply(verifier: Verifier, request: dict[str, Any]) -> bytes:
    number = request["job"]
    started = time.perf_counter()
    try:
        verdict = verifier(*messages.job_from_message(request))
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
