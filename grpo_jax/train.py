"""Trains a policy.

python -m grpo_jax.train --config FILE.py[:ARGUMENT] [--config.KEY=VALUE ...] [--workdir DIR] [--resume]
                         [--changed_reward] [--dry_run]

  --config FILE.py      a file with get_config() -> ml_collections.ConfigDict; keys that it leaves out have the
                        defaults of configs/base.py, which lists them all
  --config.a.b=value    changes one key; sequences as --config.verifier.rewards="('numeric', 'format')"
  --workdir DIR         run folder (default: runs/<config>-<time>); one that holds a run goes on where it stopped
  --resume              goes on with the newest run of this config in runs/; give the same overrides again
  --changed_reward      goes on although the file of verifier.function or verifier.environment has changed since
  --dry_run             checks everything, compiles the run's programs, prints what the run is, what it needs in
                        memory and time, and stops; status 2 if the devices have no room for it

  --stopped_status N    exit status after SIGTERM or Ctrl-C, when the state is saved (default: 0); 75 where a scheduler
                        takes machines away and starts again what has failed

One process trains on the devices it sees. Several, usually one for each host, are started with the same command and
work on one mesh; each judges its share of the completions, and the first one writes the records:

  --distributed         this process is one of a Slurm, Open MPI, TPU pod or Kubernetes job, which knows the others
  --coordinator_address HOST:PORT --num_processes N --process_id I     the same for processes started in another way

The run folder gets config.json, run.json (versions, overrides, git revision), metrics.jsonl, samples.jsonl,
checkpoints, curves.png, summary.json and report.html; rewards.json where rewards are your own. Ctrl-C or SIGTERM stops
after the step at hand and saves; a second one ends at once. Exit status: 0 done or stopped and saved, 2 bad command
line or configuration, 3 no usable checkpoint or record, 4 training is not finite, 5 the folder is in use, 6
configuration, data or rewards differ from the folder's, 7 a file cannot be written, 74 nothing happened for longer than
config.watchdog allows, 75 another process of the run was lost. After 74, 75, 134 (aborted) and 137 (killed) the same
command goes on from the newest checkpoint, and launch/supervisor.py gives it again.
"""

import contextlib
import importlib.metadata
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import jax
from absl import flags

import grpo_jax
from grpo_jax import cli, planning
from grpo_jax.config import ConfigError, RunConfig, to_nested
from grpo_jax.io import plots, reward_code, trackers
from grpo_jax.io.display import Display
from grpo_jax.io.health import alarms_of
from grpo_jax.io.metrics import read_metrics, write_summary
from grpo_jax.io.run_folder import RunFolder, read_json
from grpo_jax.io.run_names import RUNS, fresh_workdir, newest_workdir
from grpo_jax.parallel import distributed, exchange
from grpo_jax.parallel.mesh import found_devices
from grpo_jax.reporting.page import REPORT, write_report
from grpo_jax.rollout.jax_engine import JaxEngine
from grpo_jax.training import setup
from grpo_jax.training.loop import Stopped, require_steps_to_come
from grpo_jax.training.trainer import Trainer
from grpo_jax.training.watchdog import Watchdog
from grpo_jax.verifiers.pool import VerifierPool, open_pool

MAY_CHANGE = (
    "steps",
    "evaluation.*",
    "checkpoint.*",
    "health.*",
    "trackers",
    "mesh.*",
    "watchdog.*",
    "verifier.workers",
    "verifier.deadline_seconds",
)
"""Keys that a resumed run may change: none of them alters what was learned so far."""


def main() -> int:
    """Runs the command line; see the module's docstring."""
    if cli.shows_help(__doc__):
        return 0
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    flag_values = flags.FlagValues()
    flags.DEFINE_string("workdir", None, "Run folder; an existing one goes on.", flag_values=flag_values)
    flags.DEFINE_bool("resume", False, "Go on with the newest run of this config.", flag_values=flag_values)
    flags.DEFINE_bool("changed_reward", False, "Go on with other code of the rewards.", flag_values=flag_values)
    flags.DEFINE_bool("dry_run", False, "Print what the run is and needs, and stop.", flag_values=flag_values)
    flags.DEFINE_integer("stopped_status", 0, "Of a run asked to end.", 0, 255, flag_values=flag_values)
    _define_processes(flag_values)
    command = cli.parse(sys.argv, flag_values)
    command.config.watchdog.validate("watchdog")
    names = ("coordinator_address", "num_processes", "process_id")
    address = {name: flag_values[name].value for name in names}
    distributed.start(command.config.watchdog, **address, detect=bool(flag_values["distributed"].value))
    found_devices()  # What leaves at once has to know how many processes there are.
    try:
        with distributed.leaving_at_once():
            return _run(command)
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return command.flags.stopped_status


