"""Trackers follow the metrics file: every row once, whatever happens to the run."""

import importlib
import json
import struct
from collections import Counter

import pytest

from grpo_jax.config import ConfigError, RunConfig, from_nested, to_nested
from grpo_jax.io import trackers
from grpo_jax.io.metrics import MetricsWriter, read_metrics
from grpo_jax.io.run_folder import RunFolder
from grpo_jax.io.trackers import Follower, check_installed, follow, numbers

CONFIG = to_nested(RunConfig())


class Kept:
    """A tracker that keeps what it is given, and fails when told to."""

    def __init__(self):
        self.rows = []
        self.closed = self.broken = False

    def log(self, step, values):
        if self.broken:
            raise ConnectionError("no route to host")
        self.rows.append((step, dict(values)))

    def close(self):
        self.closed = True


def start(tmp_path, tracker, note=pytest.fail):
    """A start of a run: its writer, followed by the tracker."""
    writer = MetricsWriter(tmp_path / "metrics.jsonl")
    follower = Follower("kept", tmp_path / "tracker-kept.json", note)
    follower.start(tracker, read_metrics(tmp_path / "metrics.jsonl"))
    writer.followers.append(follower.send)
    return writer, follower


def train(writer, first, last):
    for step in range(first, last + 1):
        writer.write("train", step, {"reward": step / 4})


def steps(tracker):
    return [step for step, _ in tracker.rows]


def test_rows_done_again_after_a_resume_are_not_sent_twice(tmp_path):
    tracker = Kept()
    writer, follower = start(tmp_path, tracker)
    train(writer, 1, 5)
    writer.close()
    writer, again = start(tmp_path, tracker)
    writer.truncate(3)
    train(writer, 4, 8)
    assert steps(tracker) == list(range(1, 9))
    assert again.identifier == follower.identifier


def test_kinds_and_splits_are_counted_apart(tmp_path):
    tracker = Kept()
    writer, _ = start(tmp_path, tracker)
    writer.write("cold_start", 9, {"loss": 1.0})
    writer.write("evaluation", 0, {"split": "test", "eval/pass_at_1": 0.25})
    writer.write("evaluation", 0, {"split": "validation", "eval/pass_at_1": 0.5})
    writer.write("train", 1, {"reward": 0.5})
    assert tracker.rows == [
        (9, {"cold_start/loss": 1.0}),
        (0, {"test/eval/pass_at_1": 0.25}),
        (0, {"eval/pass_at_1": 0.5}),
        (1, {"reward": 0.5}),
    ]


def test_a_tracker_chosen_later_gets_what_came_before(tmp_path):
    writer = MetricsWriter(tmp_path / "metrics.jsonl")
    train(writer, 1, 3)
    writer.close()
    tracker = Kept()
    writer, _ = start(tmp_path, tracker)
    train(writer, 4, 4)
    assert steps(tracker) == [1, 2, 3, 4]


def test_a_tracker_that_fails_ends_no_training_and_gets_the_rest_later(tmp_path):
    said, tracker = [], Kept()
    writer, follower = start(tmp_path, tracker, said.append)
    train(writer, 1, 2)
    tracker.broken = True
    train(writer, 3, 5)
    follower.close()
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4, 5]
    [words] = said
    assert words.startswith(
        "tracker kept failed and gets nothing more of this start (ConnectionError: no route to host)"
    )
    tracker.broken = False
    writer.close()
    start(tmp_path, tracker)
    # Nobody knows whether step 3 arrived; it is never sent twice.
    assert steps(tracker) == [1, 2, 4, 5]


def test_only_numbers_are_sent():
    row = {
        "row": 3,
        "step": 1,
        "kind": "train",
        "reward": 0.5,
        "kl": None,
        "warnings": ["x"],
        "outcomes": {"right": [1]},
    }
    assert numbers(row) == {"reward": 0.5}


@pytest.mark.parametrize(
    ("name", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb"), ("trackio", "trackio")]
)
def test_a_missing_package_is_named_with_its_command(monkeypatch, name, package):
    def missing(module):
        raise ModuleNotFoundError(module)

    monkeypatch.setattr(trackers.importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=rf"config\.trackers: got '{name}', whose .* Run: pip install {package}"):
        check_installed((name,))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (("mlflow",), r"config\.trackers\[0\]: got 'mlflow', wanted one of 'tensorboard', 'wandb', 'trackio'"),
        (("wandb", "wandb"), r"config\.trackers: got .*, wanted each name once"),
    ],
)
def test_names_are_closed(value, message):
    with pytest.raises(ConfigError, match=message):
        from_nested(RunConfig, {"trackers": value}).validate()


@pytest.fixture
def followed(tmp_path, monkeypatch):
    """Runs two starts of a run with a real tracker; the second does a step again and one more."""

    def runs(name, module):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
        monkeypatch.setenv("WANDB_MODE", "offline")
        monkeypatch.setenv("WANDB_SILENT", "true")
        monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
        for first, last, kept in ((1, 3, 0), (3, 4, 2)):
            with RunFolder.open(tmp_path / "run", CONFIG, overrides={}) as folder:
                writer = MetricsWriter(folder.metrics)
                [follower] = follow((name,), folder, CONFIG, read_metrics(folder.metrics), pytest.fail)
                writer.followers.append(follower.send)
                writer.truncate(kept)
                train(writer, first, last)
                writer.close()
                follower.close()
        return tmp_path

    return runs


def records(path):
    """The payloads of a file of TFRecords."""
    data = path.read_bytes()
    place = 0
    while place < len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        yield data[place + 12 : place + 12 + length]
        place += 16 + length


def test_tensorboard_files_hold_every_row_once(followed):
    folder = followed("tensorboard", "tensorboardX") / "run" / "tensorboard"
    event = importlib.import_module("tensorboardX.proto.event_pb2").Event
    found = Counter()
    for path in folder.glob("events.*"):
        for payload in records(path):
            for value in event.FromString(payload).summary.value:
                found[event.FromString(payload).step, value.tag, value.simple_value] += 1
    assert found == {(step, "reward", step / 4): 1 for step in range(1, 5)}


def log_records(path):
    """The payloads of a log in LevelDB's format: blocks of 32 KiB with parts of records, after a header of 7 bytes."""
    data, place, parts = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield parts
            parts = b""


def test_weights_and_biases_offline_files_hold_every_row_once(followed):
    folder = followed("wandb", "wandb") / "run" / "wandb"
    record = importlib.import_module("wandb.proto.wandb_internal_pb2").Record
    rows, identifiers = [], set()
    for path in sorted(folder.glob("offline-run-*/*.wandb")):
        for data in log_records(path):
            one = record.FromString(data)
            if one.HasField("run"):
                identifiers.add(one.run.run_id)
            if one.HasField("history"):
                rows.append({item.key or item.nested_key[0]: json.loads(item.value_json) for item in one.history.item})
    assert [(row["step"], row["reward"]) for row in rows] == [(step, step / 4) for step in range(1, 5)]
    assert len(identifiers) == 1


def test_trackio_holds_every_row_once(followed, tmp_path):
    followed("trackio", "trackio")
    storage = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    [run] = storage.get_runs(trackers.PROJECT)
    rows = storage.get_logs(trackers.PROJECT, run)
    assert [(row["step"], row["reward"]) for row in rows] == [(step, step / 4) for step in range(1, 5)]
