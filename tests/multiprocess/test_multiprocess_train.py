"""Whole runs in several processes: the number of processes changes nothing, and a run survives the loss of one."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_integration_resume import final_record, rows

REPOSITORY = Path(__file__).resolve().parents[2]
MESH = ("--config.mesh.data=2", "--config.mesh.fsdp=2")
SHORT = (
    "--config.steps=2",
    "--config.cold_start.steps=0",
    "--config.algorithm.kl_beta=0.0",
    # The shape of a training step, so that nothing else compiles.
    "--config.evaluation.samples_per_problem=4",
    "--config.evaluation.test_samples_per_problem=4",
    *MESH,
)


def command(workdir: Path, *arguments: str, processes: int = 1, config: str = "tests/integration/tiny.py") -> list[str]:
    """Trains on four devices in all."""
    trained = ["-m", "grpo_jax.train", "--config", config, f"--workdir={workdir}", *arguments]
    launched = ["launch/local_multiprocess.py", f"--processes={processes}", f"--cpu_devices={4 // processes}", "--"]
    return [sys.executable, *([*launched, sys.executable] if processes > 1 else []), *trained]


def environment(fault: str = "") -> dict[str, str]:
    """Compiling is most of the work here, and programs that are made in less time say the same."""
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "true", "JAX_NUM_CPU_DEVICES": "4", "PYTHONPATH": str(REPOSITORY)}
    return os.environ | quick | {"GRPO_JAX_FAULT": fault}


def run(command: list[str], *, fault: str = "", limit_seconds: float = 600) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment(fault),
        capture_output=True,
        text=True,
        timeout=limit_seconds,
        check=False,
    )


def finish(workdir: Path, *arguments: str, **options: Any) -> Path:
    result = run(command(workdir, *arguments, **options))
    assert result.returncode == 0, result.stderr
    return workdir


def assert_same_rows(got: Path, wanted: Path, tolerance: float) -> None:
    """Compares all metrics but clocks and the size of the pools."""
    got_rows, wanted_rows = rows(got), rows(wanted)
    assert len(got_rows) == len(wanted_rows) > 0
    for got_row, wanted_row in zip(got_rows, wanted_rows, strict=True):
        (got_numbers, got_others), (wanted_numbers, wanted_others) = parted(got_row), parted(wanted_row)
        assert got_others == wanted_others
        assert got_numbers == pytest.approx(wanted_numbers, rel=tolerance, abs=tolerance)


def parted(row: dict[str, object]) -> tuple[dict[str, float], dict[str, object]]:
    """Metrics that rounding may change, and everything else."""
    numbers = {name: value for name, value in row.items() if isinstance(value, float) and name != "verifier/workers"}
    return numbers, {name: value for name, value in row.items() if not isinstance(value, float)}


def test_stopped_in_two_processes_it_goes_on_in_one_as_if_it_had_never_been_two(tmp_path: Path) -> None:
    undisturbed = finish(tmp_path / "undisturbed", *SHORT)
    # Only the second process gets the signal.
    stopped = run(command(tmp_path / "run", *SHORT, processes=2), fault="rollout:1:stop:1")
    assert stopped.returncode == 0, stopped.stderr
    assert "stopped after step 1 of grpo" in stopped.stderr
    resumed = run(command(tmp_path / "run", *SHORT))
    assert resumed.returncode == 0, resumed.stderr
    assert "going on from step 1 of grpo" in resumed.stdout
    assert_same_rows(tmp_path / "run", undisturbed, 1e-5)
    assert rows(tmp_path / "run", "samples.jsonl") == rows(undisturbed, "samples.jsonl")
    starts = json.loads((tmp_path / "run" / "run.json").read_text())["starts"]
    assert [start["processes"] for start in starts] == [2, 1]


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finish(tmp_path_factory.mktemp("two"), *MESH, processes=2)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 4])
def test_the_number_of_processes_changes_nothing(two_processes: Path, tmp_path: Path, processes: int) -> None:
    finish(tmp_path, *MESH, processes=processes)
    assert_same_rows(tmp_path, two_processes, 1e-5)
    assert rows(tmp_path, "samples.jsonl") == rows(two_processes, "samples.jsonl")


@pytest.mark.slow
def test_ppo_and_a_curriculum_in_two_processes(tmp_path: Path) -> None:
    # PPO divides advantages by their deviation, 1e-4 without any reward: which magnifies rounding.
    (tmp_path / "reward.py").write_text(
        "def digits(problem, completion):\n    return sum(map(str.isdigit, completion.text)) / 32\n"
    )
    config = tmp_path / "ppo.py"
    config.write_text(
        "from configs import base\n"
        "from tests.integration import tiny\n"
        "def get_config():\n"
        "    config = tiny.get_config()\n"
        "    config.recipe, config.algorithm = 'ppo', base.get_config().algorithm\n"
        "    config.algorithm.micro_batch_completions = 8\n"
        "    config.curriculum.enabled = True\n"
        "    config.verifier.rewards, config.verifier.weights = ('function',), (1.0,)\n"
        f"    config.verifier.function = '{tmp_path / 'reward.py'}:digits'\n"
        "    return config\n"
    )
    runs = [finish(tmp_path / str(count), *MESH, processes=count, config=str(config)) for count in (1, 2)]
    assert_same_rows(*runs, 1e-5)


@pytest.mark.slow
def test_one_of_two_killed_in_every_phase_ends_like_undisturbed(two_processes: Path, tmp_path: Path) -> None:
    for fault in ("cold_start:3:kill:1", "rollout:2:kill:0", "evaluation:3:kill:1", "update:4:kill:1", "save:6:kill:1"):
        killed = run(command(tmp_path, *MESH, processes=2), fault=fault)
        assert killed.returncode in (75, 134, 137), f"{fault}: {killed.stderr}"
    finish(tmp_path, *MESH, processes=2)
    assert rows(tmp_path) == rows(two_processes)
    assert rows(tmp_path, "samples.jsonl") == rows(two_processes, "samples.jsonl")
    assert final_record(tmp_path) == final_record(two_processes)


@pytest.mark.slow
def test_a_supervisor_starts_all_again_when_one_is_killed(two_processes: Path, tmp_path: Path) -> None:
    supervised = [sys.executable, "launch/supervisor.py", "--", *command(tmp_path, *MESH, processes=2)]
    with started(supervised, tmp_path / "log") as supervisor:
        wait_for_step(3, tmp_path, supervisor)
        kill(tmp_path, process=1)
        assert supervisor.wait(timeout=600) == 0, (tmp_path / "log").read_text()
    assert (tmp_path / "log").read_text().count("restart 1 of") == 1
    assert len(json.loads((tmp_path / "run.json").read_text())["starts"]) == 2
    assert rows(tmp_path) == rows(two_processes)
    assert final_record(tmp_path) == final_record(two_processes)


@contextlib.contextmanager
def started(command: list[str], log: Path, fault: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A launcher at work, which is asked to end its processes when the test leaves it."""
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environment(fault), stdout=file, stderr=file)
    try:
        yield process
    finally:
        # The second signal ends at once whatever does not come to the end of a step.
        for _ in range(2):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=30)


