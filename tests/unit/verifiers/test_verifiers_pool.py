import concurrent.futures
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from grpo_jax.config import VerifierConfig
from grpo_jax.records import Completion, FinishReason, Problem, Verdict
from grpo_jax.verifiers.base import UnusableVerifierError
from grpo_jax.verifiers.keeper import Keeper
from grpo_jax.verifiers.pool import VerifierPool
from grpo_jax.verifiers.process import WorkerProcess
from grpo_jax.verifiers.sandbox.contracts import Level
from grpo_jax.verifiers.start import START_ATTEMPTS
from grpo_jax.verifiers.statistics import PoolStatistics

_HERE = pathlib.Path(__file__).parent
_PATIENCE_SECONDS = 30.0


@pytest.fixture(autouse=True)
def _importable_verifiers(monkeypatch):
    monkeypatch.syspath_prepend(str(_HERE))


def _problem(**extra) -> Problem:
    return Problem("p", "6*7=", "42", extra={name: str(value) for name, value in extra.items()})


def _completion(text: str = "", length_tokens: int = 1) -> Completion:
    return Completion(text, length_tokens, FinishReason.STOP)


def _ask(pool: VerifierPool, text: str = "", **extra) -> Verdict:
    return pool.submit(_problem(**extra), _completion(text)).result(_PATIENCE_SECONDS)


def _wait_until(condition) -> None:
    gives_up = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < gives_up, "the condition did not come true"
        time.sleep(0.01)


