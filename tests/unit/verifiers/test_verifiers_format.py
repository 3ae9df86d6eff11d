import pytest

from grpo_jax.records import Completion, FinishReason, Problem
from grpo_jax.verifiers.format import FormatVerifier


def _judge(text: str, finish: FinishReason = FinishReason.STOP):
    return FormatVerifier()(Problem("p", "6*7=", "42"), Completion(text, 9, finish))


@pytest.mark.parametrize(
    "text",
    [
        "<think>6*7</think><answer>42</answer>",
        "<think></think><answer>42</answer>",
        " \n<think>6*7\n</think>\n\n<answer>42</answer>\n",
        "<think>6*7</think><answer>wrong, but in its place</answer>",
    ],
)
def test_the_format_is_kept(text):
    verdict = _judge(text)
    assert (verdict.reward, verdict.correct, verdict.reason) == (1.0, True, "format kept")
    assert verdict.parsed in text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no answer block"),
        ("<think>6*7</think>", "no answer block"),
        ("<think>6*7</think><answer></answer>", "empty answer"),
        ("<think>6*7</think><answer>42</answer>.", "text after the answer block"),
        ("<answer>42</answer><think>6*7</think>", "no answer block"),
        ("<think><answer>42</answer></think>", "no answer block"),
        ("<answer>42</answer>", "not every tag exactly once"),
        ("6*7</think><answer>42</answer>", "not every tag exactly once"),
        ("<think><think>6*7</think><answer>42</answer>", "not every tag exactly once"),
        ("<think>6*7</think></think><answer>42</answer>", "not every tag exactly once"),
        ("<think><answer>42</answer></think><answer>42</answer>", "not every tag exactly once"),
        ("<think>6*7</think><answer>42<think></answer>", "no answer block"),
        ("Well. <think>6*7</think><answer>42</answer>", "text before the think block"),
        ("</think><think><answer>42</answer>", "no answer block"),
        ("<think>6*7</think>So: <answer>42</answer>", "text between the blocks"),
    ],
)
def test_any_departure_earns_nothing(text, reason):
    verdict = _judge(text)
    assert (verdict.reward, verdict.correct, verdict.reason, verdict.error) == (0.0, False, reason, False)


def test_a_truncated_completion_does_not_keep_the_format():
    verdict = _judge("<think>6*7</think><answer>42</answer>", FinishReason.LENGTH)
    assert (verdict.reward, verdict.correct, verdict.reason) == (0.0, False, "truncated")
