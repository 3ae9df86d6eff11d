"""Which folder a command line means, before anything is trained; tests/integration has whole runs."""

import shutil
import sys
from pathlib import Path

import pytest
from absl import flags

from grpo_jax import cli, train
from grpo_jax.config import ConfigError, to_nested
from grpo_jax.io.reward_code import RewardChanged
from grpo_jax.io.run_folder import RunFolder, RunFolderDamaged
from grpo_jax.reporting.page import write_report

TINY = Path(__file__).resolve().parents[1] / "integration" / "tiny.py"
COMMAND = ["train", "--config", str(TINY), "--config.rollout.prompts_per_step=8"]


def finished(folder: Path) -> Path:
    """A folder that says that a run of this configuration is done."""
    config = cli.parse(COMMAND, flags.FlagValues()).config
    RunFolder.open(folder, to_nested(config), overrides={}).close()
    (folder / "summary.json").write_text('{"steps": 4}')
    return folder


def test_resume_goes_on_with_the_newest_run_of_this_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    older = finished(tmp_path / "runs" / "tiny-20250131-142501-000001")
    newer = shutil.copytree(older, older.with_name("tiny-20250131-142501-000002"))
    shutil.copytree(older, older.with_name("tiny-20250131-142501-000003-copy"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [*COMMAND, "--resume"])
    assert train.main() == 0
    assert f"{newer.relative_to(tmp_path)} is finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume"], "--resume: runs holds no folder tiny-<time>. Name another folder with --workdir"),
        (["--resume", "--workdir=absent"], "--resume: absent holds no run to go on with. Leave --resume out"),
    ],
)
def test_resume_without_a_run_is_refused(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [*COMMAND, *arguments])
    with pytest.raises(ConfigError, match=message):
        train.main()


@pytest.mark.parametrize("file", ["config.json", "run.json", "summary.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[1, 2]", b"\xff\x00", b"[" * 100_000])
def test_a_damaged_file_of_a_run_is_named(
    file: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = finished(tmp_path / "run")
    if file == "run.json":
        (folder / "summary.json").unlink()
    (folder / file).write_bytes(content)
    monkeypatch.setattr(sys, "argv", [*COMMAND, f"--workdir={folder}"])
    with pytest.raises(RunFolderDamaged, match=rf"{file} (is no JSON|holds no JSON object).* Restore it from a copy"):
        train.main()
    with pytest.raises(RunFolderDamaged, match=file):
        write_report(folder)


@pytest.mark.parametrize("workdir", ["", "/proc/x/y", "FILE/below", "n" * 300])
def test_a_folder_that_cannot_be_made_is_named(
    workdir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "FILE").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [*COMMAND, f"--workdir={workdir}"])
    with pytest.raises(SystemExit) as ended:
        cli.run(train.main)
    said = capsys.readouterr().err.splitlines()[-1]
    assert ended.value.code == 2
    assert said.startswith("error: ")
    assert (workdir or "--workdir: got nothing, wanted a folder") in said


def test_fewer_steps_than_are_done_are_refused_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = finished(tmp_path / "run")
    (folder / "checkpoints" / "grpo" / "4").mkdir(parents=True)
    before = (folder / "config.json").read_bytes()
    monkeypatch.setattr(sys, "argv", [*COMMAND, f"--workdir={folder}", "--config.steps=3"])
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"config\.steps: got 3, wanted 4 or more: that many are done already"):
            train.main()
    assert (folder / "config.json").read_bytes() == before


def test_a_reward_whose_file_changed_is_noticed_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reward = tmp_path / "mine.py"
    reward.write_text("def f(problem, completion):\n    return 1.0\n")
    own = [
        "--config.verifier.rewards=('function',)",
        "--config.verifier.weights=(1.0,)",
        f"--config.verifier.function={reward}:f",
        f"--workdir={tmp_path / 'run'}",
    ]
    monkeypatch.setattr(train, "train", lambda *_: None)
    monkeypatch.setattr(sys, "argv", [*COMMAND, *own])
    assert train.main() == 0
    assert train.main() == 0
    reward.write_text("def f(problem, completion):\n    return 0.5\n")
    with pytest.raises(RewardChanged, match=r"made with other code of its rewards:\n  function: .*mine\.py:f"):
        train.main()
    monkeypatch.setattr(sys, "argv", [*COMMAND, *own, "--changed_reward"])
    assert train.main() == 0
    monkeypatch.setattr(sys, "argv", [*COMMAND, *own])
    assert train.main() == 0
