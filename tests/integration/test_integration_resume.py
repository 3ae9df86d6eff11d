"""A run that is killed in every phase ends like one that was left alone, bit for bit."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
CLOCK = ("seconds", "step_time", "tokens_per_second", "memory")
KILLED = -9


def train(workdir: Path, *arguments: str, fault: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grpo_jax.train", "--config", "tests/integration/tiny.py"]
    return subprocess.run(
        [*command, f"--workdir={workdir}", *arguments],
        cwd=REPOSITORY,
        env=os.environ | {"GRPO_JAX_FAULT": fault},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def rows(workdir: Path, name: str = "metrics.jsonl") -> list[dict[str, object]]:
    """Rows without what a clock measured."""
    lines = (workdir / name).read_text().splitlines()
    return [
        {key: value for key, value in json.loads(line).items() if not any(word in key for word in CLOCK)}
        for line in lines
    ]


def final_record(workdir: Path) -> dict[str, object]:
    """What the last checkpoint says of itself: a digest of every array and the host's state."""
    [metadata] = (workdir / "checkpoints" / "grpo" / "6").rglob("_CHECKPOINT_METADATA")
    record = json.loads(json.loads(metadata.read_text())["custom_metadata"]["record"])
    del record["host_state"]["seconds"]
    return record


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workdir = tmp_path_factory.mktemp("undisturbed")
    result = train(workdir)
    assert result.returncode == 0, result.stderr
    return workdir


def test_killed_in_every_phase_ends_like_undisturbed(undisturbed: Path, tmp_path: Path) -> None:
    for fault in ("cold_start:3:kill", "rollout:2:kill", "evaluation:3:kill", "update:4:kill", "save:6:kill"):
        killed = train(tmp_path, fault=fault)
        assert killed.returncode == KILLED, f"{fault}: {killed.stderr}"
    result = train(tmp_path)
    assert result.returncode == 0, result.stderr
    assert rows(tmp_path) == rows(undisturbed)
    assert rows(tmp_path, "samples.jsonl") == rows(undisturbed, "samples.jsonl")
    assert final_record(tmp_path) == final_record(undisturbed)
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (tmp_path, undisturbed)]
    assert summaries[0] | {"seconds": 0} == summaries[1] | {"seconds": 0}


def test_sigterm_saves_at_a_step_boundary_and_goes_on(undisturbed: Path, tmp_path: Path) -> None:
    stopped = train(tmp_path, fault="rollout:3:stop")
    assert stopped.returncode == 0
    assert "stopped after step 3 of grpo" in stopped.stderr
    assert not (tmp_path / "summary.json").exists()
    assert "3 of 6 steps" in re.sub("<[^>]*>", "", (tmp_path / "report.html").read_text())
    result = train(tmp_path)
    assert result.returncode == 0, result.stderr
    assert "going on from step 3 of grpo" in result.stdout
    assert rows(tmp_path) == rows(undisturbed)
    assert final_record(tmp_path) == final_record(undisturbed)


def test_a_full_disk_ends_with_one_line_and_loses_no_checkpoint(undisturbed: Path, tmp_path: Path) -> None:
    full = train(tmp_path, fault="rollout:4:full")
    assert full.returncode == 7
    # The save of step 2 may have been whole by then, or not.
    wanted = r"error: .*/metrics\.jsonl cannot be written: File too large\..* on from checkpoint ([02]) of grpo\.\n"
    told = re.fullmatch(wanted, full.stderr)
    assert told, full.stderr
    result = train(tmp_path)
    assert result.returncode == 0, result.stderr
    assert f"going on from step {told[1]} of grpo" in result.stdout
    assert rows(tmp_path) == rows(undisturbed)
    assert final_record(tmp_path) == final_record(undisturbed)


def test_run_folder_holds_everything(undisturbed: Path) -> None:
    assert {path.name for path in undisturbed.iterdir()} >= {
        "config.json", "run.json", "metrics.jsonl", "samples.jsonl", "summary.json", "curves.png", "checkpoints",
        "report.html",
    }  # fmt: skip
    summary = json.loads((undisturbed / "summary.json").read_text())
    assert {"test_pass_at_1_before", "test_pass_at_1_after", "validation_pass_at_1_best"} <= summary.keys()
    assert {"steps", "seconds", "tokens", "versions", "seed"} <= summary.keys()
    # Random letters are never right, and a run says so.
    assert [warning["name"] for warning in summary["warnings"]] == ["hopeless_groups"]
    kinds = [row["kind"] for row in rows(undisturbed)]
    # Cold start, two baselines, six steps with an evaluation after the third and the sixth, and the test.
    assert kinds == ["cold_start"] * 4 + ["evaluation"] * 2 + (["train"] * 3 + ["evaluation"]) * 2 + ["evaluation"]
    assert all(row["skipped_update"] == 0 for row in rows(undisturbed) if row["kind"] == "train")
    start = json.loads((undisturbed / "run.json").read_text())["starts"][0]
    assert start["versions"]["jax"]
    assert "git" in json.dumps(start)


def test_changed_config_is_refused_with_the_key(undisturbed: Path) -> None:
    result = train(undisturbed, "--config.model.d_ff=32")
    assert result.returncode == 6
    assert "config.model.d_ff: 16 in the folder, 32 now" in result.stderr


def test_finished_run_can_be_extended(undisturbed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    subprocess.run(["cp", "-r", str(undisturbed), str(copy)], check=True)
    result = train(copy, "--config.steps=7")
    assert result.returncode == 0, result.stderr
    assert [row["step"] for row in rows(copy) if row["kind"] == "train"] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config.rollout.group_size=4"], "config.rollout.group_size: no such key"),
        (["--config.rollout.completions_per_prompt=1"], "A group of one has no variance"),
        (["--config.cold_start.steps=0", "--config.data.task=file", "--config.data.path=absent.jsonl"], "absent.jsonl"),
        (
            [
                "--config.verifier.rewards=('function',)",
                "--config.verifier.weights=(1.0,)",
                "--config.verifier.function=absent.py:f",
            ],
            "there is no file absent.py",
        ),
    ],
)
def test_user_errors_end_with_status_2_and_leave_no_folder(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = train(tmp_path / "run", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists()
