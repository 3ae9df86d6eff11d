import pytest

from grpo_jax.records import Completion, FinishReason
from grpo_jax.verifiers import extract
from grpo_jax.verifiers.extract import after_thinking, answer_lines, extract_answer, sentence_around


def _extract(text: str, finish: FinishReason = FinishReason.STOP) -> tuple[str | None, str]:
    return extract_answer(Completion(text, 1, finish))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>42</answer>", "42"),
        ("<answer> 42\n</answer> \n\t", "42"),
        ("<think>6*7</think><answer>42</answer>", "42"),
        ("<think>6*7</think>\nSo it is <answer>42</answer>", "42"),
        ("thoughts without an opening tag</think><answer>42</answer>", "42"),
        ("<think><answer>41</answer></think><answer>42</answer>", "42"),
        ("<think>a</think><answer>1</answer><think>b</think><answer>42</answer>", "42"),
        ("<answer>definitely not 42</answer>", "definitely not 42"),
        ("<answer><b>42</b></answer>", "<b>42</b>"),
    ],
)
def test_the_block_at_the_end_is_the_answer(text, answer):
    assert _extract(text) == (answer, "found")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no answer block"),
        ("42", "no answer block"),
        ("<answer>42", "no answer block"),
        ("42</answer>", "no answer block"),
        ("</answer>42<answer>", "no answer block"),
        ("<ANSWER>42</ANSWER>", "no answer block"),
        ("<think><answer>42</answer>", "no answer block"),
        ("<think><answer>42</answer></think>", "no answer block"),
        ("<think>a</think><think><answer>42</answer>", "no answer block"),
        ("<answer>4</think>2</answer>", "no answer block"),
        ("<answer>41</answer><answer>42</answer>", "several answer blocks"),
        ("<answer>42</answer><answer>42</answer>", "several answer blocks"),
        ("<answer><answer>42</answer></answer>", "several answer blocks"),
        ("<answer><answer>42</answer>", "several answer blocks"),
        ("<answer>42</answer></answer>", "several answer blocks"),
        ("<answer>42</answer>.", "text after the answer block"),
        ("<answer>42</answer><think>", "text after the answer block"),
        ("<answer></answer>", "empty answer"),
        ("<answer> \n </answer>", "empty answer"),
    ],
)
def test_anything_else_has_a_reason(text, reason):
    assert _extract(text) == (None, reason)


def test_a_truncated_completion_has_no_answer():
    assert _extract("<answer>42</answer>", FinishReason.LENGTH) == (None, "truncated")


def test_the_answer_is_capped():
    longest = "7" * extract.MAX_ANSWER_CHARACTERS
    assert _extract(f"<answer>{longest}</answer>") == (longest, "found")
    assert _extract(f"<answer>{longest}7</answer>") == (None, "answer too long")


@pytest.mark.parametrize(
    ("text", "shown", "unclosed"),
    [
        ("a", "a", False),
        ("<think>a</think>b", "b", False),
        ("<think>a</think>b</think>c", "c", False),
        ("a<think>b", "a", True),
    ],
)
def test_only_what_follows_the_thinking_is_shown(text, shown, unclosed):
    assert after_thinking(text) == (shown, unclosed)


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("nothing", []),
        ("The answer is 8.", ["8"]),
        ("the final answer is: 3.5", ["3.5"]),
        ("The answer is 7. The answer is 8.", ["7", "8"]),
        ("Answer: 8\nmore", ["8"]),
        ("**Answer:** 8", ["8"]),
        ("Final Answer: **8**", ["**8**"]),
        ("> The final answer: 8", ["8"]),
        ("Final Answer:\n8", ["8"]),
        ("Final Answer:\n\n8", ["8"]),
        ("**Final Answer**\n\n8", ["8"]),
        ("Final Answer: The final answer is 8.", ["8"]),
        ("#### 1,250", ["1,250"]),
        ("my answer: 8", []),
        ("GRADER, answer: 8", []),
        ("The answer is", [""]),
    ],
)
def test_answer_lines(text, answers):
    assert [line.content.rstrip(".") for line in answer_lines(text)] == answers


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("a. b 8 c. d", "b 8 c."), ("a\nb 8\nc", "b 8\n"), ("8", "8"), ("It is 1.5 or 8", "It is 1.5 or 8")],
)
def test_the_sentence_around(text, sentence):
    start, end = sentence_around(text, text.index("8"), text.index("8") + 1)
    assert text[start:end].strip(" ") == sentence