def wait_for_step(step: int, workdir: Path, launcher: subprocess.Popen[bytes]) -> None:
    expires = time.monotonic() + 400
    metrics = workdir / "metrics.jsonl"
    while not metrics.exists() or f'"step": {step}, "kind": "train"' not in metrics.read_text():
        assert launcher.poll() is None, (workdir / "log").read_text()
        assert time.monotonic() < expires, "the step was never reached"
        time.sleep(0.05)


def kill(workdir: Path, process: int) -> None:
    """Ends one process of a run as kill -9 does."""
    for entry in Path("/proc").glob("[0-9]*"):
        words = arguments_of(entry)
        if f"--process_id={process}" in words and f"--workdir={workdir}" in words:
            os.kill(int(entry.name), signal.SIGKILL)
            return
    raise AssertionError("the process ended by itself")


def arguments_of(entry: Path) -> list[str]:
    try:
        return (entry / "cmdline").read_text().split("\0")
    except OSError:
        return []  # It has ended meanwhile.


@pytest.mark.slow
def test_a_stuck_process_ends_the_group_with_its_tracebacks(tmp_path: Path) -> None:
    # Whatever compiles in the second step's rollout has compiled in the first.
    limit = "--config.watchdog.rollout_seconds=90"
    stuck = run(command(tmp_path, *SHORT, limit, processes=2), fault="rollout:2:hang:0")
    assert stuck.returncode == 74, stuck.stderr
    assert "nothing happened for 90 seconds (config.watchdog.rollout_seconds) in process 0" in stuck.stderr
    assert "faults.py" in stuck.stderr.partition("in process 0")[2]


