"""What the trainer watches: nothing to learn from, and gradients that are not finite."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from grpo_jax.config import RunConfig, from_nested, to_nested
from grpo_jax.io.display import Display
from grpo_jax.io.run_folder import RunFolder
from grpo_jax.rollout.jax_engine import JaxEngine
from grpo_jax.training import setup
from grpo_jax.training.trainer import NonFiniteTraining, Trainer
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
    run_folder = RunFolder.open(folder, to_nested(config), overrides={})
    return Trainer(parts, run_folder, engine, Judge([]), Display())


def test_a_batch_without_a_right_answer_is_reported_and_moves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with jax.set_mesh(setup.build(CONFIG).mesh):
        subject = trainer(tmp_path, CONFIG)
        state = subject.train()
    assert int(state.updates) == 0
    output = capsys.readouterr().out
    assert "step 1: 100% of the groups have no right answer" in output
    assert subject.run.progress.results["test_pass_at_1_after"] == 0.0


def test_nonfinite_updates_in_a_row_stop_the_run(tmp_path: Path) -> None:
    subject = SimpleNamespace(run=SimpleNamespace(progress=SimpleNamespace(nonfinite_in_a_row=0)), config=CONFIG)
    watch: Any = Trainer._watch_nonfinite
    watch(subject, {"nonfinite_update": 1.0})
    watch(subject, {"nonfinite_update": 0.0})
    watch(subject, {"nonfinite_update": 1.0})
    with pytest.raises(NonFiniteTraining, match=r"2 updates in a row .* Lower optimizer\.learning_rate"):
        watch(subject, {"nonfinite_update": 1.0})


def test_sampling_is_the_same_for_training_and_evaluation(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, rollout=dataclasses.replace(CONFIG.rollout, temperature=0.7, top_k=5))
    with jax.set_mesh(setup.build(config).mesh):
        subject = trainer(tmp_path, config)
    assert subject.sampling(3) == dataclasses.replace(subject.sampling(1), completions_per_prompt=3)
    assert (subject.sampling(1).temperature, subject.sampling(1).top_k) == (0.7, 5)
