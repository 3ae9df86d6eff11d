"""launch/ray_job.py on a local Ray of two nodes; left out where Ray is not installed (pip install "grpo-jax[ray]")."""

import json
import pathlib
import subprocess
import sys

import pytest

from launch.local_multiprocess import free_port
from tests.integration.test_integration_resume import rows
from tests.multiprocess.test_multiprocess_train import REPOSITORY, started, wait_for_step

LIMIT_SECONDS = 400

ray = pytest.importorskip("ray", reason="needs the extra 'ray'")
pytest.importorskip("aiohttp", reason="needs Ray's own extra 'default', as `ray job submit` does")
cluster_utils = pytest.importorskip("ray.cluster_utils")


MEMORY = {"object_store_memory": 2**28}


@pytest.fixture
def cluster():
    head = {"num_cpus": 1, "include_dashboard": True, "dashboard_port": free_port()}
    cluster = cluster_utils.Cluster(True, head_node_args=head | MEMORY)
    cluster.add_node(num_cpus=1, **MEMORY)
    yield cluster
    cluster.shutdown()


def job(cluster, *command: str) -> list[str]:
    """Trains in one process on each node."""
    given = [f"RAY_ADDRESS={cluster.address}", f"PYTHONPATH={REPOSITORY}", "JAX_DISABLE_MOST_OPTIMIZATIONS=true"]
    return ["env", *given, sys.executable, "launch/ray_job.py", "--nodes=2", "--cpus=1", "--", *command]


def trained(workdir: pathlib.Path, *arguments: str) -> list[str]:
    config = "tests/integration/tiny.py"
    return [sys.executable, "-m", "grpo_jax.train", "--config", config, f"--workdir={workdir}", *arguments]


def starts(workdir: pathlib.Path) -> list[int]:
    """Processes of each start."""
    return [start["processes"] for start in json.loads((workdir / "run.json").read_text())["starts"]]


KILLED_ONCE = """
case "$*" in *--process_id=1*) mkdir "$0" 2>/dev/null && export GRPO_JAX_FAULT=update:4:kill ;; esac
exec "$@"
"""
"""Runs its arguments; the second process of the run is killed the first time, in the update of the fourth step."""


@pytest.mark.slow
def test_a_killed_process_of_two_nodes_goes_on_from_the_newest_checkpoint(cluster, tmp_path: pathlib.Path) -> None:
    run = tmp_path / "run"
    killed = ["bash", "-c", KILLED_ONCE, str(tmp_path / "killed"), *trained(run)]
    ended = subprocess.run(
        job(cluster, *killed), cwd=REPOSITORY, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "going on from step 2 of grpo" in ended.stderr + ended.stdout
    assert starts(run) == [2, 2]
    assert (run / "summary.json").exists()


@pytest.mark.slow
def test_a_lost_node_is_waited_for(cluster, tmp_path: pathlib.Path) -> None:
    longer = trained(tmp_path, "--config.steps=60", "--config.evaluation.every_steps=30")
    with started(job(cluster, *longer), tmp_path / "log") as launcher:
        wait_for_step(3, tmp_path, launcher)
        [node] = cluster.worker_nodes
        cluster.remove_node(node, allow_graceful=False)
        assert launcher.poll() is None
        cluster.add_node(num_cpus=1, **MEMORY)
        assert launcher.wait(LIMIT_SECONDS) == 0, (tmp_path / "log").read_text()
    assert "restart 1" in (tmp_path / "log").read_text()
    assert starts(tmp_path) == [2, 2]
    assert [row["step"] for row in rows(tmp_path) if row["kind"] == "train"] == list(range(1, 61))


@pytest.mark.slow
def test_a_submitted_job_trains_to_its_end(cluster, tmp_path: pathlib.Path) -> None:
    launched = job(cluster, *trained(tmp_path / "run", "--config.steps=2"))
    client = [sys.executable, "-m", "ray.scripts.scripts", "job", "submit", f"--address=http://{cluster.webui_url}"]
    working = ["--working-dir=.", '--runtime-env-json={"excludes": [".git", "runs"]}', "--"]
    ended = subprocess.run(
        [*client, *working, *launched],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert "succeeded" in ended.stdout + ended.stderr
    assert (tmp_path / "run" / "summary.json").exists()
    assert starts(tmp_path / "run") == [2]


ENDS = 'case "$*" in *--process_id=1*) exit 6 ;; *) sleep 1; exit 75 ;; esac'
"""The second process cannot go on, the first loses it."""


def test_what_would_fail_again_is_not_started_again(cluster) -> None:
    ended = subprocess.run(
        job(cluster, "bash", "-c", ENDS, "bash"), cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 6, ended.stderr
    assert "restart" not in ended.stderr