@pytest.mark.slow
@pytest.mark.parametrize("process", [0, 1])
def test_a_fault_of_ours_in_one_process_leaves_a_report(process: int, tmp_path: Path) -> None:
    failed = run(command(tmp_path, *SHORT, processes=2), fault=f"rollout:2:raise:{process}")
    assert failed.returncode == 1, failed.stderr
    assert f"RuntimeError: GRPO_JAX_FAULT=rollout:2:raise:{process}" in failed.stderr
    assert "1 of 2 steps" in re.sub("<[^>]*>", "", (tmp_path / "report.html").read_text())


@pytest.mark.slow
def test_a_full_disk_of_one_process_is_one_line_and_ends_all(tmp_path: Path) -> None:
    full = run(command(tmp_path, *SHORT, processes=2), fault="rollout:2:full:0")
    assert full.returncode == 7, full.stderr
    assert re.search(r"error: process 0: .*metrics\.jsonl cannot be written: File too large", full.stderr)
    assert "StorageFailed" not in full.stderr, "no traceback of it"


@pytest.mark.slow
def test_processes_started_differently_are_refused(tmp_path: Path) -> None:
    starter = tmp_path / "starter.sh"
    starter.write_text('seed=0; [[ "$*" == *--process_id=1* ]] && seed=7; exec "$@" --config.seed=$seed\n')
    plain = command(tmp_path / "run", *SHORT, processes=2)
    place = plain.index("--") + 1
    refused = run([*plain[:place], "bash", str(starter), *plain[place:]])
    assert refused.returncode == 2, refused.stderr
    assert refused.stderr.count("config.seed: 0 on process 0, 7 on process 1") == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_second_signal_ends_all_at_once(tmp_path: Path) -> None:
    with started(command(tmp_path, *MESH, processes=2), tmp_path / "log", "rollout:3:hang:0") as group:
        wait_for_step(2, tmp_path, group)
        group.send_signal(signal.SIGTERM)
        time.sleep(3)
        assert group.poll() is None
        group.send_signal(signal.SIGTERM)
        assert group.wait(timeout=20) == 143, (tmp_path / "log").read_text()


@pytest.mark.slow
def test_a_finished_run_is_finished_for_every_process(two_processes: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(two_processes, tmp_path / "copy")
    again = run(command(copy, *MESH, processes=2))
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("is finished") == 1


def test_half_an_address_is_refused(tmp_path: Path) -> None:
    refused = run(command(tmp_path / "run", "--process_id=1"))
    assert refused.returncode == 2
    assert "--num_processes, --process_id: got (None, None, 1), wanted all three" in refused.stderr
    assert not (tmp_path / "run").exists()


def test_a_dry_run_of_two_processes_says_once_what_all_of_them_need(tmp_path: Path) -> None:
    planned = run(command(tmp_path / "run", *SHORT, "--dry_run", processes=2))
    assert planned.returncode == 0, planned.stderr
    [memory] = [line for line in planned.stdout.splitlines() if line.startswith("memory ")]
    assert "as compiled" in memory
    assert "2 processes" in planned.stdout
    assert not (tmp_path / "run").exists()


def test_detection_where_there_is_nothing_to_detect_is_refused(tmp_path: Path) -> None:
    refused = run(command(tmp_path / "run", "--distributed"))
    assert refused.returncode == 2
    [line] = refused.stderr.splitlines()
    assert line.startswith("error: --distributed: ")
    assert "No Slurm, Open MPI, TPU pod or Kubernetes job was found around this process" in line
    assert "Give --coordinator_address, --num_processes and --process_id." in line
    assert not (tmp_path / "run").exists()
