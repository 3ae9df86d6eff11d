import json
import logging
import re
import resource

import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.io.metrics import JsonLines, MetricsWriter, SamplesWriter, read_metrics, write_summary
from grpo_jax.io.storage import StorageFailed


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def _write(path, count):
    writer = MetricsWriter(path)
    for step in range(count):
        writer.write("train", step, {"reward": step / 4})
    return writer


def test_rows_are_on_disk_at_once(path):
    writer = MetricsWriter(path)
    writer.write("cold_start", 0, {"loss": np.float32(0.5)})
    writer.write("train", 0, {"reward": jnp.float32(1.5), "solved_all": np.int32(3), "skipped_update": False})
    writer.write("evaluation", 0, {"eval/pass_at_1": 0.25, "split": "validation"})
    assert path.read_text().splitlines() == [
        '{"row": 0, "step": 0, "kind": "cold_start", "loss": 0.5}',
        '{"row": 1, "step": 0, "kind": "train", "reward": 1.5, "solved_all": 3, "skipped_update": false}',
        '{"row": 2, "step": 0, "kind": "evaluation", "eval/pass_at_1": 0.25, "split": "validation"}',
    ]
    writer.close()


def test_numbers_that_are_not_finite_become_null_and_are_named(path):
    writer = MetricsWriter(path)
    writer.write("train", 0, {"loss": float("nan"), "kl": np.float32("inf"), "reward": 1.0})
    assert read_metrics(path) == [
        {"row": 0, "step": 0, "kind": "train", "loss": None, "kl": None, "reward": 1.0, "nonfinite": ["kl", "loss"]}
    ]
    writer.close()


@pytest.mark.parametrize("name", ["row", "step", "kind", "nonfinite"])
def test_reserved_names_are_our_bugs(path, name):
    with pytest.raises(AssertionError, match="reserved names"):
        MetricsWriter(path).write("train", 0, {name: 1})


def test_reopened_file_goes_on_counting(path):
    _write(path, 2).close()
    writer = MetricsWriter(path)
    assert writer.rows == 2
    writer.write("train", 2, {})
    assert [row["row"] for row in read_metrics(path)] == [0, 1, 2]
    writer.close()


@pytest.mark.parametrize("tail", ['{"row": 2, "st', '{"row": 2, "step": 2, "kind": "train"}', "\0\0\0"])
def test_torn_last_line_is_dropped(path, tail):
    _write(path, 2).close()
    whole = path.read_bytes()
    path.write_bytes(whole + tail.encode())
    assert [row["step"] for row in read_metrics(path)] == [0, 1]
    writer = MetricsWriter(path)
    assert path.read_bytes() == whole
    assert writer.rows == 2
    writer.close()


@pytest.mark.parametrize("line", ["{broken", "[1]", '{"step": 1}', ""])
def test_broken_line_inside_is_named(path, line):
    _write(path, 1).close()
    path.write_text(f'{path.read_text()}{line}\n{{"row": 1}}\n')
    for read in (read_metrics, MetricsWriter):
        with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2: got .*, wanted a JSON object with 'row'"):
            read(path)


def test_truncate_gives_the_file_of_the_checkpoint(path):
    writer = _write(path, 3)
    rows, content = writer.rows, path.read_bytes()
    writer.write("evaluation", 2, {"eval/pass_at_1": 0.5})
    writer.write("train", 3, {"reward": 1.0})
    after = path.read_bytes()
    writer.close()

    resumed = MetricsWriter(path)
    resumed.truncate(rows)
    assert path.read_bytes() == content
    resumed.write("evaluation", 2, {"eval/pass_at_1": 0.5})
    resumed.write("train", 3, {"reward": 1.0})
    assert path.read_bytes() == after
    resumed.close()


def test_truncate_to_nothing_and_to_everything(path):
    writer = _write(path, 2)
    writer.truncate(2)
    assert len(read_metrics(path)) == 2
    writer.truncate(0)
    assert path.read_bytes() == b""
    writer.write("train", 0, {})
    assert [row["row"] for row in read_metrics(path)] == [0]
    writer.close()


def test_lost_rows_are_reported_and_leave_a_gap(path, caplog):
    _write(path, 2).close()
    writer = MetricsWriter(path)
    with caplog.at_level(logging.WARNING, "grpo_jax"):
        writer.truncate(5)
    assert "rows 2 to 4 are lost, the checkpoint counted 5" in caplog.text
    writer.write("train", 5, {})
    assert [row["row"] for row in read_metrics(path)] == [0, 1, 5]
    writer.close()


def test_samples_share_the_mechanics(tmp_path):
    path = tmp_path / "samples.jsonl"
    writer = SamplesWriter(path)
    writer.write(3, {"prompt": "1+1=", "completion": "2\n", "verdict": {"reward": 1.0, "parts": {"numeric": 1.0}}})
    assert isinstance(writer, JsonLines)
    (row,) = read_metrics(path)
    assert (row["row"], row["step"], row["verdict"]["parts"]) == (0, 3, {"numeric": 1.0})
    with pytest.raises(ValueError, match="not JSON compliant"):
        writer.write(4, {"reward": float("nan")})
    assert len(read_metrics(path)) == writer.rows == 1
    writer.close()


def test_summary(tmp_path):
    path = tmp_path / "summary.json"
    write_summary(path, {"test/pass_at_1": np.float32(0.5), "loss": float("inf"), "steps": 3})
    assert json.loads(path.read_text()) == {"test/pass_at_1": 0.5, "loss": None, "steps": 3, "nonfinite": ["loss"]}


def test_missing_file_is_an_error(path):
    with pytest.raises(FileNotFoundError):
        read_metrics(path)


def test_rows_that_another_process_writes_are_counted_alike(tmp_path):
    written, counted = MetricsWriter(tmp_path / "metrics.jsonl"), MetricsWriter(None)
    for writer in (written, counted):
        writer.write("train", 1, {"loss": 0.5})
        writer.write("train", 2, {"loss": 0.25})
        assert writer.rows == 2
        writer.truncate(1)
        assert writer.rows == 1
        writer.close()
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_row_that_the_system_refuses_is_named_once_and_whole_rows_stay(path):
    writer = _write(path, 2)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 9, limits[1]))
    try:
        with pytest.raises(StorageFailed, match=r"metrics\.jsonl cannot be written: File too large"):
            writer.write("train", 2, {})
        writer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [row["row"] for row in read_metrics(path)] == [0, 1]
    assert path.read_bytes()[-1:] != b"\n", "the third row was begun"
    _write(path, 1).close()
    assert [row["row"] for row in read_metrics(path)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            b'\xff\xfe{"row": 1, \x1b[31m"st\xc3\xa4p": 1' + b"x" * 500,
            "'" + ('{"row": 1, [31m"stäp": 1' + "x" * 80)[:80] + "', wanted",
        ),
        (b"\0" * 3000, "got 3,001 bytes without a printable character, wanted"),
        (b'{"row": Infinity}', "got '{\"row\": Infinity}', wanted"),
        (b"[" * 100_000, "got '" + "[" * 80 + "', wanted"),
    ],
)
def test_a_corrupt_line_is_shown_as_people_can_read_it(path, line, shown):
    _write(path, 1).close()
    path.write_bytes(path.read_bytes() + line + b'\n{"row": 1}\n')
    with pytest.raises(ValueError, match=re.escape("metrics.jsonl, line 2: ") + ".*" + re.escape(shown)):
        read_metrics(path)