def _define_processes(flag_values: flags.FlagValues) -> None:
    flags.DEFINE_bool("distributed", False, "One process of a job that knows the others.", flag_values=flag_values)
    flags.DEFINE_string("coordinator_address", None, "host:port of process 0.", flag_values=flag_values)
    flags.DEFINE_integer("num_processes", None, "Processes of this run.", flag_values=flag_values)
    flags.DEFINE_integer("process_id", None, "Which of them this one is.", flag_values=flag_values)


def _run(command: cli.CommandLine) -> int:
    parts = exchange.together(lambda: setup.build(command.config))
    exchange.require_same({**setup.facts(parts), "--dry_run": command.flags.dry_run})
    exchange.on_first(lambda: trackers.check_installed(command.config.trackers))
    if command.flags.dry_run:
        for line in planning.lines(parts):
            if exchange.is_first():
                print(line)
        return 0
    workdir = Path(exchange.on_first(lambda: str(_workdir(command))))
    if exchange.on_first(lambda: _finished(workdir, command.config)):
        if exchange.is_first():
            print(f"{workdir} is finished: {workdir / 'summary.json'} has its results. Raise --config.steps to go on.")
        return 0
    with open_pool(command.config.verifier) as pool:
        # A verifier that cannot work leaves no folder behind, which would hold the user to a wrong configuration.
        facts = exchange.together(pool.wait_until_ready)
        exchange.require_same(reward_code.own(facts))
        with contextlib.ExitStack() as held:
            folder = _open_folder(workdir, command, facts, held)
            reason = _exhaustion(lambda: train(parts, folder, pool, facts))
    if reason is not None:
        raise cli.OutOfMemory(f"out of memory: {reason}\n{planning.explain_exhaustion(command.config)}")
    return 0


def _exhaustion(run: Callable[[], None]) -> str | None:
    """Runs something, and gives the reason if the devices had no memory for it: what it held there is free by then."""
    try:
        run()
    except Exception as error:
        if not cli.exhausted(error):
            raise
        return str(error).partition("\n")[0]
    return None


def _open_folder(
    workdir: Path, command: cli.CommandLine, facts: Mapping[str, str], held: contextlib.ExitStack
) -> RunFolder:
    """The run's folder, which the first process holds."""

    def first() -> None:
        require_steps_to_come(workdir, command.config)
        config = to_nested(command.config)
        opened.append(RunFolder.open(workdir, config, overrides=command.overrides, may_change=MAY_CHANGE))
        held.enter_context(opened[0])
        reward_code.require_same(workdir, facts, accept=command.flags.changed_reward)

    opened: list[RunFolder] = []
    exchange.on_first(first)
    return exchange.together(lambda: opened[0] if opened else RunFolder.of_first_process(workdir))


def train(parts: setup.Parts, folder: RunFolder, pool: VerifierPool, facts: Mapping[str, str]) -> None:
    """Trains what ``parts`` describes and leaves its records in ``folder``.

    Args:
        parts: From ``setup.build``.
        folder: An open run folder.
        pool: Judges completions.
        facts: What its verifiers say of themselves.
    """
    config = parts.config
    engine = JaxEngine(
        parts.spec,
        eos_ids=parts.tokenizer.eos_ids,
        pad_id=parts.tokenizer.pad_id,
        batch_completions=config.rollout.prompts_at_once * config.rollout.completions_per_prompt,
        chunk_tokens=config.rollout.decode_chunk_tokens,
        record_experts=config.algorithm.router_replay,
        tokenizer=parts.tokenizer,
    )
    silent = not exchange.is_first()
    with jax.set_mesh(parts.mesh), Display(silent=silent) as display, Watchdog(config.watchdog) as watchdog:
        _announce(parts, folder, display, facts)
        trainer = Trainer(parts, folder, engine, pool, display, watchdog)
        with _recording(trainer, config, folder, display), distributed.leaving_at_once():
            trainer.train()
            watchdog.beat("save")
            if exchange.is_first():
                _summarise(trainer, config, folder)
        if exchange.is_first():
            _show(trainer, config, folder, display)
        distributed.barrier("end")


