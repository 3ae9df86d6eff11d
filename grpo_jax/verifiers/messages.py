"""Messages between the pool and its workers: a 4-byte length, then JSON.

JSON, not pickle: a worker has read what a model wrote, so nothing that it sends may be run.
"""

import dataclasses
import json
import os
import struct
from typing import Any

from grpo_jax.records import Completion, FinishReason, Problem, Verdict

MAX_REPLY_BYTES = 1 << 20
_HEADER = struct.Struct(">I")
HEADER_BYTES = _HEADER.size


def encode(message: dict[str, Any]) -> bytes:
    """Turns a message into one frame.

    Args:
        message: Plain JSON values.

    Returns:
        The header and the JSON text (ASCII, so that lone surrogates survive).

    Raises:
        TypeError: for a value that JSON does not have.
        ValueError: for values that contain themselves.
    """
    body = json.dumps(message).encode("ascii")
    return _HEADER.pack(len(body)) + body


def body_bytes(header: bytes | bytearray) -> int:
    """Reads the length of the body from the first ``HEADER_BYTES`` of a frame."""
    return _HEADER.unpack_from(header)[0]


def send(descriptor: int, frame: bytes) -> None:
    """Writes a whole frame to a blocking file descriptor."""
    view = memoryview(frame)
    while view:
        view = view[os.write(descriptor, view) :]


def receive(descriptor: int) -> dict[str, Any] | None:
    """Reads one message from a blocking file descriptor.

    Args:
        descriptor: The readable end of a pipe.

    Returns:
        The message, or ``None`` once the other side has closed the pipe.
    """
    header = _read_exactly(descriptor, HEADER_BYTES)
    body = _read_exactly(descriptor, body_bytes(header)) if header is not None else None
    return None if body is None else json.loads(body)


def _read_exactly(descriptor: int, size_bytes: int) -> bytes | None:
    buffer = bytearray()
    while len(buffer) < size_bytes:
        chunk = os.read(descriptor, size_bytes - len(buffer))
        if not chunk:
            return None
        buffer += chunk
    return bytes(buffer)


def job_to_message(number: int, problem: Problem, completion: Completion) -> dict[str, Any]:
    """The request to judge one completion; the reply carries the same number."""
    return {
        "job": number,
        "problem": [problem.identifier, problem.prompt, problem.answer, dict(problem.extra)],
        "completion": [completion.text, completion.length_tokens, int(completion.finish)],
    }


def job_from_message(message: dict[str, Any]) -> tuple[Problem, Completion]:
    """The inverse of ``job_to_message``."""
    text, length_tokens, finish = message["completion"]
    return Problem(*message["problem"]), Completion(text, length_tokens, FinishReason(finish))


def verdict_to_message(number: int, verdict: Verdict) -> dict[str, Any]:
    """The reply to job ``number``."""
    values = {field.name: getattr(verdict, field.name) for field in dataclasses.fields(verdict)}
    # Whatever counts as a number in a verifier (an int, a NumPy scalar) is a float from here on.
    values["reward"], values["seconds"] = float(verdict.reward), float(verdict.seconds)
    for name in ("parts", "part_seconds"):
        values[name] = {part: float(value) for part, value in values[name].items()}
    values["flags"] = list(verdict.flags)
    return {"job": number, "verdict": values}


_VERDICT_TYPES: dict[str, tuple[type, ...]] = {
    "reward": (float,),
    "correct": (bool,),
    "parsed": (str, type(None)),
    "reason": (str,),
    "seconds": (float,),
    "error": (bool,),
    "parts": (dict,),
    "part_seconds": (dict,),
    "failed_part": (str,),
    "flags": (list,),
}


def verdict_from_message(message: Any, number: int) -> Verdict:
    """Reads the reply to job ``number``, trusting nothing.

    Args:
        message: Decoded JSON.
        number: The job that was asked for.

    Returns:
        The verdict.

    Raises:
        ValueError: if it answers another job, or a field is missing, too many or of another type.
    """
    if type(message) is not dict or message.get("job") != number or type(message.get("verdict")) is not dict:
        raise ValueError(f"wanted the verdict of job {number}")
    values = message["verdict"]
    if set(values) != set(_VERDICT_TYPES):
        raise ValueError(f"wanted the fields {sorted(_VERDICT_TYPES)}, got {sorted(values)}")
    for name, types in _VERDICT_TYPES.items():
        if type(values[name]) not in types:
            raise ValueError(f"{name} is a {type(values[name]).__name__}")
    for name in ("parts", "part_seconds"):
        if any(type(value) is not float for value in values[name].values()):
            raise ValueError(f"one of the {name} is not a float")
    if any(type(flag) is not str for flag in values["flags"]):
        raise ValueError("one of the flags is not a str")
    return Verdict(**values | {"flags": tuple(values["flags"])})
