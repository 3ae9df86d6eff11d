"""Runs of the training command that benchmarks make once and read again."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def finished(folder: Path, config: str, overrides: Mapping[str, object]) -> Path:
    """Trains unless the folder holds a finished run.

    Args:
        folder: The run folder.
        config: The configuration file.
        overrides: Values by dotted key.

    Returns:
        The folder.
    """
    if not (folder / "summary.json").exists():
        command = [sys.executable, "-m", "grpo_jax.train", f"--config={config}", f"--workdir={folder.absolute()}"]
        subprocess.run([*command, *(f"--config.{k}={v}" for k, v in overrides.items())], check=True, cwd=REPOSITORY)
    return folder
