"""Trains a policy.

python -m grpo_jax.train --config configs/quickstart.py [--config.seed=1] [--workdir DIR] [--resume]

The run folder (default: runs/<config>-<time>) gets metrics.jsonl, samples.jsonl, checkpoints, curves.png and
summary.json. The same --workdir goes on where the run in it stopped; --resume goes on with the newest run of
this config. Exit status: 0 done, 2 bad command line or configuration, 3 no usable checkpoint, 4 training is not
finite, 5 the folder is in use, 6 the configuration differs from the folder's.
"""

import importlib.metadata
import logging
import sys
from pathlib import Path

import jax
from absl import flags

import grpo_jax
from grpo_jax import cli
from grpo_jax.config import ConfigError, RunConfig, to_nested
from grpo_jax.io import plots
from grpo_jax.io.display import Display
from grpo_jax.io.metrics import read_metrics, write_summary
from grpo_jax.io.run_folder import RunFolder, default_workdir
from grpo_jax.rollout.jax_engine import JaxEngine
from grpo_jax.training import setup
from grpo_jax.training.loop import Stopped
from grpo_jax.training.trainer import NonFiniteTraining, Trainer
from grpo_jax.verifiers.pool import VerifierPool

MAY_CHANGE = ("steps", "evaluation.*", "checkpoint.*", "mesh.*", "verifier.workers", "verifier.deadline_seconds")
"""Keys that a resumed run may change: none of them alters what was learned so far."""

EXIT_CODES: dict[type[BaseException], int] = {NonFiniteTraining: 4, Stopped: 0}


def main() -> int:
    """Runs the command line; see the module's docstring."""
    if "--help" in sys.argv:
        print(__doc__)
        return 0
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    flag_values = flags.FlagValues()
    flags.DEFINE_string("workdir", None, "Run folder; an existing one goes on.", flag_values=flag_values)
    flags.DEFINE_bool("resume", False, "Go on with the newest run of this config.", flag_values=flag_values)
    command = cli.parse(sys.argv, flag_values)
    parts = setup.build(command.config)
    workdir = _workdir(command)
    with RunFolder.open(
        workdir, to_nested(command.config), overrides=command.overrides, may_change=MAY_CHANGE
    ) as folder:
        train(parts, folder)
    return 0


def train(parts: setup.Parts, folder: RunFolder) -> None:
    """Trains what ``parts`` describes and leaves its records in ``folder``.

    Args:
        parts: From ``setup.build``.
        folder: An open run folder.
    """
    config = parts.config
    engine = JaxEngine(
        parts.spec,
        eos_ids=parts.tokenizer.eos_ids,
        pad_id=parts.tokenizer.pad_id,
        batch_completions=config.rollout.prompts_per_step * config.rollout.completions_per_prompt,
        chunk_tokens=config.rollout.decode_chunk_tokens,
    )
    verifier = config.verifier
    with (
        jax.set_mesh(parts.mesh),
        Display() as display,
        VerifierPool(verifier, verifier.workers, verifier.deadline_seconds) as pool,
    ):
        trainer = Trainer(parts, folder, engine, pool, display)
        trainer.train()
        trainer.run.close()
        _report(trainer, config, folder, display)


def _workdir(command: cli.CommandLine) -> Path:
    if command.flags.workdir is not None:
        workdir = Path(command.flags.workdir)
        if command.flags.resume and not (workdir / "config.json").exists():
            raise ConfigError(f"--resume: {workdir} holds no run to go on with. Leave --resume out to start one there.")
        return workdir
    fresh = default_workdir(command.name)
    if not command.flags.resume:
        return fresh
    runs = sorted(fresh.parent.glob(f"{command.name}-*/config.json"))
    if not runs:
        raise ConfigError(f"--resume: {fresh.parent} holds no run of {command.name}. Leave --resume out to start one.")
    return runs[-1].parent


def _report(trainer: Trainer, config: RunConfig, folder: RunFolder, display: Display) -> None:
    run = trainer.run
    results = run.progress.results
    write_summary(
        folder.summary,
        {
            **results,
            "seed": config.seed,
            "steps": config.steps,
            "seconds": run.seconds,
            "tokens": run.progress.tokens,
            "versions": {"grpo_jax": grpo_jax.__version__, "jax": importlib.metadata.version("jax")},
        },
    )
    plots.plot_curves(read_metrics(folder.metrics), folder.curves)
    shown = [row for row in read_metrics(folder.samples) if row["split"] == "test" and row["step"] == config.steps][:3]
    for row in shown:
        display.note(f"{row['problem']}  ->  {row['completion']}  [{row['reason']}]")
    display.finish(
        [
            ("held-out pass@1 before", f"{results['test_pass_at_1_before']:.3f}"),
            ("held-out pass@1 after", f"{results['test_pass_at_1_after']:.3f}"),
            ("seconds", f"{run.seconds:.0f}"),
            ("summary", str(folder.summary)),
            ("curves", str(folder.curves)),
            ("samples", str(folder.samples)),
        ]
    )


if __name__ == "__main__":
    cli.run(main, EXIT_CODES)
