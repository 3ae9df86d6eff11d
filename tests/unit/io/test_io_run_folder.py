import json
import os
import re
import signal
import subprocess
import sys

import jax
import pytest

import grpo_jax
from grpo_jax.config import RunConfig, to_nested
from grpo_jax.io.run_folder import ConfigChanged, RunFolder, RunFolderInUse, write_json

CONFIG = {
    "seed": 0,
    "steps": 200,
    "optimizer": {"learning_rate": 0.1, "b1": 0.9},
    "names": ("a", "b"),
    "mesh": {"data": 1},
}
HOLD = """
import sys
from grpo_jax.io.run_folder import RunFolder
folder = RunFolder.open(sys.argv[1], {"seed": 0}, overrides={})
print("held", flush=True)
sys.stdin.read()
"""


def _open(path, config=None, **arguments):
    return RunFolder.open(path, CONFIG if config is None else config, overrides={}, **arguments)


def _changed(**values):
    return {**CONFIG, **values}


def test_new_folder_keeps_config_and_start(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train", "--config", "base.py"])
    config = to_nested(RunConfig())
    with RunFolder.open(tmp_path / "a" / "b", config, overrides={"optimizer.learning_rate": 0.1}) as folder:
        assert not folder.resumed
        assert folder.metrics == tmp_path / "a" / "b" / "metrics.jsonl"
    assert json.loads((folder.path / "config.json").read_text()) == json.loads(json.dumps(config))
    (start,) = json.loads((folder.path / "run.json").read_text())["starts"]
    assert start["argv"] == ["train", "--config", "base.py"]
    assert start["overrides"] == {"optimizer.learning_rate": 0.1}
    assert start["versions"]["grpo-jax"] == grpo_jax.__version__
    assert start["versions"]["jax"] == jax.__version__
    assert start["device"] == {"platform": "cpu", "kind": "cpu", "count": jax.device_count()}
    assert sorted(start["versions"]) == sorted(
        ["python", "grpo-jax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy"]
    )


def test_second_process_is_refused_and_told_who_holds_the_folder(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        message = rf"{re.escape(str(tmp_path))} is in use by process {holder.pid} on host \S+\. Wait for it"
        with pytest.raises(RunFolderInUse, match=message):
            _open(tmp_path, {"seed": 0})
        os.kill(holder.pid, signal.SIGKILL)
    _open(tmp_path, {"seed": 0}).close()


def test_lock_is_given_back_when_opening_fails(tmp_path):
    _open(tmp_path).close()
    with pytest.raises(ConfigChanged) as caught:
        _open(tmp_path, _changed(seed=1))
    assert caught.tb is not None, "the failed call's frame is alive, so the lock is not freed by chance"
    with _open(tmp_path) as folder, pytest.raises(RunFolderInUse, match=f"process {os.getpid()}"):
        _open(folder.path)


def test_resume_with_the_same_config(tmp_path):
    _open(tmp_path).close()
    with _open(tmp_path) as folder:
        assert folder.resumed
        assert folder.changes == {}
    assert len(json.loads((tmp_path / "run.json").read_text())["starts"]) == 2


def test_resume_can_be_refused(tmp_path):
    _open(tmp_path, resume_allowed=False).close()
    with pytest.raises(FileExistsError, match="holds a run already"):
        _open(tmp_path, resume_allowed=False)


def test_changed_config_is_refused_with_keys_and_values(tmp_path):
    _open(tmp_path).close()
    config = _changed(optimizer={"learning_rate": 0.2, "b3": 1.0}, names=("a",))
    with pytest.raises(ConfigChanged) as caught:
        _open(tmp_path, config, may_change=["steps"])
    assert str(caught.value).splitlines()[1:] == [
        "  config.optimizer.learning_rate: 0.1 in the folder, 0.2 now",
        "  config.optimizer.b3: '(absent)' in the folder, 1.0 now",
        "  config.names: ['a', 'b'] in the folder, ['a'] now",
        "  config.optimizer.b1: 0.9 in the folder, '(absent)' now",
        "Put the old values back to go on, or choose another folder to start a new run.",
    ]
    assert json.loads((tmp_path / "config.json").read_text())["optimizer"]["learning_rate"] == 0.1


def test_keys_on_the_list_may_change(tmp_path):
    _open(tmp_path).close()
    config = _changed(steps=300, optimizer={"learning_rate": 0.1, "b1": 0.8})
    with _open(tmp_path, config, may_change=["steps", "optimizer.*"]) as folder:
        assert folder.changes == {"steps": (200, 300), "optimizer.b1": (0.9, 0.8)}
    assert json.loads((tmp_path / "config.json").read_text())["steps"] == 300
    starts = json.loads((tmp_path / "run.json").read_text())["starts"]
    assert starts[1]["changes"]["steps"] == {"before": 200, "now": 300}
    with pytest.raises(ConfigChanged, match=r"config\.seed: 0 in the folder, 5 now"):
        _open(tmp_path, {**config, "seed": 5}, may_change=["steps", "optimizer.*"])


def test_write_json_is_atomic(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["a.json"]


def test_interrupted_write_json_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["a.json"]


def test_other_processes_see_the_folder_of_the_first(tmp_path):
    with RunFolder.open(tmp_path / "run", {"seed": 1}, overrides={}) as first:
        with RunFolder.of_first_process(tmp_path / "run") as other:
            assert other.metrics == first.metrics
        # Only the first holds the lock, and gives it back.
        with pytest.raises(RunFolderInUse):
            RunFolder.open(tmp_path / "run", {"seed": 1}, overrides={})


def test_a_folder_that_is_not_shared_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no run\.json on host .* choose a file system that they share"):
        RunFolder.of_first_process(tmp_path / "elsewhere")
