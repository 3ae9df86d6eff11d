import concurrent.futures
import threading
import time

import jax
import pytest

from grpo_jax.config import WatchdogConfig
from grpo_jax.records import Completion, FinishReason, Problem, Verdict
from grpo_jax.rollout.engine import SamplingParams
from grpo_jax.training.watchdog import STUCK, Watchdog, WatchedEngine, WatchedJudge

CONFIG = WatchdogConfig(start_seconds=60, rollout_seconds=1, update_seconds=60, save_seconds=60)


class Ended:
    def __init__(self):
        self.status, self.happened = None, threading.Event()

    def __call__(self, status):
        self.status = status
        self.happened.set()


def test_silence_in_a_phase_ends_the_process_with_tracebacks_however_many_threads_there_are(capfd):
    ended, over = Ended(), threading.Event()
    others = [threading.Thread(target=over.wait) for _ in range(110)]
    with Watchdog(CONFIG, ended) as watchdog:
        for thread in others:
            thread.start()
        watchdog.beat("rollout")
        assert ended.happened.wait(20)
    over.set()
    for thread in others:
        thread.join()
    assert ended.status == STUCK == 74
    shown = capfd.readouterr().err
    assert "nothing happened for 1 seconds (config.watchdog.rollout_seconds) in process 0" in shown
    assert "test_training_watchdog.py" in shown, "the traceback of the thread that is stuck"


def test_news_and_longer_limits_keep_it_going():
    ended = Ended()
    with Watchdog(CONFIG, ended) as watchdog:
        for _ in range(8):
            watchdog.beat("rollout")
            time.sleep(0.25)
        watchdog.beat("update")
        assert not ended.happened.wait(2)


class Beats(Watchdog):
    def __init__(self):
        self.phases = []

    def beat(self, phase):
        self.phases.append(phase)


def test_groups_and_verdicts_are_news():
    class Engine:
        def generate(self, prompts, *, sampling, key):
            yield from ("first", "second")

        def sync(self, params, version):
            self.synced = params, version

    class Judge:
        def submit(self, problem, completion):
            return future

        def metrics(self):
            return {"verifier/workers": 2.0}

    beats, future, engine = Beats(), concurrent.futures.Future(), Engine()
    watched = WatchedEngine(engine, beats)
    watched.sync("params", 3)
    assert engine.synced == ("params", 3)
    assert list(watched.generate([[1]], sampling=SamplingParams(1, 1), key=jax.random.key(0))) == ["first", "second"]
    assert beats.phases == ["rollout"] * 4
    judge = WatchedJudge(Judge(), beats)
    assert judge.metrics() == {"verifier/workers": 2.0}
    assert judge.submit(Problem("a", "1+1=", "2"), Completion("2", 1, FinishReason.STOP)) is future
    assert len(beats.phases) == 4
    future.set_result(Verdict(1.0, True, "2", "equal"))
    assert beats.phases == ["rollout"] * 5


@pytest.mark.parametrize("name", ["start_seconds", "barrier_seconds", "heartbeat_seconds"])
def test_limits_are_positive(name):
    with pytest.raises(ValueError, match=rf"config\.watchdog\.{name}: got 0, wanted 1 or more"):
        WatchdogConfig(**{name: 0}).validate("watchdog")
