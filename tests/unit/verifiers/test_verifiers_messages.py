import dataclasses
import os

import pytest

from grpo_jax.records import Completion, FinishReason, Problem, Verdict
from grpo_jax.verifiers import messages

_VERDICT = Verdict(
    0.5,
    True,
    "42",
    "equal",
    seconds=0.25,
    parts={"numeric": 1.0},
    part_seconds={"numeric": 0.2},
    flags=("approximate",),
)


def _through_a_pipe(message: dict) -> dict | None:
    reader, writer = os.pipe()
    try:
        messages.send(writer, messages.encode(message))
        return messages.receive(reader)
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("text", ["", "<answer>42</answer>", "½ ∞ 日本\x00\n", "\ud800 lone surrogate"])
def test_a_job_arrives_as_it_was_sent(text):
    problem = Problem("p", text, "42", extra={"tests": [1, "a", None, {"b": 2.5}], "note": text})
    completion = Completion(text, 7, FinishReason.LENGTH)
    arrived = _through_a_pipe(messages.job_to_message(3, problem, completion))
    assert arrived is not None
    assert arrived["job"] == 3
    assert messages.job_from_message(arrived) == (problem, completion)
    assert type(messages.job_from_message(arrived)[1].finish) is FinishReason


@pytest.mark.parametrize(
    "verdict", [_VERDICT, Verdict(0.0, False, None, "TypeError: x", error=True, failed_part="numeric")]
)
def test_a_verdict_arrives_as_it_was_sent(verdict):
    arrived = _through_a_pipe(messages.verdict_to_message(3, verdict))
    assert messages.verdict_from_message(arrived, 3) == verdict
    assert type(messages.verdict_from_message(arrived, 3).flags) is tuple


def test_the_end_of_the_pipe_is_no_message():
    reader, writer = os.pipe()
    os.write(writer, messages.encode({"job": 1})[:-1])
    os.close(writer)
    assert messages.receive(reader) is None
    os.close(reader)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": True}, "reward is a bool"),
        ({"reward": 1}, "reward is a int"),
        ({"reward": float("inf")}, "reward must be finite"),
        ({"reward": 1e19}, r"at most 1e\+15 in size, got 1e\+19"),
        ({"correct": 1}, "correct is a int"),
        ({"parsed": 42}, "parsed is a int"),
        ({"reason": None}, "reason is a NoneType"),
        ({"seconds": None}, "seconds is a NoneType"),
        ({"error": 0}, "error is a int"),
        ({"parts": []}, "parts is a list"),
        ({"parts": {"numeric": "1"}}, "one of the parts is not a float"),
        ({"part_seconds": {"numeric": None}}, "one of the part_seconds is not a float"),
        ({"flags": [1]}, "one of the flags is not a str"),
        ({"flags": "approximate"}, "flags is a str"),
        ({"flags": ("approximate",)}, "flags is a tuple"),
        ({"bonus": 1.0}, "wanted the fields"),
    ],
)
def test_a_reply_of_other_types_is_refused(change, message):
    values = {**dataclasses.asdict(_VERDICT), "flags": ["approximate"], **change}
    with pytest.raises(ValueError, match=message):
        messages.verdict_from_message({"job": 3, "verdict": values}, 3)


@pytest.mark.parametrize("reply", [None, [], {}, {"job": 2, "verdict": {}}, {"job": 3}, {"job": 3, "verdict": [1.0]}])
def test_a_reply_to_another_job_is_refused(reply):
    with pytest.raises(ValueError, match="wanted the verdict of job 3"):
        messages.verdict_from_message(reply, 3)
