"""What holds without other processes; tests/multiprocess has the rest."""

import jax
import pytest

from grpo_jax.config import ConfigError, WatchdogConfig
from grpo_jax.parallel import distributed

CONFIG = WatchdogConfig()


def test_without_flags_nothing_is_started():
    distributed.start(CONFIG)
    assert not jax.distributed.is_initialized()


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_processes": 2},
        {"coordinator_address": "localhost:1", "process_id": 0},
        {"coordinator_address": "localhost:1", "num_processes": 2, "process_id": 0, "detect": True},
    ],
)
def test_flags_that_do_not_go_together_are_refused(arguments):
    with pytest.raises(ConfigError, match="wanted all three, and no --distributed beside them"):
        distributed.start(CONFIG, **arguments)


@pytest.mark.parametrize("address", ["foo", "localhost:", "localhost:port", ":1", "http://localhost:1"])
def test_an_address_without_host_or_port_is_refused(address):
    with pytest.raises(ConfigError, match=rf"--coordinator_address: got '{address}', wanted HOST:PORT of process 0"):
        distributed.start(CONFIG, coordinator_address=address, num_processes=2, process_id=1)


@pytest.mark.parametrize(("number", "of"), [(0, 0), (2, 2), (-1, 2)])
def test_a_process_that_is_none_of_them_is_refused(number, of):
    with pytest.raises(ConfigError, match=f"--process_id: got {number} of --num_processes {of}, wanted 0 to"):
        distributed.start(CONFIG, coordinator_address="localhost:1", num_processes=of, process_id=number)


def test_the_loss_of_a_process_is_told_from_other_faults():
    lost = jax.errors.JaxRuntimeError("UNKNOWN: Gloo all-reduce failed: Connection closed by peer")
    assert distributed.is_loss(lost)
    closed = "[external/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:24804"
    assert distributed.is_loss(ValueError(f"UNKNOWN: Gloo AllGather failed: {closed}"))
    assert not distributed.is_loss(ValueError("config.mesh: got a size that nccl would not like"))
    wrapped = ValueError("cannot save")
    wrapped.__cause__ = lost
    assert distributed.is_loss(wrapped)
    assert distributed.is_loss(distributed.PeerLost("gone"))
    assert not distributed.is_loss(jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory"))
    assert not distributed.is_loss(ConnectionError("connection refused"))


def test_one_process_meets_nobody_and_raises_as_usual():
    distributed.barrier("nowhere")
    with pytest.raises(ValueError, match="as usual"), distributed.leaving_at_once():
        raise ValueError("as usual")


@pytest.mark.parametrize(
    ("error", "status"),
    [(ZeroDivisionError("ours"), 1), (distributed.PeerLost("gone"), 75), (KeyboardInterrupt(), 130)],
)
def test_one_of_several_says_its_last_words_before_it_leaves(error, status, monkeypatch, capsys):
    said = []

    def left(with_status):
        said.append(with_status)
        raise SystemExit

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(distributed, "leave", left)
    with (
        pytest.raises(SystemExit),
        distributed.before_leaving(lambda: said.append("report")),
        distributed.before_leaving(lambda: said.append(1 / 0)),
        distributed.leaving_at_once(),
    ):
        raise error
    assert said == ["report", status]
    assert "division by zero" in capsys.readouterr().err
    with pytest.raises(SystemExit), distributed.leaving_at_once():
        raise error
    assert said == ["report", status, status]


def test_what_only_one_process_knows_of_is_one_line_and_its_own_status(monkeypatch, capsys):
    class FullError(RuntimeError):
        exit_status, only_here = 7, True

    def left(status):
        raise SystemExit(status)

    def report():
        raise full

    full = FullError("the disk is full")
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(distributed, "leave", left)
    with pytest.raises(SystemExit, match="7"), distributed.before_leaving(report), distributed.leaving_at_once():
        raise full
    assert capsys.readouterr().err == "error: process 0: the disk is full\n"