@contextlib.contextmanager
def _recording(trainer: Trainer, config: RunConfig, folder: RunFolder, display: Display) -> Iterator[None]:
    """Trackers follow the run, and it gets a report however it ends; the first process sees to both."""
    followers = []
    if exchange.is_first():
        rows = read_metrics(folder.metrics)
        followers = trackers.follow(config.trackers, folder, to_nested(config), rows, display.note)
        trainer.run.metrics.followers += [follower.send for follower in followers]

    def report() -> None:
        if exchange.is_first():
            write_report(folder.path)

    with contextlib.ExitStack() as ending:
        # A run that was stopped or has failed is what a report is wanted of most.
        ending.callback(report)
        for follower in followers:
            ending.callback(follower.close)
        ending.callback(trainer.run.close)
        ending.enter_context(distributed.before_leaving(report))
        yield


def _workdir(command: cli.CommandLine) -> Path:
    if command.flags.workdir is not None:
        if not command.flags.workdir:
            raise ConfigError("--workdir: got nothing, wanted a folder. Is a variable of the shell unset?")
        workdir = Path(command.flags.workdir)
        if command.flags.resume and not (workdir / "config.json").exists():
            raise ConfigError(f"--resume: {workdir} holds no run to go on with. Leave --resume out to start one there.")
        return workdir
    if not command.flags.resume:
        return fresh_workdir(command.name)
    newest = newest_workdir(command.name)
    if newest is None:
        raise ConfigError(
            f"--resume: {RUNS} holds no folder {command.name}-<time>. Name another folder with --workdir, or leave "
            "--resume out to start a run."
        )
    return newest


def _finished(workdir: Path, config: RunConfig) -> bool:
    """Whether the folder holds this run, whole."""
    summary, made_with = workdir / "summary.json", workdir / "config.json"
    if not summary.exists() or not made_with.exists():
        return False
    return bool(read_json(summary)) and read_json(made_with) == json.loads(json.dumps(to_nested(config)))


def _announce(parts: setup.Parts, folder: RunFolder, display: Display, facts: Mapping[str, str]) -> None:
    display.note(f"run folder   {folder.path}")
    for name, line in planning.described(parts).items():
        display.note(f"{name:<12} {line}")
    for name, fact in facts.items():
        display.note(f"{name:<12} {fact}")
    display.note("the first step of each phase compiles")


def _summarise(trainer: Trainer, config: RunConfig, folder: RunFolder) -> None:
    run = trainer.run
    results, metrics = run.progress.results, read_metrics(folder.metrics)
    write_summary(
        folder.summary,
        {
            **results,
            "validation_pass_at_1_best": results.get("validation_pass_at_1_best"),
            "seed": config.seed,
            "steps": config.steps,
            "seconds": run.seconds,
            "tokens": run.progress.tokens,
            "judge_errors": sum(row.get("verifier/errors", 0) for row in metrics),
            "warnings": [alarm.record() for alarm in alarms_of(metrics, config.health)],
            "versions": {
                "grpo_jax": grpo_jax.__version__,
                **{name: importlib.metadata.version(name) for name in ("jax", "flax", "optax", "numpy")},
            },
        },
    )
    plots.plot_curves(metrics, folder.curves)


def _show(trainer: Trainer, config: RunConfig, folder: RunFolder, display: Display) -> None:
    run, results = trainer.run, trainer.run.progress.results
    shown = [row for row in read_metrics(folder.samples) if row["split"] == "test" and row["step"] == config.steps][:3]
    for row in shown:
        display.note(f"{row['problem']}  ->  {row['completion']}  [{row['reason']}]")
    display.finish(
        [
            *((f"held-out pass@1 {when}", _rate(results[f"test_pass_at_1_{when}"])) for when in ("before", "after")),
            ("seconds", f"{run.seconds:.0f}"),
            ("report", str(folder.path / REPORT)),
            ("summary", str(folder.summary)),
            ("samples", str(folder.samples)),
        ]
    )


def _rate(value: float | None) -> str:
    return "nothing could be judged" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    cli.run(main)
