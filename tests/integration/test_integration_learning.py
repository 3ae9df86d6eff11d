"""The quickstart learns from its reward: fresh seeds, and problems that nothing was ever chosen by."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11])
def test_quickstart_learns(seed: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grpo_jax.train", "--config", "configs/quickstart.py"]
    subprocess.run([*command, f"--config.seed={seed}", f"--workdir={tmp_path}"], cwd=REPOSITORY, check=True)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["test_pass_at_1_before"] <= 0.40
    assert summary["test_pass_at_1_after"] >= 0.85
