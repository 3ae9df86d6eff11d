import json

import pytest

from grpo_jax.config import ConfigError, VerifierConfig
from grpo_jax.records import FinishReason
from grpo_jax.verifiers import audit

CONFIG = VerifierConfig(rewards=("numeric", "format"), weights=(1.0, 2.0), deadline_seconds=20.0)


def rows_of(tmp_path, *rows):
    path = tmp_path / "completions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return audit.read_completions(path)


def test_an_audit_counts_what_is_accepted_and_why(tmp_path):
    rows = rows_of(
        tmp_path,
        {"answer": "42", "completion": "<answer>42</answer>"},
        {"answer": "42", "completion": "<think>x</think><answer>41</answer>"},
        {"answer": "forty", "completion": "<answer>40</answer>"},
        {"answer": "42", "completion": "<answer>42</answer>", "truncated": True},
    )
    result = audit.audit(rows, CONFIG)
    assert (result["completions"], result["accepted"], result["errors"]) == (4, 1, 1)
    assert result["mean_reward"] == pytest.approx((1.0 + 2.0 + 0.0) / 3)
    assert result["reasons"]["equal"] == 1
    assert [verdict["line"] for verdict in result["verdicts"]] == [1, 2, 3, 4]
    assert result["verdicts"][1]["parts"] == {"numeric": 0.0, "format": 1.0}
    [finding] = result["findings"]
    assert finding["why"].startswith("refused completions earn as much as an accepted one")
    assert [row["line"] for row in finding["rows"]] == [2]


GREEDY = """
def anything(problem, completion):
    return True
"""


def test_a_reward_that_takes_anything_is_found(tmp_path):
    (tmp_path / "greedy.py").write_text(GREEDY)
    config = VerifierConfig(rewards=("function",), function=f"{tmp_path / 'greedy.py'}:anything", deadline_seconds=20.0)
    rows = rows_of(
        tmp_path,
        {"answer": "1", "completion": "the answer is obvious"},
        {"answer": "2", "completion": "the answer is obvious"},
        {"answer": "2", "completion": " "},
        {"answer": "2", "completion": "12", "truncated": True},
    )
    findings = {
        finding["why"]: [row["line"] for row in finding["rows"]] for finding in audit.audit(rows, config)["findings"]
    }
    assert findings == {
        "one text is accepted for problems with different answers (2 completions)": [1, 2],
        "empty completions are accepted (1 completion)": [3],
        "completions that the token limit cut off are accepted (1 completion)": [4],
    }


def test_a_sound_reward_gives_no_finding(tmp_path):
    rows = rows_of(
        tmp_path,
        {"answer": "42", "completion": "<think>a</think><answer>42</answer>"},
        {"answer": "41", "completion": "<answer>42</answer>"},
    )
    assert audit.audit(rows, CONFIG)["findings"] == []


def test_other_columns_reach_the_verifiers(tmp_path):
    [row] = rows_of(tmp_path, {"problem": "make 42", "answer": "42", "completion": "x", "numbers": [6, 7]})
    assert (row.problem.prompt, row.problem.extra["numbers"]) == ("make 42", [6, 7])
    assert row.completion.finish == FinishReason.STOP


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "line 1 of .* is no completion: it is a list, wanted an object"),
        ('{"completion": 3}', "completion is 3, wanted a text"),
        ('{"answer": "3"}', "completion is None, wanted a text"),
        ('{"completion": "x", "answer": 3}', "answer is 3, wanted a text"),
        ('{"completion": "x", "truncated": "no"}', "truncated is 'no', wanted true or false"),
        ("\n", "holds no completion"),
    ],
)
def test_a_row_that_is_no_completion_is_named(tmp_path, text, message):
    path = tmp_path / "completions.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        audit.read_completions(path)
