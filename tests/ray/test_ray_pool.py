"""The pool on a local Ray; left out where Ray is not installed (pip install "grpo-jax[ray]")."""

import os
import pathlib
import signal
import sys
import time

import pytest

from grpo_jax.config import VerifierConfig
from grpo_jax.records import Completion, FinishReason, Problem
from grpo_jax.verifiers import ray_pool
from grpo_jax.verifiers.pool import VerifierPool, open_pool

ray = pytest.importorskip("ray", reason="needs the extra 'ray'")

PATIENCE_SECONDS = 120.0
VERIFIERS = pathlib.Path(__file__).parents[1] / "unit" / "verifiers"


@pytest.fixture(scope="module", autouse=True)
def cluster():
    path = os.pathsep.join([str(VERIFIERS), *filter(None, sys.path)])
    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": path}})
    yield
    ray.shutdown()


def remote_pool(function: str, workers: int = 1, deadline_seconds: float = 20.0) -> VerifierPool:
    return VerifierPool(f"pool_verifiers:{function}", workers, deadline_seconds, start_worker=ray_pool.RayWorker)


def ask(pool, text="", **extra):
    problem = Problem("p", "", "42", extra={name: str(value) for name, value in extra.items()})
    return pool.submit(problem, Completion(text, 1, FinishReason.STOP))


def wait_until(condition) -> None:
    gives_up = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < gives_up, "the condition did not come true"
        time.sleep(0.02)


def alive(process_id: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_configured_pool_judges_in_actors():
    config = VerifierConfig(pool="ray", workers=2, deadline_seconds=20.0)
    with open_pool(config) as pool:
        verdicts = [ask(pool, f"<answer>{number}</answer>") for number in (42, 41)]
        assert [verdict.result(PATIENCE_SECONDS).reward for verdict in verdicts] == [1.0, 0.0]
        # One actor can do both jobs before the other has started.
        pool.wait_until_ready()
        assert pool.statistics().workers == 2
    assert pool.statistics().workers == 0


def test_a_hang_is_a_timeout_and_the_pool_gets_back_to_full_size():
    with remote_pool("hang_if_asked", deadline_seconds=1.0) as pool:
        assert ask(pool, "hang").result(PATIENCE_SECONDS).reason == "timeout"
        assert ask(pool).result(PATIENCE_SECONDS).correct
        assert (pool.statistics().restarts, pool.statistics().workers) == (1, 1)


def test_a_killed_worker_is_gone_with_its_child_and_its_job_is_done_once_more(tmp_path):
    marker = tmp_path / "marker"
    with remote_pool("hang_with_a_child_the_first_time", deadline_seconds=60.0) as pool:
        future = ask(pool, marker=marker)
        wait_until(lambda: marker.exists() and len(marker.read_text().split()) == 2)
        worker, child = map(int, marker.read_text().split())
        os.kill(worker, signal.SIGKILL)
        verdict = future.result(PATIENCE_SECONDS)
        assert (verdict.correct, verdict.parsed) == (True, "second attempt")
        wait_until(lambda: not alive(worker) and not alive(child))
        assert pool.statistics().restarts == 1


def test_a_killed_actor_takes_worker_and_child_along_and_its_job_is_done_once_more(tmp_path):
    marker = tmp_path / "marker"
    with remote_pool("hang_with_a_child_the_first_time", deadline_seconds=60.0) as pool:
        future = ask(pool, marker=marker)
        wait_until(lambda: marker.exists() and len(marker.read_text().split()) == 2)
        worker, child = map(int, marker.read_text().split())
        actor = int(pathlib.Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(actor, signal.SIGKILL)
        assert future.result(PATIENCE_SECONDS).parsed == "second attempt"
        wait_until(lambda: not alive(worker) and not alive(child))


def test_two_deaths_are_an_error(tmp_path):
    with remote_pool("die_if_asked") as pool:
        verdict = ask(pool, "die", marker=tmp_path / "marker").result(PATIENCE_SECONDS)
    assert verdict.error
    assert verdict.reason == "worker died: exit code -9"
    assert (tmp_path / "marker").read_text() == "xx"
