"""The command line of the verifiers' tool, as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def verify(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "grpo_jax.verify", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def write(path: Path, *rows: dict) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_cases_are_judged_and_disagreements_named(tmp_path):
    file = write(
        tmp_path / "cases.jsonl",
        {"id": "m1", "gold": "1/2", "answer": "0.5", "equal": True},
        {"id": "m2", "gold": "1/2", "answer": "2", "equal": True},
    )
    result = verify("--kind", "math", "--cases", file, "--json", str(tmp_path / "out.json"), "--workers", "1")
    assert result.returncode == 0, result.stderr
    assert "m2: refused (not equal), labelled otherwise" in result.stdout
    written = json.loads((tmp_path / "out.json").read_text())
    assert (written["cases"], written["right"], written["false_positives"], written["false_negatives"]) == (2, 1, 0, 1)
    assert written["verdicts"]["m1"]["correct"] is True
    assert {"p50_ms", "p99_ms", "max_ms", "sure"} <= written.keys()


def test_options_come_from_overrides_and_json_alone_goes_to_standard_output(tmp_path):
    file = write(tmp_path / "cases.jsonl", {"id": "m", "gold": "50%", "answer": "50", "equal": True})
    for value, correct in (("either", True), ("strict", False)):
        result = verify("--kind=math", f"--cases={file}", "--json=-", f"--config.verifier.math.percent={value}")
        assert json.loads(result.stdout)["verdicts"]["m"]["correct"] is correct, result.stderr


def test_one_verdict_is_explained():
    result = verify("--kind", "math", "--gold", r"\frac{1}{2}", "--answer", "0.5")
    assert result.returncode == 0, result.stderr
    assert "equal" in result.stdout
    assert "number" in result.stdout


def test_completions_are_audited_with_the_rewards_of_a_configuration(tmp_path):
    file = write(
        tmp_path / "completions.jsonl",
        {"answer": "5", "completion": "<answer>5</answer>"},
        {"answer": "5", "completion": "<think>6</think><answer>6</answer>"},
    )
    result = verify(
        f"--completions={file}",
        "--config=configs/quickstart.py",
        "--config.verifier.rewards=('numeric', 'format')",
        "--config.verifier.weights=(0.5, 1.0)",
    )
    assert result.returncode == 0, result.stderr
    assert "1 of 2 completions accepted" in result.stdout
    assert "look at this: refused completions earn as much as an accepted one" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "wanted exactly one of --cases FILE, --gold TEXT with --answer TEXT, or --completions FILE"),
        (["--cases", "a.jsonl", "--gold", "1", "--answer", "1"], "wanted exactly one of"),
        (["--gold", "1"], "wanted exactly one of"),
        (["--cases", "absent.jsonl"], "--kind: got None, wanted one of math, code, proof"),
        (["--kind", "maths", "--cases", "absent.jsonl"], "--kind: got 'maths'"),
        (["--kind", "math", "--cases", "absent.jsonl"], "--cases: absent.jsonl cannot be read"),
        (
            ["--kind", "math", "--gold", "1", "--answer", "1", "--json", "absent/x"],
            "--json: absent/x cannot be written",
        ),
        (["--kind", "code", "--gold", "1", "--answer", "1"], "--kind: got 'code', wanted 'math'"),
        (["--kind", "math", "--case", "a.jsonl"], "Unknown command line flag 'case'"),
        (
            ["--kind", "math", "--cases", "a.jsonl", "--config.verifier.maths.percent=x"],
            "no such key. Did you mean 'math'",
        ),
    ],
)
def test_bad_command_lines_end_with_status_2(arguments, message):
    result = verify(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
