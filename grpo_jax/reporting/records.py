"""What a run folder says of its run."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_jax.config import ConfigError, HealthConfig, RunConfig, from_nested, to_nested
from grpo_jax.io.health import Alarm, alarms_of
from grpo_jax.io.metrics import read_kinds, read_metrics
from grpo_jax.io.run_folder import ABSENT, differences, read_json, read_starts

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """A run as its folder shows it.

    Attributes:
        label: Short name, unique among the runs of a report.
        path: The folder.
        config: The resolved configuration.
        starts: What each start of the run recorded of itself.
        metrics: Rows of metrics.
        samples: Rows of samples.
        summary: The final numbers, or nothing while there are none.
    """

    label: str
    path: Path
    config: Mapping[str, Any]
    starts: Sequence[Mapping[str, Any]]
    metrics: Sequence[Row]
    samples: Sequence[Row]
    summary: Mapping[str, Any]

    @property
    def train(self) -> list[Row]:
        """Rows of the training steps."""
        return [row for row in self.metrics if row["kind"] == "train"]

    def evaluations(self, split: str) -> list[Row]:
        """Rows of the evaluations on a split."""
        return [row for row in self.metrics if row["kind"] == "evaluation" and row.get("split") == split]

    @property
    def test(self) -> tuple[Row | None, Row | None]:
        """The evaluations on the test problems before and after training, as far as they are there."""
        rows = self.evaluations("test")
        before = next((row for row in rows if row["step"] == 0), None)
        after = next((row for row in reversed(rows) if row["step"] > 0), None)
        return before, after

    @property
    def changed_keys(self) -> dict[str, tuple[Any, Any]]:
        """Default and value of the configuration's keys that differ from ``configs/base.py``, by dotted key.

        Keys that are younger than the run are none of them.
        """
        defaults = json.loads(json.dumps(to_nested(RunConfig())))
        return {key: pair for key, pair in differences(defaults, self.config).items() if pair[1] != ABSENT}

    @property
    def alarms(self) -> list[Alarm]:
        """What the run warned of, or would have."""
        return alarms_of(self.metrics, from_nested(HealthConfig, self.config.get("health", {})))

    @property
    def steps_done(self) -> int:
        """The last step of training."""
        return max((row["step"] for row in self.train), default=0)

    @property
    def seconds(self) -> float:
        """Wall seconds, of the steps and evaluations alone while there is no summary."""
        spent = sum(float(row.get("step_time") or row.get("seconds/evaluation") or 0) for row in self.metrics)
        return float(self.summary.get("seconds", spent))


def read_runs(folders: Sequence[Path]) -> list[RunRecord]:
    """Reads run folders, whether their runs are over or not.

    Args:
        folders: One or more.

    Returns:
        The runs in the same order.

    Raises:
        ConfigError: for a folder that holds no run, or one that is named twice.
        RecordsDamaged: for metrics or samples that something else changed.
    """
    resolved = [folder.resolve() for folder in folders]
    if len(set(resolved)) < len(resolved):
        raise ConfigError(f"RUN: got {', '.join(map(str, folders))}, wanted each folder once.")
    short = [folder.name for folder in resolved]
    return [
        _read(folder, folder.name if short.count(folder.name) == 1 else f"{folder.parent.name}/{folder.name}")
        for folder in resolved
    ]


def _read(folder: Path, label: str) -> RunRecord:
    if not (folder / "config.json").is_file():
        raise ConfigError(f"RUN: got {folder}, wanted a run folder: it has no config.json.")
    readers = {"metrics.jsonl": read_kinds, "samples.jsonl": read_metrics}
    rows = [read(path) if (path := folder / name).is_file() else [] for name, read in readers.items()]
    return RunRecord(
        label=label,
        path=folder,
        config=_json(folder / "config.json"),
        starts=read_starts(path) if (path := folder / "run.json").is_file() else [],
        metrics=rows[0],
        samples=rows[1],
        summary=_json(folder / "summary.json"),
    )


def _json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}
