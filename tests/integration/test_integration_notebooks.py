"""Every notebook runs from its first cell to its last, and the first one learns."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNNER = pathlib.Path(__file__).with_name("run_notebook.py")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    result = subprocess.run(
        [sys.executable, str(RUNNER), str(path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    if path.stem == "1_quickstart":
        summary = json.loads((tmp_path / "runs" / "notebook" / "summary.json").read_text(encoding="utf-8"))
        assert summary["test_pass_at_1_after"] - summary["test_pass_at_1_before"] > 0.2
