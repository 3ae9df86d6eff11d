"""A run without a name gets a folder of its own, and the newest one is found again."""

import re
from pathlib import Path

import pytest

from grpo_jax.io.run_names import fresh_workdir, newest_workdir


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def start(config_name: str) -> Path:
    folder = fresh_workdir(config_name)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def test_the_name_says_config_and_time() -> None:
    assert re.fullmatch(r"runs/addition-\d{8}-\d{6}-\d{6}", str(fresh_workdir("addition")))
    assert not Path("runs").exists()


def test_runs_started_within_one_second_have_folders_of_their_own() -> None:
    started = [start("addition") for _ in range(20)]
    assert len(set(started)) == 20
    assert newest_workdir("addition") == started[-1]


def test_the_newest_is_one_of_this_config_that_holds_a_run() -> None:
    mine = start("sum[1]")
    start("sum[1]-long")
    fresh_workdir("sum[1]").mkdir()
    Path(f"{mine}-copy").mkdir()
    Path(f"{mine}-copy", "config.json").write_text("{}")
    assert newest_workdir("sum[1]") == mine
    assert newest_workdir("sum") is None
