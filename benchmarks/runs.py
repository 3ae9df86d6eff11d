"""Runs of the training command that benchmarks make once and read again."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def finished(folder: Path, config: str, overrides: Mapping[str, object]) -> Path:
    """Trains unless the folder holds a finished run, and writes what it took into ``resources.json``.

    Args:
        folder: The run folder.
        config: The configuration file.
        overrides: Values by dotted key.

    Returns:
        The folder.
    """
    if not (folder / "summary.json").exists():
        command = [sys.executable, "-m", "grpo_jax.train", f"--config={config}", f"--workdir={folder.absolute()}"]
        command += [f"--config.{key}={value}" for key, value in overrides.items()]
        with subprocess.Popen(command, cwd=REPOSITORY) as process:
            # Not wait(): the kernel tells what a process took only once, to whom it hands over its status.
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        resources = {"cpu_seconds": round(used.ru_utime + used.ru_stime), "peak_bytes": used.ru_maxrss * 1024}
        (folder / "resources.json").write_text(json.dumps(resources) + "\n")
    return folder
