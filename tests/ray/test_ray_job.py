"""launch/ray_job.py on a local Ray of two nodes; left out where Ray is not installed (pip install "grpo-jax[ray]")."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 400

ray = pytest.importorskip("ray", reason="needs the extra 'ray'")
cluster_utils = pytest.importorskip("ray.cluster_utils")


@pytest.fixture
def address():
    cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": 2**28}
    )
    cluster.add_node(num_cpus=1, object_store_memory=2**28)
    yield cluster.address
    cluster.shutdown()


KILLED_ONCE = """
case "$*" in *--process_id=1*) mkdir "$0" 2>/dev/null && export GRPO_JAX_FAULT=update:4:kill ;; esac
exec "$@"
"""
"""Runs its arguments; the second process of the run is killed the first time, in the update of the fourth step."""


@pytest.mark.slow
def test_a_killed_process_of_two_nodes_goes_on_from_the_newest_checkpoint(address: str, tmp_path: pathlib.Path) -> None:
    trained = [sys.executable, "-m", "grpo_jax.train", "--config", "tests/integration/tiny.py"]
    command = ["bash", "-c", KILLED_ONCE, str(tmp_path / "killed"), *trained, "--workdir", str(tmp_path / "run")]
    job = subprocess.run(
        [sys.executable, "launch/ray_job.py", "--nodes", "2", "--cpus", "1", "--", *command],
        cwd=REPOSITORY,
        env=os.environ
        | {"RAY_ADDRESS": address, "PYTHONPATH": str(REPOSITORY), "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert job.returncode == 0, job.stderr
    assert "going on from step 2 of grpo" in job.stderr + job.stdout
    starts = json.loads((tmp_path / "run" / "run.json").read_text())["starts"]
    assert [start["processes"] for start in starts] == [2, 2]
    assert (tmp_path / "run" / "summary.json").exists()
