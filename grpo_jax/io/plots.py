"""Pictures of a run's metrics: one PNG with a small chart for each thing worth watching."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from grpo_jax.io.storage import writing

Rows = Sequence[Mapping[str, Any]]

_COLORS = ("#2a6fbb", "#e07b39", "#3f9c6d", "#a05195", "#8a6d3b", "#4fb3bf", "#c44e52", "#6b6b6b")
_INK = "#333333"
_PHASES = ("rollout", "verify", "prepare", "update")
_COLUMNS = 4


@dataclasses.dataclass(frozen=True)
class _Panel:
    title: str
    metric: str
    unit: str
    limits: tuple[float | None, float | None] = (None, None)
    kind: Literal["train", "evaluation"] = "train"


_PANELS = (
    _Panel("Held-out pass@1", "eval/pass_at_1", "share of problems", (0.0, 1.0), "evaluation"),
    _Panel("Reward", "reward", "mean reward"),
    _Panel("Active groups", "active_group_ratio", "share of groups", (0.0, 1.0)),
    _Panel("Completion length", "completions/mean_length", "mean length (tokens)", (0.0, None)),
    _Panel("Clipped completions", "completions/clipped_ratio", "share of completions", (0.0, 1.0)),
    _Panel("Entropy", "entropy", "nats per token", (0.0, None)),
    _Panel("KL to the reference", "kl", "nats per token"),
)


def plot_curves(metrics: Rows, path: Path) -> bool:
    """Draws a run's curves as small charts in one PNG; a metric without numbers gets no chart.

    Args:
        metrics: Rows as ``read_metrics`` returns them.
        path: The PNG, replaced if it exists.

    Returns:
        False if there was nothing to draw, and then no file is written.
    """
    curves = [(panel, *_series(metrics, panel.kind, panel.metric)) for panel in _PANELS]
    curves = [curve for curve in curves if curve[1]]
    seconds_rows = [row for row in metrics if row["kind"] == "train" and any(f"seconds/{p}" in row for p in _PHASES)]
    count = len(curves) + bool(seconds_rows)
    if count == 0:
        return False
    columns = min(count, _COLUMNS)
    lines = math.ceil(count / columns)
    figure = Figure(figsize=(3.9 * columns, 2.9 * lines), layout="constrained", dpi=120)
    for index, (panel, steps, values) in enumerate(curves, start=1):
        axes = figure.add_subplot(lines, columns, index)
        if panel.kind == "evaluation":
            _draw_evaluations(axes, steps, values)
        else:
            _draw_training(axes, steps, values)
        _finish(axes, panel.title, panel.unit, panel.limits)
    if seconds_rows:
        _draw_seconds(figure.add_subplot(lines, columns, count), seconds_rows)
    _save(figure, path)
    return True


def plot_runs(runs: Mapping[str, Rows], path: Path, *, mean: bool = False) -> bool:
    """Draws held-out pass@1 of several runs against the step.

    Args:
        runs: Rows as ``read_metrics`` returns them, by label (``"seed 0"``).
        path: The PNG, replaced if it exists.
        mean: Draw the mean of the runs too, as for seeds of one config.

    Returns:
        False if no run has an evaluation, and then no file is written.
    """
    curves = {label: _series(rows, "evaluation", "eval/pass_at_1") for label, rows in runs.items()}
    curves = {label: curve for label, curve in curves.items() if curve[0]}
    if not curves:
        return False
    figure = Figure(figsize=(6.4, 4.0), layout="constrained", dpi=120)
    axes = figure.add_subplot()
    for index, (label, (steps, values)) in enumerate(curves.items()):
        axes.plot(steps, values, color=_COLORS[index % len(_COLORS)], linewidth=1.2, alpha=0.8, label=label)
    by_step = [dict(zip(steps, values, strict=True)) for steps, values in curves.values()]
    shared = sorted(set.intersection(*(set(values) for values in by_step)))
    if mean and shared:
        means = [math.fsum(values[step] for values in by_step) / len(by_step) for step in shared]
        axes.plot(shared, means, color=_INK, linewidth=2.4, label="mean")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    _finish(axes, "Held-out pass@1", "share of problems", (0.0, 1.0))
    _save(figure, path)
    return True


def _series(rows: Rows, kind: str, metric: str) -> tuple[list[int], list[float]]:
    """Steps and values of one metric; held-out curves leave out the final test split."""
    chosen = [row for row in rows if row["kind"] == kind and row.get(metric) is not None and row.get("split") != "test"]
    return [row["step"] for row in chosen], [float(row[metric]) for row in chosen]


def _draw_evaluations(axes: Axes, steps: list[int], values: list[float]) -> None:
    axes.axhline(values[0], color="#999999", linewidth=1, linestyle="--")
    axes.annotate(
        f"initial {values[0]:.3f}",
        (1, values[0]),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 3),
        textcoords="offset points",
        ha="right",
        fontsize=7,
        color="#777777",
    )
    axes.plot(steps, values, color=_COLORS[0], linewidth=1.8, marker="o", markersize=3)


def _draw_training(axes: Axes, steps: list[int], values: list[float]) -> None:
    window = max(1, len(values) // 20)
    if window == 1:
        axes.plot(steps, values, color=_COLORS[0], linewidth=1.4, marker="o" if len(values) == 1 else "")
        return
    axes.plot(steps, values, color=_COLORS[0], linewidth=0.7, alpha=0.3)
    means = [math.fsum(values[i + 1 - window : i + 1]) / window for i in range(window - 1, len(values))]
    axes.plot(steps[window - 1 :], means, color=_COLORS[0], linewidth=1.6, label=f"mean of {window} steps")
    axes.legend(frameon=False, fontsize=7, loc="best")


def _draw_seconds(axes: Axes, rows: list[Mapping[str, Any]]) -> None:
    phases = [phase for phase in _PHASES if any(row.get(f"seconds/{phase}") for row in rows)]
    steps = [row["step"] for row in rows]
    layers = [[float(row.get(f"seconds/{phase}") or 0) for row in rows] for phase in phases]
    axes.stackplot(steps, layers, labels=phases, colors=_COLORS[: len(phases)], alpha=0.85, linewidth=0)
    axes.legend(frameon=False, fontsize=7, loc="upper right", ncols=2)
    # The first step compiles and would flatten all others.
    totals = sorted(map(math.fsum, zip(*layers, strict=True)))
    typical = totals[int(0.95 * (len(totals) - 1))] if totals else 0
    _finish(axes, "Time of a step", "seconds", (0.0, 1.5 * typical if typical > 0 else None))


def _finish(axes: Axes, title: str, unit: str, limits: tuple[float | None, float | None]) -> None:
    axes.set_title(title, fontsize=10, color=_INK, loc="left")
    axes.set_xlabel("step", fontsize=8, color=_INK)
    axes.set_ylabel(unit, fontsize=8, color=_INK)
    axes.set_ylim(*limits)
    axes.tick_params(labelsize=7, colors=_INK, length=2)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.grid(color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#bbbbbb")


def _save(figure: Figure, path: Path) -> None:
    FigureCanvasAgg(figure)
    with writing(path):
        figure.savefig(path, format="png")
