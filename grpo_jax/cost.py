"""Works out what a run costs, and what it would cost on another number of accelerators.

python -m grpo_jax.cost --gpus 32 [--ppo_gpus 64] [--days 30 | --steps 1000 --step_seconds 90 | --run FOLDER]

  --gpus N                 accelerators of the run
  --ppo_gpus N             those that PPO would need, to compare with (grpo_jax.memory says what fits)
  --days D                 wall time (default: 30)
  --steps N                with --step_seconds S: wall time of N steps, measured or compiled
  --run FOLDER             a run folder: wall time of its steps, from its own metrics; --steps N takes their mean for N
  --price_per_gpu_hour P   dollars (default: 3.50)
  --utilisation U          share of the rented time in which they work, in (0, 1] (default: 1)
  --watts_per_gpu W        what one draws while it works (default: 700)
  --pue R                  what the building draws over what the machines draw, 1 or more (default: 1.2)
  --dollars_per_kwh K      price of energy; 0 (default): rent includes it
  --json                   JSON in the place of a table

Exit status: 0 done, 2 bad command line or run folder, 3 damaged metrics.
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from absl import flags

from grpo_jax import cli
from grpo_jax.config import ConfigError
from grpo_jax.forensics.cost import Cost
from grpo_jax.io.metrics import read_metrics

HOURS_PER_DAY, SECONDS_PER_HOUR = 24, 3600
MOST = 1e9
"""No input is larger; infinity is refused with what is."""

ROWS = {
    "gpus": ("accelerators", ",.0f"),
    "hours": ("hours", ",.2f"),
    "gpu_hours": ("accelerator hours", ",.0f"),
    "dollars_per_hour": ("$ per hour", ",.2f"),
    "dollars_rent": ("$ rent", ",.0f"),
    "kilowatt_hours": ("kWh", ",.0f"),
    "dollars_energy": ("$ energy", ",.0f"),
    "dollars_total": ("$ in all", ",.0f"),
    "dollars_per_useful_gpu_hour": ("$ per working hour", ",.2f"),
}
"""What a table shows of each figure."""


def main() -> int:
    """Runs the command line; see the module's docstring."""
    if cli.shows_help(__doc__):
        return 0
    values = flags.FlagValues()
    flags.DEFINE_integer("gpus", None, "Accelerators.", lower_bound=1, flag_values=values)
    flags.DEFINE_integer("ppo_gpus", None, "Those that PPO would need.", lower_bound=1, flag_values=values)
    flags.DEFINE_float("days", None, "Wall time.", flag_values=values)
    flags.DEFINE_integer("steps", None, "Steps.", lower_bound=1, flag_values=values)
    flags.DEFINE_float("step_seconds", None, "Seconds of a step.", flag_values=values)
    flags.DEFINE_string("run", None, "A run folder.", flag_values=values)
    flags.DEFINE_float("price_per_gpu_hour", 3.5, "Dollars.", flag_values=values)
    flags.DEFINE_float("utilisation", 1.0, "Share of the time.", flag_values=values)
    flags.DEFINE_float("watts_per_gpu", 700.0, "Watts.", flag_values=values)
    flags.DEFINE_float("pue", 1.2, "Power usage effectiveness.", flag_values=values)
    flags.DEFINE_float("dollars_per_kwh", 0.0, "Dollars.", flag_values=values)
    flags.DEFINE_bool("json", False, "JSON.", flag_values=values)
    command = cli.parse(sys.argv, values, config_required=False)
    given = command.flags
    if command.name or command.overrides:
        raise ConfigError("--config: got a configuration, wanted none: a cost needs numbers of accelerators alone.")
    if given.gpus is None:
        raise ConfigError("--gpus: got none, wanted the number of accelerators. --help shows all flags.")
    _check(given)
    rented_hours = hours(given)
    costs = {"grpo": _cost(given, given.gpus, rented_hours)}
    if given.ppo_gpus is not None:
        costs["ppo"] = _cost(given, given.ppo_gpus, rented_hours)
    figures = {name: cost.figures() for name, cost in costs.items()}
    if given.json:
        saved = costs["ppo"].dollars_total - costs["grpo"].dollars_total if "ppo" in costs else None
        others = {} if saved is None else {"ppo": figures["ppo"], "dollars_saved": saved}
        print(json.dumps(figures["grpo"] | others, indent=2))
    else:
        print(table(figures))
    return 0


