"""What the trainer watches: nothing to learn from, and gradients that are not finite."""

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from grpo_jax.config import AlgorithmConfig, CheckpointConfig, ConfigError, RunConfig, from_nested, to_nested
from grpo_jax.io.checkpoint import CheckpointMismatch, NoUsableCheckpoint
from grpo_jax.io.display import Display
from grpo_jax.io.metrics import read_metrics
from grpo_jax.io.run_folder import RunFolder
from grpo_jax.records import Verdict
from grpo_jax.rollout.jax_engine import JaxEngine
from grpo_jax.training import setup
from grpo_jax.training import trainer as trainer_lib
from grpo_jax.training.limits import UNJUDGED_STEPS, NonFiniteTraining, NothingJudged
from grpo_jax.training.loop import Stopped
from grpo_jax.training.trainer import Trainer
from grpo_jax.training.watchdog import Watchdog
from tests.unit.training.test_training_collect import Judge

CONFIG = from_nested(
    RunConfig,
    {
        "steps": 2,
        "model": {"num_layers": 1, "d_model": 16, "head_dim": 4, "d_ff": 16},
        "data": {"prompt_template": "{problem}=", "digits": 2, "validation_problems": 8, "test_problems": 8},
        "rollout": {"prompts_per_step": 8, "completions_per_prompt": 2, "max_new_tokens": 4},
        "algorithm": {"micro_batch_completions": 8, "kl_beta": 0.0, "max_nonfinite_steps": 2},
        "evaluation": {"test_samples_per_problem": 1, "every_steps": 2},
    },
)


def trainer(folder: Path, config: RunConfig) -> Trainer:
    """A trainer whose judge finds nothing right, as random answers are not."""
    parts = setup.build(config)
    engine = JaxEngine(parts.spec, eos_ids=parts.tokenizer.eos_ids, pad_id=parts.tokenizer.pad_id, batch_completions=16)
    run_folder = RunFolder.open(folder, to_nested(config), overrides={}, may_change=("steps",))
    return Trainer(parts, run_folder, engine, Judge([]), Display(), Watchdog(config.watchdog))


def test_a_batch_without_a_right_answer_is_reported_and_moves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with jax.set_mesh(setup.build(CONFIG).mesh):
        subject = trainer(tmp_path, CONFIG)
        state = subject.train()
    assert int(state.updates) == 0
    output = capsys.readouterr().out
    assert "warning: step 1: 100% of the groups have no right answer" in output
    assert subject.run.progress.results["test_pass_at_1_after"] == 0.0


@contextlib.contextmanager
def started(folder: Path, config: RunConfig = CONFIG) -> Iterator[Trainer]:
    """A trainer that gives its folder back, as the end of its process would."""
    with jax.set_mesh(setup.build(config).mesh):
        subject = trainer(folder, config)
        try:
            yield subject
        finally:
            subject.run.close()
            subject.run.folder.close()


def steps_of(folder: Path, kind: str) -> list[int]:
    return [row["step"] for row in read_metrics(folder / "metrics.jsonl") if row["kind"] == kind]


def test_nonfinite_updates_in_a_row_stop_the_run_with_its_state_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dataclasses.replace(CONFIG, steps=9)
    computed = trainer_lib._computed
    monkeypatch.setattr(trainer_lib, "_computed", lambda metrics: computed(metrics) | {"nonfinite_update": 1.0})
    with (
        started(tmp_path, config) as subject,
        pytest.raises(NonFiniteTraining, match=r"2 updates in a row .* Lower optimizer\.learning_rate"),
    ):
        subject.train()
    assert steps_of(tmp_path, "train") == [1, 2]
    monkeypatch.undo()
    with started(tmp_path, config) as subject:
        subject.train()
    assert steps_of(tmp_path, "train") == list(range(1, 10))


def test_a_judge_that_fails_on_everything_ends_the_run_with_its_state_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dataclasses.replace(CONFIG, steps=9)
    failed: concurrent.futures.Future[Verdict] = concurrent.futures.Future()
    failed.set_result(Verdict(0.0, correct=False, parsed=None, reason="division by zero", error=True))
    monkeypatch.setattr(Judge, "submit", lambda *_: failed)
    words = rf"every completion of {UNJUDGED_STEPS} steps in a row.*division by zero.*grpo_jax\.verify"
    with started(tmp_path, config) as subject, pytest.raises(NothingJudged, match=words):
        subject.train()
    assert steps_of(tmp_path, "train") == list(range(1, UNJUDGED_STEPS + 1))
    monkeypatch.undo()
    with started(tmp_path, config) as subject:
        subject.train()
    assert steps_of(tmp_path, "train") == list(range(1, 10))


