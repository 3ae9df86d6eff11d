"""Two processes that mpirun starts and JAX finds, one of which is lost; left out where Open MPI is not installed."""

import json
import re
import shutil
from pathlib import Path

import pytest

from launch.local_multiprocess import free_port
from tests.integration.test_integration_resume import rows
from tests.multiprocess.test_multiprocess_train import SHORT, command, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs Open MPI's mpirun"),
]


@pytest.fixture(autouse=True)
def two_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may start processes, and more of them than there are cores."""
    for name in ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM", "MCA_rmaps_base_oversubscribe"):
        monkeypatch.setenv(f"OMPI_{name}", "1")


def by_mpi(workdir: Path, *arguments: str) -> list[str]:
    trained = command(workdir, *SHORT, "--config.steps=4", "--config.checkpoint.every_steps=1", *arguments)
    return ["mpirun", "-n", "2", "env", "JAX_NUM_CPU_DEVICES=2", *trained]


def test_a_lost_process_ends_the_job_and_the_same_command_goes_on(tmp_path: Path) -> None:
    lost = run(by_mpi(tmp_path, "--distributed"), fault="rollout:4:kill:1")
    assert lost.returncode in (75, 134, 137), lost.stderr
    again = run(by_mpi(tmp_path, "--distributed"))
    assert again.returncode == 0, again.stderr
    assert re.search("going on from step [123] of grpo", again.stdout)
    assert [row["step"] for row in rows(tmp_path) if row["kind"] == "train"] == [1, 2, 3, 4]
    starts = json.loads((tmp_path / "run.json").read_text())["starts"]
    assert [(start["processes"], start["device"]["count"]) for start in starts] == [(2, 4), (2, 4)]


def test_its_own_numbers_are_enough(tmp_path: Path) -> None:
    numbers = "--num_processes=$OMPI_COMM_WORLD_SIZE --process_id=$OMPI_COMM_WORLD_RANK"
    # Open MPI 5 no longer sets the variable by which JAX knows it.
    unknown = ["env", "-u", "OMPI_MCA_orte_hnp_uri"]
    launched = by_mpi(tmp_path, f"--coordinator_address=localhost:{free_port()}")
    found = run([*launched[:3], *unknown, "bash", "-c", f'exec "$@" {numbers}', "bash", *launched[3:]])
    assert found.returncode == 0, found.stderr
    [start] = json.loads((tmp_path / "run.json").read_text())["starts"]
    assert start["processes"] == 2
