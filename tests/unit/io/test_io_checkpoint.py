import logging
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding

from grpo_jax.io.checkpoint import CheckpointMismatch, Checkpoints, NoUsableCheckpoint
from grpo_jax.io.storage import StorageFailed

# Tensorstore reports to an event loop that Orbax has closed after a failed read.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def _mesh(data=4, fsdp=2):
    return jax.make_mesh((data, fsdp), ("data", "fsdp"))


def _state(mesh, seed=0):
    rng = np.random.default_rng(seed)

    def put(x, *spec):
        return jax.device_put(x, NamedSharding(mesh, jax.P(*spec)))

    params = {
        "w": put(rng.normal(size=(8, 16)).astype(np.float32), "data", "fsdp"),
        "blocks": [put(jnp.asarray(rng.normal(size=16), jnp.bfloat16), "fsdp")],
    }
    with jax.set_mesh(mesh):
        optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)).init(params)
    return {
        "params": params,
        "optimizer": jax.tree.map(lambda x: x if len(x.sharding.device_set) == mesh.size else put(x), optimizer),
        "rng": put(jax.random.key_data(jax.random.key(seed))),
        "flag": put(np.array(True)),
        "nothing": None,
    }


def _abstract(state):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state)


def _assert_bit_equal(got, wanted):
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == b.dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with steps 1 and 2, and their states; tests work on a copy."""
    folder = tmp_path_factory.mktemp("saved")
    mesh = _mesh()
    states = {step: _state(mesh, seed=step) for step in (1, 2)}
    checkpoints = Checkpoints(folder, keep=2)
    for step, state in states.items():
        assert checkpoints.save(step, state, {"position": step})
    checkpoints.close()
    return folder, states


@pytest.fixture
def copy(saved, tmp_path):
    return shutil.copytree(saved[0], tmp_path / "copy")


def _restore(folder, state):
    checkpoints = Checkpoints(folder, keep=2)
    try:
        return checkpoints.restore(_abstract(state))
    finally:
        checkpoints.close()


def _largest_file(folder):
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def _truncate(step):
    for path in (step / "state" / "d").iterdir():
        os.truncate(path, path.stat().st_size // 2)


def _delete_metadata(step):
    (step / "_CHECKPOINT_METADATA").unlink()


def _cut_metadata(step):
    os.truncate(step / "_CHECKPOINT_METADATA", 200)


def _edit_host_state(step):
    path = step / "_CHECKPOINT_METADATA"
    path.write_text(path.read_text().replace(r"\"position\": 2", r"\"position\": 3"))


def _delete_arrays(step):
    shutil.rmtree(step / "state")


def _empty(step):
    shutil.rmtree(step)
    step.mkdir()


DAMAGES = {
    _truncate: "cannot be read: .*state",
    _delete_arrays: "cannot be read: KeyError",
    _delete_metadata: "record of digests is missing",
    _cut_metadata: "record of digests is missing",
    _edit_host_state: "record of digests was changed",
    _empty: "record of digests is missing",
}


def test_nothing_saved_is_none(tmp_path):
    assert _restore(tmp_path / "new", _state(_mesh())) is None


def test_restored_state_is_bit_equal(tmp_path):
    state = _state(_mesh())
    host_state = {"random": [random.Random(0).getrandbits(128), 0.1 + 0.2, "é", None, True], "nested": {"rows": 7}}
    checkpoints = Checkpoints(tmp_path, keep=1)
    assert checkpoints.save(5, state, host_state)
    checkpoints.close()
    restored = _restore(tmp_path, state)
    assert restored is not None
    assert (restored.step, restored.host_state) == (5, host_state)
    _assert_bit_equal(restored.state, state)


def test_newest_of_several_and_only_keep_stay(tmp_path):
    state = _state(_mesh())
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1, 2, 10):
        checkpoints.save(step, state, {"step": step})
    assert not checkpoints.save(10, state, {})
    checkpoints.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10", "2"]
    restored = _restore(tmp_path, state)
    assert restored is not None
    assert restored.host_state == {"step": 10}


@pytest.mark.parametrize("shape", [(2, 4), (1, 1)])
def test_restore_onto_another_mesh(copy, saved, shape):
    mesh = jax.make_mesh(shape, ("data", "fsdp"), devices=jax.devices()[: shape[0] * shape[1]])
    target = _state(mesh)
    with jax.set_mesh(mesh):
        restored = _restore(copy, target)
    assert restored is not None
    _assert_bit_equal(restored.state, saved[1][2])
    assert [x.sharding for x in jax.tree.leaves(restored.state)] == [x.sharding for x in jax.tree.leaves(target)]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__.strip("_"))
def test_damaged_newest_falls_back_to_the_older(copy, saved, damage, caplog):
    damage(copy / "2")
    with caplog.at_level(logging.WARNING, "grpo_jax"):
        restored = _restore(copy, saved[1][1])
    assert restored is not None
    assert (restored.step, restored.host_state) == (1, {"position": 1})
    _assert_bit_equal(restored.state, saved[1][1])
    messages = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("grpo_jax"))
    assert re.search(f"checkpoint 2 in .* cannot be used: .*{DAMAGES[damage]}", messages)
    assert "renamed checkpoint 2 to 2.corrupt" in messages
    assert "going on from the older checkpoint 1" in messages
    assert sorted(path.name for path in copy.iterdir()) == ["1", "2.corrupt"]


def test_training_goes_on_after_a_fall_back(copy, saved):
    _delete_metadata(copy / "2")
    checkpoints = Checkpoints(copy, keep=2)
    restored = checkpoints.restore(_abstract(saved[1][1]))
    assert restored is not None
    assert checkpoints.save(2, saved[1][2], {"position": 22})
    checkpoints.close()
    again = _restore(copy, saved[1][1])
    assert again is not None
    assert again.host_state == {"position": 22}


def test_silent_bit_flip_is_detected(tmp_path, caplog):
    # Noise does not compress, so most bytes of the file are array bytes without a checksum around them.
    mesh = _mesh()
    noise = np.random.default_rng(3).integers(2**32, size=(64, 64), dtype=np.uint32)
    states = {
        step: {"w": jax.device_put(noise + np.uint32(step), NamedSharding(mesh, jax.P("data")))} for step in (1, 2)
    }
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step, state in states.items():
        checkpoints.save(step, state, {})
    checkpoints.close()
    victim = _largest_file(tmp_path / "2" / "state")
    raw = bytearray(victim.read_bytes())
    raw[len(raw) // 2] ^= 16
    victim.write_bytes(raw)
    restored = _restore(tmp_path, states[1])
    assert restored is not None
    assert restored.step == 1
    assert "1 of 1 arrays differ from what was saved: w" in caplog.text


def test_all_damaged_is_an_error_and_stays_one(copy, saved):
    _truncate(copy / "1")
    _delete_metadata(copy / "2")
    for _ in range(2):
        with pytest.raises(
            NoUsableCheckpoint, match=r"step 2: its record .*; step 1: it cannot be read.* new run folder"
        ):
            _restore(copy, saved[1][1])
    assert sorted(path.name for path in copy.iterdir()) == ["1", "2"]


def test_only_quarantined_steps_are_no_fresh_start(copy, saved):
    shutil.rmtree(copy / "1")
    (copy / "2").rename(copy / "2.corrupt")
    with pytest.raises(NoUsableCheckpoint, match=r"2\.corrupt: set aside earlier"):
        _restore(copy, saved[1][1])


def test_renumbered_step_is_refused(copy, saved, caplog):
    (copy / "2").rename(copy / "7")
    restored = _restore(copy, saved[1][1])
    assert restored is not None
    assert restored.step == 1
    assert "checkpoint 7 in" in caplog.text
    assert "it was saved as step 2" in caplog.text


def test_other_leaves_are_the_callers_fault(copy, saved):
    state = saved[1][2]
    w = state["params"]["w"]
    cases = {
        r"params/w is float32\[8, 16\] in the checkpoint, the run wants bfloat16\[8, 16\]": w.astype(jnp.bfloat16),
        r"params/w is float32\[8, 16\] in the checkpoint, the run wants float32\[16, 16\]": jnp.concatenate([w, w]),
        r"params/w is only in the checkpoint": None,
        r"params/w/new is not in the checkpoint": {"new": w},
    }
    for message, leaf in cases.items():
        with pytest.raises(CheckpointMismatch, match=message):
            _restore(copy, {**state, "params": {**state["params"], "w": leaf}})
    assert sorted(path.name for path in copy.iterdir()) == ["1", "2"]


def test_host_state_that_json_changes_is_refused(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    with pytest.raises(ValueError, match="use lists for tuples"):
        checkpoints.save(1, _state(_mesh()), {"pair": (1, 2)})
    checkpoints.close()


def test_state_may_be_donated_right_after_save(tmp_path):
    mesh = _mesh()
    x = jax.device_put(np.arange(2**16, dtype=np.float32), NamedSharding(mesh, jax.P("data")))
    wanted = np.asarray(x).copy()
    step = jax.jit(lambda x: x * 2 + 1, donate_argnums=0)
    checkpoints = Checkpoints(tmp_path, keep=1)
    x = step(x)
    wanted = np.asarray(x).copy()
    checkpoints.save(1, {"x": x}, {})
    for _ in range(20):
        x = step(x)
    checkpoints.close()
    restored = _restore(tmp_path, {"x": x})
    assert restored is not None
    np.testing.assert_array_equal(restored.state["x"], wanted)


@pytest.mark.parametrize("reporter", ["wait", "save"])
def test_full_disk_raises_and_loses_nothing(tmp_path, reporter, caplog):
    mesh = _mesh()
    noise = np.random.default_rng(0).normal(size=2**19).astype(np.float32)
    state = {"w": jax.device_put(noise, NamedSharding(mesh, jax.P("data")))}
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(1, state, {})
    checkpoints.wait()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, limits[1]))
    try:
        checkpoints.save(2, state, {})
        with pytest.raises(StorageFailed, match=r"/2 cannot be written: File too large\. .*ulimit"):
            checkpoints.wait() if reporter == "wait" else checkpoints.save(3, state, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not [record for record in caplog.records if record.exc_info], "Orbax's threads show what wait() raises"
    restored = checkpoints.restore(_abstract(state))
    assert restored is not None
    assert restored.step == 1
    assert checkpoints.save(2, state, {}), "the step is written when there is room again"
    checkpoints.close()
    assert [path.name for path in tmp_path.iterdir()] == ["2"]


def test_kill_during_a_save_leaves_the_older_step(tmp_path):
    program = """
        import os, signal, sys
        import jax, numpy as np
        from grpo_jax.io.checkpoint import Checkpoints
        checkpoints = Checkpoints(sys.argv[1], keep=1)
        state = {"w": jax.numpy.asarray(np.random.default_rng(0).normal(size=2**24), jax.numpy.float32)}
        checkpoints.save(1, state, {"step": 1})
        checkpoints.wait()
        checkpoints.save(2, state, {"step": 2})
        while os.listdir(sys.argv[1]) == ["1"]:
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program), str(tmp_path)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    names = {path.name for path in tmp_path.iterdir()}
    assert "1" in names
    assert len(names) == 2, "the kill came too late or too early to interrupt the save"
    assert "2" not in names
    w = jnp.asarray(np.random.default_rng(0).normal(size=2**24), jnp.float32)
    restored = _restore(tmp_path, {"w": w})
    assert restored is not None
    assert restored.host_state == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
