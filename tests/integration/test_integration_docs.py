"""Code and cheap commands of README.md and docs/ run as they stand, and lists in docs/ are those of a run."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from ml_collections import ConfigDict

from grpo_jax import train
from grpo_jax.config import RunConfig, from_nested

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<language>bash|python)\n(?P<text>.*?)^```", re.DOTALL | re.M
)
FILE = re.compile(r"# (\w+\.py)\n")


def blocks(page: pathlib.Path, language: str) -> list[tuple[str, str]]:
    """Blocks of a language with the mark before each."""
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [(block["mark"] or "", block["text"]) for block in found if block["language"] == language]


def write_files(page: pathlib.Path, folder: pathlib.Path) -> None:
    """Files that a page shows, those whose first line is their name, beside the repository's configurations."""
    for _, text in blocks(page, "python"):
        if name := FILE.match(text):
            (folder / name[1]).write_text(text, encoding="utf-8")
    (folder / "configs").symlink_to(ROOT / "configs")


def run_marked(page: pathlib.Path, folder: pathlib.Path, wanted: str) -> None:
    write_files(page, folder)
    paths = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    for mark, text in blocks(page, "bash"):
        if mark in wanted.split(","):
            result = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", text],
                cwd=folder,
                env=os.environ | {"PATH": paths, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                check=False,
            )
            assert result.returncode == 0, f"{text}\n{result.stdout}\n{result.stderr}"


def rows(path: pathlib.Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_code_on_pages_runs(page: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for _, text in blocks(page, "python"):
        exec(compile(text, str(page), "exec"), names)
        if "def get_config" in text:
            config = names["get_config"]()  # pyright: ignore[reportCallIssue]
            assert isinstance(config, ConfigDict)
            from_nested(RunConfig, config.to_dict()).validate()


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder where the commands of docs/extending.md ran."""
    folder = tmp_path_factory.mktemp("extending")
    run_marked(ROOT / "docs" / "extending.md", folder, "run")
    return folder


def test_own_reward_and_task_train(extended: pathlib.Path) -> None:
    trained = [row for row in rows(extended / "runs" / "mine" / "metrics.jsonl") if row["kind"] == "train"]
    assert [row["step"] for row in trained] == [1, 2]
    reasons = {row["reason"] for row in rows(extended / "runs" / "mine" / "samples.jsonl")}
    assert reasons <= {"equal", "other number", "no number"}


@pytest.mark.slow
def test_an_own_loss_trains(extended: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "problems.jsonl").write_bytes((extended / "problems.jsonl").read_bytes())
    run_marked(ROOT / "docs" / "extending.md", tmp_path, "run: slow")
    trained = [row for row in rows(tmp_path / "runs" / "plain" / "metrics.jsonl") if row["kind"] == "train"]
    assert [row["step"] for row in trained] == [1, 2]
    assert all("policy_loss" not in row for row in trained), "GRPO's own update ran"


@pytest.mark.parametrize("page", ["faq"])
def test_marked_commands_run(page: str, tmp_path: pathlib.Path) -> None:
    run_marked(ROOT / "docs" / f"{page}.md", tmp_path, "run")


def test_no_marked_command_is_forgotten() -> None:
    marked = {page.stem for page in PAGES if any(mark.startswith("run") for mark, _ in blocks(page, "bash"))}
    assert marked == {"extending", "faq"}


def listed_metrics() -> set[str]:
    """Every name in the first column of docs/metrics.md."""
    lines = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").splitlines()
    return {name for line in lines if line.startswith("| `") for name in re.findall(r"`([^`]+)`", line.split(" | ")[0])}


def test_every_metric_of_a_run_is_listed(extended: pathlib.Path) -> None:
    written = {name for row in rows(extended / "runs" / "mine" / "metrics.jsonl") for name in row}
    assert "curriculum/seen" in written
    written = {re.sub(r"^(rewards|verifier)/function/", r"\1/<name>/", name) for name in written}
    assert written - listed_metrics() == set(), "wanted a line for each in docs/metrics.md"


def test_every_listed_metric_is_written_somewhere() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "grpo_jax").rglob("*.py")))
    source = re.sub(r"\{\w+\}", "<name>", source)
    stated = {name for name in listed_metrics() if f'"{name}"' not in source}
    assert {name for name in stated if not name.startswith("curriculum/")} == set()


def test_every_exit_status_is_listed() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "grpo_jax").rglob("*.py")))
    page = (ROOT / "docs" / "recovery.md").read_text(encoding="utf-8")
    usage = (train.__doc__ or "").partition("Exit status:")[2].partition("After")[0]
    given = {int(number) for number in re.findall(r"exit_status = (\d+)", source) + re.findall(r"\b\d+\b", usage)}
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == given | {0, 1, 2, 130}
