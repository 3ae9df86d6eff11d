"""The ways to start several processes: short, with their one command in the head, and restarting only what helps."""

import json
import pathlib
import subprocess
import sys

import pytest

LAUNCH = pathlib.Path(__file__).resolve().parents[2] / "launch"
FILES = sorted(path for path in LAUNCH.iterdir() if path.is_file())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_is_short_and_says_how_it_is_used(path: pathlib.Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= 80
    assert any(path.name in line for line in lines[:8])
    if path.suffix in (".sh", ".sbatch"):
        assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0


def supervise(folder: pathlib.Path, program: str, *options: str) -> tuple[int, int]:
    """The status of the supervision and the number of starts of a program that sees how often it was started."""
    script = folder / "program.py"
    script.write_text(
        "import json, pathlib, sys\n"
        "workdir = pathlib.Path(sys.argv[2])\n"
        "counter = workdir / 'starts'\n"
        "start = int(counter.read_text()) + 1 if counter.exists() else 1\n"
        "counter.write_text(str(start))\n" + program
    )
    command = [sys.executable, str(LAUNCH / "supervisor.py"), "--pause_seconds=0", *options, "--"]
    launched = ["env", "--", sys.executable, str(script), "--workdir", str(folder)]
    ended = subprocess.run([*command, *launched], check=False)
    return ended.returncode, json.loads((folder / "starts").read_text())


@pytest.mark.parametrize("status", [74, 75, 134, 137])
def test_what_can_be_mended_is_started_again(tmp_path: pathlib.Path, status: int) -> None:
    assert supervise(tmp_path, f"sys.exit({status} if start < 3 else 0)") == (0, 3)


def test_a_killed_command_is_started_again(tmp_path: pathlib.Path) -> None:
    assert supervise(tmp_path, "import os; os.kill(os.getpid(), 9) if start < 2 else None") == (0, 2)


@pytest.mark.parametrize("status", [0, 1, 2, 3, 4, 5, 6, 143])
def test_what_would_fail_again_is_not(tmp_path: pathlib.Path, status: int) -> None:
    assert supervise(tmp_path, f"sys.exit({status})") == (status, 1)


def test_restarts_end_where_nothing_is_saved_in_between(tmp_path: pathlib.Path) -> None:
    assert supervise(tmp_path, "sys.exit(75)", "--restarts=2") == (75, 3)


def test_every_new_checkpoint_earns_further_restarts(tmp_path: pathlib.Path) -> None:
    save = "(workdir / 'checkpoints' / 'grpo' / str(start)).mkdir(parents=True)\n"
    assert supervise(tmp_path, f"{save}sys.exit(75 if start < 6 else 0)", "--restarts=1") == (0, 6)


def test_a_command_without_a_folder_is_refused(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, str(LAUNCH / "supervisor.py"), "--", "true"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "names no --workdir" in ended.stderr