RANGES = {
    "days": (lambda value: 0 < value <= MOST, "a positive number"),
    "step_seconds": (lambda value: 0 < value <= MOST, "a positive number"),
    "price_per_gpu_hour": (lambda value: 0 <= value <= MOST, "0 or more"),
    "utilisation": (lambda value: 0 < value <= 1, "a share above 0 and at most 1"),
    "watts_per_gpu": (lambda value: 0 <= value <= MOST, "0 or more"),
    "pue": (lambda value: 1 <= value <= MOST, "1 or more"),
    "dollars_per_kwh": (lambda value: 0 <= value <= MOST, "0 or more"),
}
"""What each flag may be; nothing compares with NaN."""


def _check(given: flags.FlagValues) -> None:
    for name, (fits, wanted) in RANGES.items():
        value = given[name].value
        if value is not None and not fits(value):
            raise ConfigError(f"--{name}: got {value}, wanted {wanted}.")


def hours(given: flags.FlagValues) -> float:
    """Wall time of the run that the flags describe.

    Args:
        given: The command line.

    Returns:
        Hours.

    Raises:
        ConfigError: for flags that say it twice, by half, or a folder without steps.
    """
    if given.days is not None and (given.run or given.steps or given.step_seconds):
        raise ConfigError("--days: got it beside --run, --steps or --step_seconds, wanted one way to say how long.")
    if given.run is not None:
        if given.step_seconds is not None:
            raise ConfigError("--step_seconds: got it beside --run, whose metrics say how long a step takes.")
        seconds = step_seconds(Path(given.run))
        # Each start compiles once, however many steps follow; so a longer run is made of middling steps.
        total = sum(seconds) if given.steps is None else given.steps * statistics.median(seconds)
        return total / SECONDS_PER_HOUR
    if (given.steps is None) != (given.step_seconds is None):
        raise ConfigError("--steps and --step_seconds: got one of them, wanted both.")
    if given.steps is not None:
        return given.steps * given.step_seconds / SECONDS_PER_HOUR
    return HOURS_PER_DAY * (30.0 if given.days is None else given.days)


def step_seconds(folder: Path) -> list[float]:
    """Wall time of each training step of a run.

    Args:
        folder: A run folder.

    Returns:
        Seconds.

    Raises:
        ConfigError: where the folder has no such steps.
    """
    metrics = folder / "metrics.jsonl"
    rows = read_metrics(metrics) if metrics.is_file() else []
    found: list[Any] = [row.get("step_time") for row in rows if row.get("kind") == "train"]
    seconds = [value for value in found if isinstance(value, float) and 0 < value <= MOST]
    if not seconds or len(seconds) < len(found):
        raise ConfigError(
            f"--run: {folder} has no training steps with a step_time in metrics.jsonl, wanted a folder that has some."
        )
    return seconds


def table(figures: dict[str, dict[str, int | float]]) -> str:
    """Figures side by side.

    Args:
        figures: By algorithm.

    Returns:
        Lines of text.
    """
    lines = [" " * 20 + "".join(f"{name.upper():>16}" for name in figures)]
    for name, (label, form) in ROWS.items():
        lines.append(f"{label:<20}" + "".join(f"{values[name]:>16{form}}" for values in figures.values()))
    return "\n".join(lines)


def _cost(given: flags.FlagValues, gpus: int, rented_hours: float) -> Cost:
    return Cost(
        gpus,
        rented_hours,
        given.price_per_gpu_hour,
        given.utilisation,
        given.watts_per_gpu,
        given.pue,
        given.dollars_per_kwh,
    )


if __name__ == "__main__":
    cli.run(main)
