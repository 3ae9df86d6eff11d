"""The ways to start several processes: short, with their one command in the head, and restarting only what helps."""

import json
import pathlib
import subprocess
import sys

import pytest

LAUNCH = pathlib.Path(__file__).resolve().parents[2] / "launch"
FILES = sorted(path for path in LAUNCH.iterdir() if path.is_file())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_is_short_and_says_how_it_is_used(path: pathlib.Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= 80
    assert any(path.name in line for line in lines[:8])
    if path.suffix in (".sh", ".sbatch"):
        assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0


def supervise(folder: pathlib.Path, program: str, *options: str) -> tuple[int, int]:
    """The status of the supervision and the number of starts of a program that sees how often it was started."""
    script = folder / "program.py"
    script.write_text(
        "import json, pathlib, sys\n"
        "workdir = pathlib.Path(sys.argv[2])\n"
        "counter = workdir / 'starts'\n"
        "start = int(counter.read_text()) + 1 if counter.exists() else 1\n"
        "counter.write_text(str(start))\n" + program
    )
    command = [sys.executable, str(LAUNCH / "supervisor.py"), "--pause_seconds=0", *options, "--"]
    launched = ["env", "--", sys.executable, str(script), "--workdir", str(folder)]
    ended = subprocess.run([*command, *launched], check=False)
    return ended.returncode, json.loads((folder / "starts").read_text())


@pytest.mark.parametrize("status", [74, 75, 134, 137])
def test_what_can_be_mended_is_started_again(tmp_path: pathlib.Path, status: int) -> None:
    assert supervise(tmp_path, f"sys.exit({status} if start < 3 else 0)") == (0, 3)


def test_a_killed_command_is_started_again(tmp_path: pathlib.Path) -> None:
    assert supervise(tmp_path, "import os; os.kill(os.getpid(), 9) if start < 2 else None") == (0, 2)


@pytest.mark.parametrize("status", [0, 1, 2, 3, 4, 5, 6, 143])
def test_what_would_fail_again_is_not(tmp_path: pathlib.Path, status: int) -> None:
    assert supervise(tmp_path, f"sys.exit({status})") == (status, 1)


def test_restarts_end_where_nothing_is_saved_in_between(tmp_path: pathlib.Path) -> None:
    assert supervise(tmp_path, "sys.exit(75)", "--restarts=2") == (75, 3)


def test_every_new_checkpoint_earns_further_restarts(tmp_path: pathlib.Path) -> None:
    save = "(workdir / 'checkpoints' / 'grpo' / str(start)).mkdir(parents=True)\n"
    assert supervise(tmp_path, f"{save}sys.exit(75 if start < 6 else 0)", "--restarts=1") == (0, 6)


def test_a_command_without_a_folder_is_refused(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, str(LAUNCH / "supervisor.py"), "--", "true"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "names no --workdir" in ended.stderr


GCLOUD = """#!{python}
# Does what gcloud does: the command on every host at once, the status of the first one in order that failed.
import json, pathlib, subprocess, sys
here = pathlib.Path(__file__).parent
flags = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv[6:])
assert sys.argv[1:6] == ["compute", "tpus", "tpu-vm", "ssh", "slice"], sys.argv
assert (flags["zone"], flags["worker"]) == ("here", "all"), flags
starts = len(list(here.glob("start*")))
(here / f"start{{starts}}").write_text(flags["command"])
command = " ".join(flags["command"].split(" ")).replace("~/grpo_jax", str(here))
hosts = [
    subprocess.Popen(["/bin/bash", "-c", command], env={{"PATH": str(here), "HOST": str(host), "START": str(starts)}})
    for host in range(3)
]
statuses = [host.wait() for host in hosts]
for host, status in enumerate(statuses):
    if status:
        said = f"##### Command execution on worker {{host}} failed with exit status {{status}}. Continuing."
        print(said, file=sys.stderr)
sys.exit(next((status for status in statuses if status), 0))
"""

TRAIN = """#!{python}
# Stands for the training process: says what it was given, and ends as the test wants.
import json, os, pathlib, sys
host, start = int(os.environ["HOST"]), int(os.environ["START"])
(pathlib.Path(__file__).parent / f"given{{start}}.{{host}}").write_text(json.dumps(sys.argv[1:]))
endings = {endings}
sys.exit(endings[start][host] if start < len(endings) else 0)
"""


def on_tpu(folder: pathlib.Path, endings: list[list[int]], *arguments: str, restarts: int = 20) -> tuple[int, list]:
    """The status of launch/tpu_pod.sh on three imitated hosts, and what their processes were given in each start.

    Args:
        folder: Holds the programs that imitate.
        endings: Statuses of the hosts' processes, start by start; 0 from then on.
        *arguments: Of the script.
        restarts: See there.
    """
    for name, text in (("gcloud", GCLOUD), ("python", TRAIN)):
        (folder / name).write_text(text.format(python=sys.executable, endings=endings))
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "TPU": "slice", "ZONE": "here", "PAUSE_SECONDS": "0"}
    environment["RESTARTS"] = str(restarts)
    script = ["bash", str(LAUNCH / "tpu_pod.sh"), *arguments]
    ended = subprocess.run(script, env=environment, capture_output=True, check=False)
    starts = len(list(folder.glob("start*")))
    given = [
        [json.loads((folder / f"given{start}.{host}").read_text()) for host in range(3)] for start in range(starts)
    ]
    return ended.returncode, given


def test_every_host_of_a_tpu_gets_the_arguments_as_they_were_given(tmp_path: pathlib.Path) -> None:
    arguments = ["--config", "a b.py:x", "--config.verifier.rewards=('numeric', \"format\")", "--workdir=$HOME/*", ""]
    status, [given] = on_tpu(tmp_path, [], *arguments)
    assert status == 0
    assert given == [["-m", "grpo_jax.train", "--distributed", *arguments]] * 3


@pytest.mark.parametrize("status", [74, 75, 134, 137])
def test_all_hosts_of_a_tpu_start_again_after_a_loss(status: int, tmp_path: pathlib.Path) -> None:
    ended, given = on_tpu(tmp_path, [[0, status, 75], [75, 75, status]])
    assert (ended, len(given)) == (0, 3)


@pytest.mark.parametrize("status", [1, 2, 3, 4, 5, 6, 255])
def test_what_fails_on_one_host_of_a_tpu_would_fail_again(status: int, tmp_path: pathlib.Path) -> None:
    ended, given = on_tpu(tmp_path, [[75, 75, status]])
    assert (ended, len(given)) == (status, 1)


def test_restarts_on_a_tpu_are_counted(tmp_path: pathlib.Path) -> None:
    ended, given = on_tpu(tmp_path, [[75, 75, 75]] * 9, restarts=2)
    assert (ended, len(given)) == (75, 3)


SRUN = """#!{python}
# Does what srun does: the command in one task of each of two nodes, the highest status of them.
import os, pathlib, subprocess, sys
assert sys.argv[1:3] == ["--kill-on-bad-exit=1", "--wait=30"], sys.argv
assert os.environ["JAX_LOCAL_DEVICE_IDS"] == "0,1,2,3"
here = pathlib.Path(__file__).parent
starts = len(list(here.glob("start*")))
(here / f"start{{starts}}").touch()
tasks = [
    subprocess.Popen(sys.argv[3:], env=os.environ | {{"HOST": str(host), "START": str(starts)}}) for host in range(2)
]
sys.exit(max(task.wait() for task in tasks))
"""

PYTHON = """#!/bin/bash
# The supervisor runs as it is, the training process is imitated.
[[ "$1" == -m ]] && exec "${{0%/*}}/train" "$@"
exec {python} "$@"
"""


@pytest.mark.parametrize(("endings", "status", "starts"), [([[0, 75]], 0, 2), ([[4, 4]], 4, 1)])
def test_a_slurm_job_starts_its_steps_again(
    endings: list[list[int]], status: int, starts: int, tmp_path: pathlib.Path
) -> None:
    for name, text in (("srun", SRUN), ("python", PYTHON), ("train", TRAIN)):
        (tmp_path / name).write_text(text.format(python=sys.executable, endings=endings))
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_SUBMIT_DIR": str(LAUNCH.parent)}
    arguments = ["--config", "a b.py:x", f"--workdir={tmp_path}"]
    script = ["bash", str(LAUNCH / "slurm.sbatch"), *arguments]
    ended = subprocess.run(script, env=environment | {"SLURM_GPUS_ON_NODE": "4"}, check=False)
    assert ended.returncode == status
    assert len(list(tmp_path.glob("start*"))) == starts
    for start in range(starts):
        given = [json.loads((tmp_path / f"given{start}.{host}").read_text()) for host in range(2)]
        assert given == [["-m", "grpo_jax.train", "--distributed", *arguments]] * 2


def test_no_processes_are_refused() -> None:
    command = [sys.executable, str(LAUNCH / "local_multiprocess.py"), "--processes=0", "--", "true"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, "--processes: wanted 1 or more" in done.stderr) == (2, True)
