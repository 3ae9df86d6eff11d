"""The pods of launch/gke_jobset.yaml, whose commands are run on this machine, form one run and survive what is said."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from launch.local_multiprocess import free_port
from tests.multiprocess.test_multiprocess_train import REPOSITORY, SHORT, environment

MANIFEST = REPOSITORY / "launch" / "gke_jobset.yaml"
RESTARTABLE = [74, 75, 134, 137]
PODS = 2


@pytest.fixture(scope="module")
def jobset() -> dict[str, Any]:
    return yaml.safe_load(MANIFEST.read_text())


def test_the_first_pod_is_where_the_others_look_for_it(jobset: dict[str, Any]) -> None:
    [replicated] = jobset["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    [text] = job["template"]["spec"]["containers"][0]["args"]
    name = jobset["metadata"]["name"]
    # <jobset>-<replicated job>-<index of the job>-<index of the pod>.<subdomain>, which is the jobset's name.
    assert f"--coordinator_address={name}-{replicated['name']}-0-0.{name}:8476 " in text
    assert f"--num_processes={job['completions']} " in text
    assert job["completions"] == job["parallelism"]
    assert job["completionMode"] == "Indexed", "only then there is JOB_COMPLETION_INDEX"
    # JobSet's defaults: names in the DNS, also of pods that are not ready.
    assert "network" not in jobset["spec"]


def test_its_folder_is_one_for_all_pods(jobset: dict[str, Any]) -> None:
    [replicated] = jobset["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert {volume["name"] for volume in pod["volumes"]} == mounted.keys()
    assert f"--workdir {mounted['runs']}/" in container["args"][0]
    assert [volume["name"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume] == ["runs"]


def test_what_is_lost_is_started_again_and_nothing_else(jobset: dict[str, Any]) -> None:
    [replicated] = jobset["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    taken_away, failed = job["podFailurePolicy"]["rules"]
    assert taken_away == {"action": "Count", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert failed["onExitCodes"] == {"containerName": "train", "operator": "NotIn", "values": RESTARTABLE}
    assert failed["action"] == "FailJob"
    assert job["backoffLimit"] == 0, "one lost pod fails the job, so that all of them are started again"
    [rule] = jobset["spec"]["failurePolicy"]["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy"])
    # What JobSet and Kubernetes refuse otherwise.
    assert re.fullmatch("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", rule["name"])
    assert failed["onExitCodes"]["values"] == sorted(set(failed["onExitCodes"]["values"]))
    assert job["template"]["spec"]["restartPolicy"] == "Never"


def run_pods(jobset: dict[str, Any], workdir: Path, fault: str = "") -> list[tuple[int, str]]:
    """Status and last words of each pod's container, of as many as the machine can bear."""
    [replicated] = jobset["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    [text] = container["args"]
    here = {
        "grpo-jax-hosts-0-0.grpo-jax:8476": f"localhost:{free_port()}",
        "--num_processes=4": f"--num_processes={PODS}",
        "python": sys.executable,
        "configs/qwen_math.py": "tests/integration/tiny.py",
        "/runs/math": str(workdir),
        "--config.mesh.fsdp=8": " ".join(SHORT),
    }
    for there, local in here.items():
        assert there in text, there
        text = text.replace(there, local)
    started = [
        subprocess.Popen(
            [*container["command"], text],
            cwd=REPOSITORY,
            env=environment(fault) | {"JOB_COMPLETION_INDEX": str(index), "JAX_NUM_CPU_DEVICES": str(4 // PODS)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(PODS)
    ]
    said = [process.communicate(timeout=600)[1] for process in started]
    return [(process.returncode, words) for process, words in zip(started, said, strict=True)]


@pytest.mark.slow
def test_pods_that_are_taken_away_go_on_when_they_are_started_again(jobset: dict[str, Any], tmp_path: Path) -> None:
    # One of them gets SIGTERM.
    taken_away = run_pods(jobset, tmp_path / "run", fault="rollout:1:stop:1")
    assert [status for status, _ in taken_away] == [75, 75], taken_away
    assert "stopped after step 1 of grpo" in taken_away[0][1]
    again = run_pods(jobset, tmp_path / "run")
    assert [status for status, _ in again] == [0, 0], again
    assert (tmp_path / "run" / "summary.json").exists()