def test_a_run_without_its_checkpoints_does_not_start_afresh_in_silence(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, steps=3, checkpoint=CheckpointConfig(every_steps=1))
    with started(tmp_path, config) as subject:
        subject.train()
    shutil.rmtree(tmp_path / "checkpoints")
    with (
        started(tmp_path, config) as subject,
        pytest.raises(NoUsableCheckpoint, match=r"has 3 steps of grpo, but .* holds no checkpoint"),
    ):
        subject.train()


def test_rows_from_before_the_first_checkpoint_are_not_written_twice(tmp_path: Path) -> None:
    with started(tmp_path) as subject:
        subject.train()
    whole = read_metrics(tmp_path / "metrics.jsonl")
    shutil.rmtree(tmp_path / "checkpoints")
    with started(tmp_path) as subject:
        subject.run.metrics.truncate(2)  # as if killed after the two evaluations before the first step
        subject.train()
    again = read_metrics(tmp_path / "metrics.jsonl")
    assert [(row["kind"], row["step"]) for row in again] == [(row["kind"], row["step"]) for row in whole]


def test_fewer_steps_than_are_done_are_refused(tmp_path: Path) -> None:
    with started(tmp_path) as subject:
        subject.train()
    fewer = dataclasses.replace(CONFIG, steps=1)
    with (
        started(tmp_path, fewer) as subject,
        pytest.raises(ConfigError, match=r"config\.steps: got 1, wanted 2 or more: that many are done already"),
    ):
        subject.train()


def test_a_first_interrupt_stops_at_the_step_and_saves(tmp_path: Path) -> None:
    with started(tmp_path) as subject:
        interrupt_once(subject)
        with pytest.raises(Stopped, match="stopped after step 1 of grpo"):
            subject.train()
    with started(tmp_path) as subject:
        subject.train()
    assert steps_of(tmp_path, "train") == [1, 2]


def interrupt_once(subject: Trainer) -> None:
    """Sends Ctrl-C in the first rollout."""
    collect = subject._collect

    def interrupted(*arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return collect(*arguments)

    subject._collect = interrupted


def test_ppo_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    values = to_nested(CONFIG) | {"recipe": "ppo", "ppo": {"kl_beta": 0.04}}
    algorithm = AlgorithmConfig(
        micro_batch_completions=8, kl_beta=AlgorithmConfig().kl_beta, length_penalty=0.1, length_budget_tokens=1
    )
    config = from_nested(RunConfig, values | {"algorithm": to_nested(algorithm)})
    with started(tmp_path / "whole", config) as subject:
        whole = subject.train()
    with started(tmp_path / "halved", config) as subject:
        interrupt_once(subject)
        with pytest.raises(Stopped, match="stopped after step 1 of ppo"):
            subject.train()
    with started(tmp_path / "halved", config) as subject:
        halved = subject.train()
    assert int(whole.updates) == 2
    for got, want in zip(jax.tree.leaves(halved), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_judge_that_fails_for_two_steps_is_counted_and_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with started(tmp_path) as subject:
        subject._judge = BrokenJudge([])
        subject.train()
    assert subject.run.progress.results["test_pass_at_1_after"] is None
    assert (
        "step 1: the judge failed on 100.0% of the completions, which take no part in training; most often: "
        in capsys.readouterr().out
    )


class BrokenJudge(Judge):
    def submit(self, problem: Any, completion: Any) -> Any:
        return super().submit(problem, dataclasses.replace(completion, text="."))


def test_adapters_go_on_with_the_scale_that_they_were_trained_with(tmp_path: Path) -> None:
    def of(alpha: float) -> RunConfig:
        values = to_nested(CONFIG) | {"steps": 1}
        values["model"]["lora"] |= {"rank": 2, "alpha": alpha}
        return from_nested(RunConfig, values)

    for _ in range(2):
        with started(tmp_path, of(4.0)) as subject:
            subject.run.run(subject.recipe_phase())
    (tmp_path / "config.json").write_text(json.dumps(to_nested(of(16.0))))
    words = "scale the adapters by 8, but those of checkpoint 1 were trained with 2"
    with started(tmp_path, of(16.0)) as subject, pytest.raises(CheckpointMismatch, match=words):
        subject.run.run(subject.recipe_phase())


def test_sampling_is_the_same_for_training_and_evaluation(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, rollout=dataclasses.replace(CONFIG.rollout, temperature=0.7, top_k=5))
    with jax.set_mesh(setup.build(config).mesh):
        subject = trainer(tmp_path, config)
    assert subject.sampling(3) == dataclasses.replace(subject.sampling(1), completions_per_prompt=3)
    assert (subject.sampling(1).temperature, subject.sampling(1).top_k) == (0.7, 5)
