"""Runs a test's program in several processes that form one JAX run, and ends them all when one fails or hangs."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax

from grpo_jax.config import WatchdogConfig
from grpo_jax.parallel import distributed
from launch.local_multiprocess import free_port

BARRIER_SECONDS = 5
REPOSITORY = Path(__file__).resolve().parents[2]
GROUP = "GRPO_JAX_TEST_GROUP"


def run(
    module: str,
    *arguments: str,
    processes: int = 2,
    devices_each: int = 2,
    limit_seconds: float = 240,
    by_slurm: bool = False,
) -> list[Any]:
    """Runs ``python -m module arguments`` once per process and returns what each handed to ``report``.

    Args:
        module: A program that calls ``join`` before anything else of JAX.
        *arguments: Its command line.
        processes: Processes.
        devices_each: CPU devices in each.
        limit_seconds: Wall time after which all are killed.
        by_slurm: The processes find each other by the variables that Slurm would set.

    Returns:
        One value per process, in order.

    Raises:
        AssertionError: with the processes' last words, if one fails or the time is up.
    """
    with tempfile.TemporaryDirectory() as folder:
        shared = {
            "coordinator": f"localhost:{free_port()}",
            "by_slurm": by_slurm,
            "processes": processes,
            "devices": devices_each,
            "folder": folder,
        }
        group = [_start([module, *arguments], shared | {"number": number}) for number in range(processes)]
        try:
            failure = _wait(group, time.monotonic() + limit_seconds)
        finally:
            for process in group:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        words = "\n".join((Path(folder) / f"{number}.log").read_text()[-4000:] for number in range(processes))
        assert not failure, f"{failure}\n{words}"
        return [json.loads((Path(folder) / f"{number}.json").read_text()) for number in range(processes)]


def join() -> None:
    """Makes this process one of the group that ``run`` started; collectives run over gloo."""
    group = json.loads(os.environ[GROUP])
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", group["devices"])
    config = WatchdogConfig(connect_seconds=60, heartbeat_seconds=20, barrier_seconds=BARRIER_SECONDS)
    if group["by_slurm"]:
        distributed.start(config, detect=True)
        return
    distributed.start(
        config,
        coordinator_address=group["coordinator"],
        num_processes=group["processes"],
        process_id=group["number"],
    )


def report(value: Any) -> None:
    """Hands plain JSON values to the test."""
    group = json.loads(os.environ[GROUP])
    (Path(group["folder"]) / f"{group['number']}.json").write_text(json.dumps(value))


def _start(command: list[str], group: dict[str, Any]) -> subprocess.Popen[bytes]:
    with (Path(group["folder"]) / f"{group['number']}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=REPOSITORY,
            env=os.environ | {GROUP: json.dumps(group)} | (_slurm(group) if group["by_slurm"] else {}),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait(group: list[subprocess.Popen[bytes]], expires: float) -> str:
    """Waits until all have ended; returns what went wrong, or nothing."""
    while any(process.poll() is None for process in group):
        failed = [number for number, process in enumerate(group) if process.poll() not in (None, 0)]
        if failed:
            return f"process {failed[0]} ended with {group[failed[0]].returncode}"
        if time.monotonic() > expires:
            return "the processes did not end in time: a collective that not all of them reach?"
        time.sleep(0.05)
    failed = [number for number, process in enumerate(group) if process.returncode]
    return f"process {failed[0]} ended with {group[failed[0]].returncode}" if failed else ""


def _slurm(group: dict[str, Any]) -> dict[str, str]:
    # The port that a job number stands for is 61440 and what is left of it by 4096.
    return {
        "SLURM_JOB_ID": group["coordinator"].partition(":")[2],
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": str(group["processes"]),
        "SLURM_PROCID": str(group["number"]),
        "SLURM_LOCALID": str(group["number"]),
    }