def _alive(process_id: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_the_configured_verifier_judges_in_the_workers():
    config = VerifierConfig(rewards=("numeric", "format"), weights=(1.0, 0.5))
    with VerifierPool(config, workers=1, deadline_seconds=20.0) as pool:
        right = _ask(pool, "<think>6*7</think><answer>42</answer>")
        wrong = _ask(pool, "<answer>41</answer>")
    assert (right.reward, right.correct, right.parts) == (1.5, True, {"numeric": 1.0, "format": 1.0})
    assert (wrong.reward, wrong.correct, wrong.reason) == (0.0, False, "not equal")
    assert right.seconds > 0


def test_every_future_gets_its_own_verdict():
    with VerifierPool("pool_verifiers:echo", workers=2, deadline_seconds=20.0) as pool:
        futures = [pool.submit(_problem(), _completion(f"text {n}", n)) for n in range(100)]
    for n, future in enumerate(futures):
        verdict = future.result(0)
        assert (verdict.reward, verdict.parsed, verdict.reason) == (float(n), f"text {n}", "42")
        assert verdict.parts == {"a": 1.0}
        assert type(verdict.reward) is float
    statistics = pool.statistics()
    assert (statistics.jobs, statistics.timeouts, statistics.errors, statistics.restarts) == (100, 0, 0, 0)
    assert statistics.workers == 0


def test_a_text_larger_than_a_pipe_goes_both_ways():
    text = "é" * 150_000
    with VerifierPool("pool_verifiers:echo", workers=1, deadline_seconds=20.0) as pool:
        assert _ask(pool, text).parsed == text


def test_two_workers_overlap(tmp_path):
    with VerifierPool("pool_verifiers:meet", workers=2, deadline_seconds=20.0) as pool:
        one = pool.submit(_problem(mine=tmp_path / "a", other=tmp_path / "b"), _completion())
        two = pool.submit(_problem(mine=tmp_path / "b", other=tmp_path / "a"), _completion())
        assert one.result(_PATIENCE_SECONDS).correct
        assert two.result(_PATIENCE_SECONDS).correct


def test_a_hang_is_a_timeout_and_the_pool_gets_back_to_full_size():
    with VerifierPool("pool_verifiers:hang_if_asked", workers=2, deadline_seconds=1.5) as pool:
        futures = [pool.submit(_problem(), _completion(text)) for text in ["hang", "", "hang", "", "hang", ""]]
        verdicts = [future.result(_PATIENCE_SECONDS) for future in futures]
        _wait_until(lambda: pool.statistics().workers == 2)
        assert _ask(pool).correct
    for verdict in verdicts[::2]:
        assert (verdict.reward, verdict.correct, verdict.reason, verdict.error) == (0.0, False, "timeout", False)
        assert 1.5 <= verdict.seconds < 10.0
    assert all(verdict.correct for verdict in verdicts[1::2])
    statistics = pool.statistics()
    assert (statistics.jobs, statistics.timeouts, statistics.errors, statistics.restarts) == (7, 3, 0, 3)


def test_a_timeout_kills_the_workers_children_too(tmp_path):
    marker = tmp_path / "marker"
    with VerifierPool("pool_verifiers:hang_with_a_child", workers=1, deadline_seconds=1.0) as pool:
        assert _ask(pool, marker=marker).reason == "timeout"
        worker, child = (int(number) for number in marker.read_text().split())
        _wait_until(lambda: not _alive(worker) and not _alive(child))


def test_the_start_of_a_worker_does_not_count(tmp_path, monkeypatch):
    module = "import time\ntime.sleep(1.5)\nfrom pool_verifiers import process_id\n"
    (tmp_path / "slow_to_import.py").write_text(module)
    monkeypatch.syspath_prepend(str(tmp_path))
    with VerifierPool("slow_to_import:process_id", workers=1, deadline_seconds=1.0) as pool:
        assert _ask(pool).correct


def test_a_worker_killed_at_work_has_its_job_done_again(tmp_path):
    marker = tmp_path / "marker"
    with VerifierPool("pool_verifiers:sleep_the_first_time", workers=1, deadline_seconds=20.0) as pool:
        future = pool.submit(_problem(marker=marker), _completion())
        _wait_until(lambda: marker.exists() and marker.read_text())
        os.kill(int(marker.read_text()), signal.SIGKILL)
        verdict = future.result(_PATIENCE_SECONDS)
        assert (verdict.correct, verdict.parsed) == (True, "second attempt")
        statistics = pool.statistics()
    assert (statistics.jobs, statistics.errors, statistics.restarts, statistics.workers) == (1, 0, 1, 1)


def test_a_worker_killed_between_jobs_is_replaced():
    with VerifierPool("pool_verifiers:process_id", workers=1, deadline_seconds=20.0) as pool:
        first = int(_ask(pool).parsed or 0)
        os.kill(first, signal.SIGKILL)
        _wait_until(lambda: not _alive(first))
        verdict = _ask(pool)
    assert verdict.correct
    assert verdict.parsed != str(first)


def test_two_deaths_are_an_error_and_no_third_attempt(tmp_path):
    marker = tmp_path / "marker"
    with VerifierPool("pool_verifiers:die_if_asked", workers=1, deadline_seconds=20.0) as pool:
        verdict = _ask(pool, "die", marker=marker)
        assert (verdict.reward, verdict.correct, verdict.error) == (0.0, False, True)
        assert verdict.reason == "worker died: exit code -9"
        assert marker.read_text() == "xx"
        assert _ask(pool, marker=marker).correct
        statistics = pool.statistics()
    assert (statistics.jobs, statistics.errors, statistics.restarts, statistics.workers) == (2, 1, 2, 1)


def test_an_exit_is_a_death_and_no_verdict():
    with VerifierPool("pool_verifiers:exit_quietly", workers=1, deadline_seconds=20.0) as pool:
        verdict = _ask(pool)
    assert verdict.error
    assert verdict.reason == "worker died: exit code 3"


def test_a_verifier_that_fails_is_an_error_and_its_worker_lives_on():
    expected = {
        "raise": "TypeError: no such thing",
        "not a verdict": "TypeError: pool_verifiers:misbehave returned a str, wanted a Verdict, a number or a bool",
        "not finite": "RewardOutOfRange: pool_verifiers:misbehave: a verdict's reward must be finite",
        "not JSON": "TypeError: Object of type bytes is not JSON serializable",
        "too large": "ValueError: the verdict takes 20",
        "memory": "MemoryError",
    }
    with VerifierPool("pool_verifiers:misbehave", workers=1, deadline_seconds=20.0) as pool:
        verdicts = {text: _ask(pool, text) for text in expected}
        assert _ask(pool).correct
        statistics = pool.statistics()
    for text, reason in expected.items():
        assert verdicts[text].error, text
        assert verdicts[text].reason.startswith(reason)
    assert (statistics.errors, statistics.restarts) == (6, 0)


@pytest.mark.parametrize(
    ("forged", "reason"),
    [
        ("\xff" * 64, "a reply of 4294967299 bytes, wanted at most 1048576"),
        ("\0\0\0\x02{}\0\0\0\x02{}", "more than one reply"),
        ("\0\0\0\x02{]", "the reply is not JSON"),
        ("\0\0\0\x02{}", "wanted the verdict of job 1"),
    ],
)
def test_a_forged_reply_is_never_a_verdict(forged, reason):
    with VerifierPool("pool_verifiers:forge_a_reply", workers=1, deadline_seconds=20.0) as pool:
        verdict = _ask(pool, forged)
    assert (verdict.reward, verdict.correct, verdict.error) == (0.0, False, True)
    assert verdict.reason.startswith("worker broke the protocol: ")
    # The true reply follows the forged one and may arrive with it.
    assert reason in verdict.reason or "more than one reply" in verdict.reason


def test_prints_and_reads_of_a_verifier_do_not_touch_the_protocol():
    with VerifierPool("pool_verifiers:talk", workers=1, deadline_seconds=20.0) as pool:
        verdicts = [_ask(pool) for _ in range(3)]
    assert all(verdict.correct and verdict.parsed == "" for verdict in verdicts)
    assert pool.statistics().restarts == 0


@pytest.mark.parametrize(
    ("verifier", "message"),
    [
        ("no_such_module:judge", "importing it fails: ModuleNotFoundError: No module named 'no_such_module'"),
        ("pool_verifiers:no_such_function", "there is no function 'no_such_function' in it"),
        ("pool_verifiers:echo.<locals>.inner", "that is no such name"),
    ],
)
def test_a_verifier_that_cannot_be_used_is_named_after_one_attempt(verifier, message):
    starts = []

    def start_worker(keeper: Keeper) -> WorkerProcess:
        starts.append(1)
        return WorkerProcess(keeper)

    with VerifierPool(verifier, workers=2, deadline_seconds=5.0, start_worker=start_worker) as pool:
        futures = [pool.submit(_problem(), _completion()) for _ in range(4)]
        for future in futures:
            with pytest.raises(UnusableVerifierError, match=message):
                future.result(_PATIENCE_SECONDS)
        with pytest.raises(UnusableVerifierError, match=message):
            pool.wait_until_ready()
    assert len(starts) == 2
    assert pool.statistics() == PoolStatistics()


def test_a_worker_that_does_not_start_is_tried_again_and_named():
    starts = []

    def start_worker(keeper: Keeper) -> WorkerProcess:
        starts.append(1)
        return WorkerProcess(keeper)

    config = VerifierConfig(rewards=("numeric", "format"), weights=(1.0,))
    message = r"cannot start.*exit code 1(?s:.*)argument 2 is shorter"
    with (
        VerifierPool(config, workers=1, deadline_seconds=5.0, start_worker=start_worker) as pool,
        pytest.raises(RuntimeError, match=message),
    ):
        pool.wait_until_ready()
    assert len(starts) == START_ATTEMPTS


def test_a_start_that_fails_in_an_unknown_way_leaves_no_future_open():
    def start_worker(keeper: Keeper) -> WorkerProcess:
        raise LookupError("nobody thought of this")

    with VerifierPool("pool_verifiers:echo", workers=2, deadline_seconds=5.0, start_worker=start_worker) as pool:
        future = pool.submit(_problem(), _completion())
        with pytest.raises(RuntimeError, match="a worker cannot start: LookupError: nobody thought of this"):
            future.result(_PATIENCE_SECONDS)


def test_close_finishes_what_was_submitted_and_leaves_no_process():
    pool = VerifierPool("pool_verifiers:process_id", workers=2, deadline_seconds=20.0)
    futures = [pool.submit(_problem(), _completion()) for _ in range(50)]
    pool.close()
    pool.close()
    assert all(future.result(0).correct for future in futures)
    process_ids = {int(future.result(0).parsed or 0) for future in futures}
    assert not any(_alive(process_id) for process_id in process_ids)
    with pytest.raises(RuntimeError, match="the pool is closed"):
        pool.submit(_problem(), _completion())


def test_no_file_descriptor_is_left_open(tmp_path):
    def open_descriptors() -> list[str]:
        return sorted(os.listdir("/proc/self/fd"))

    before = open_descriptors()
    with VerifierPool("pool_verifiers:die_if_asked", workers=2, deadline_seconds=20.0) as pool:
        assert _ask(pool, "die", marker=tmp_path / "marker").error
        assert len(open_descriptors()) > len(before)
    assert open_descriptors() == before


def test_an_exception_cancels_the_jobs_that_have_not_begun():
    futures = []

    def submit_and_fail() -> None:
        with VerifierPool("pool_verifiers:hang_if_asked", workers=1, deadline_seconds=1.0) as pool:
            futures.extend(pool.submit(_problem(), _completion("hang")) for _ in range(60))
            raise KeyError("stop")

    began = time.monotonic()
    with pytest.raises(KeyError, match="stop"):
        submit_and_fail()
    assert time.monotonic() - began < 20.0
    assert len(concurrent.futures.wait(futures, timeout=0).done) == 60
    assert futures[-1].cancelled()


def test_a_hanging_worker_and_its_child_end_with_a_killed_parent(tmp_path):
    marker = tmp_path / "marker"
    script = (
        "import sys\n"
        f"sys.path.insert(0, {str(_HERE)!r})\n"
        "from grpo_jax.records import *\n"
        "from grpo_jax.verifiers.pool import VerifierPool\n"
        "pool = VerifierPool('pool_verifiers:hang_with_a_child', workers=1, deadline_seconds=600.0)\n"
        f"problem = Problem('p', '', '', extra={{'marker': {str(marker)!r}}})\n"
        "pool.submit(problem, Completion('', 1, FinishReason.STOP)).result()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as parent:
        _wait_until(lambda: marker.exists() and marker.read_text())
        worker, child = map(int, marker.read_text().split())
        assert _alive(worker)
        assert _alive(child)
        parent.kill()
    _wait_until(lambda: not _alive(worker) and not _alive(child))


def test_a_worker_ends_with_its_input():
    command = [sys.executable, "-m", "grpo_jax.verifiers.worker"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_SECONDS, check=True)
    assert done.stdout == b""


def test_neither_side_imports_jax():
    with VerifierPool("pool_verifiers:loaded_modules", workers=1, deadline_seconds=20.0) as pool:
        assert _ask(pool).parsed == ""
    script = (
        "import sys, pkgutil, importlib\n"
        "for name in ('jax', 'jaxlib', 'flax', 'numpy'): sys.modules[name] = None\n"
        "import grpo_jax.verifiers as package\n"
        "names = [module.name for module in pkgutil.iter_modules(package.__path__)]\n"
        "assert 'pool' in names\n"
        "for name in names: importlib.import_module('grpo_jax.verifiers.' + name)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=_PATIENCE_SECONDS)


def test_a_problem_that_is_no_json_is_refused_with_its_name():
    problem = Problem("row 7", "", "", extra={"picture": b"bytes"})
    with (
        VerifierPool("pool_verifiers:echo", workers=1, deadline_seconds=20.0) as pool,
        pytest.raises(ValueError, match="problem 'row 7' cannot be sent to a verifier: Object of type bytes"),
    ):
        pool.submit(problem, _completion())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pool_verifiers:echo", 0, 1.0), "got workers=0, wanted a positive number of processes"),
        (("pool_verifiers:echo", 1, 0.0), "got deadline_seconds=0.0, wanted positive seconds"),
        (("pool_verifiers:echo", 1, float("nan")), "got deadline_seconds=nan, wanted positive seconds"),
    ],
)
def test_arguments_that_make_no_pool_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        VerifierPool(*arguments)


def test_metrics_tell_the_pools_size_and_the_sandboxs_level():
    assert PoolStatistics(workers=2).metrics() == {"verifier/workers": 2.0}
    levels = {name: PoolStatistics(facts={"sandbox": name}).metrics()["verifier/sandbox_level"] for name in Level}
    assert levels == {"namespaces": 1.0, "bubblewrap": 2.0, "landlock": 3.0, "limits": 4.0}
    refused = PoolStatistics(facts={"sandbox": "landlock", "no namespaces": "why", "no bubblewrap": "why"}).metrics()
    assert refused["verifier/sandbox_refused_levels"] == 2.0
