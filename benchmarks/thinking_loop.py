"""Trains configs/thinking_loop.py with and without length control, and draws length, repetition and accuracy.

python -m benchmarks.thinking_loop [--runs runs/thinking_loop] [--seeds 0 1]

Finished runs in the folder are used again. Writes docs/images/thinking_loop.png and docs/thinking_loop.json.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.runs import REPOSITORY, finished
from grpo_jax.io.metrics import read_metrics

CONFIG = "configs/thinking_loop.py"
VARIANTS = {"unregularised": CONFIG, "regularised": f"{CONFIG}:regularised"}
COLORS = {"unregularised": "#e07b39", "regularised": "#2a6fbb"}
PANELS = (
    ("Completion length", "completions/mean_length", "tokens", "train"),
    ("Repeated 8-grams", "completions/repeated_ngram_share", "share of a completion", "train"),
    ("Held-out pass@1", "eval/pass_at_1", "share of problems", "evaluation"),
)
WINDOW_STEPS = 5

Rows = Sequence[Mapping[str, Any]]


def main() -> None:
    """Runs what is missing and writes picture and numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/thinking_loop"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    arguments = parser.parse_args()
    curves, rows = {}, []
    for seed in arguments.seeds:
        for variant, config in VARIANTS.items():
            folder = finished(arguments.runs / f"{variant}-{seed}", config, {"seed": seed})
            metrics = read_metrics(folder / "metrics.jsonl")
            curves[variant, seed] = metrics
            summary = json.loads((folder / "summary.json").read_text())
            rows.append({"variant": variant, "seed": seed, **figures(metrics, summary)})
    draw(curves, REPOSITORY / "docs" / "images" / "thinking_loop.png")
    (REPOSITORY / "docs" / "thinking_loop.json").write_text(json.dumps(rows, indent=2) + "\n")
    print(json.dumps(rows, indent=2))


def figures(metrics: Rows, summary: Mapping[str, Any]) -> dict[str, Any]:
    """What a run comes to: from the first to the last steps on training problems, before and after on test problems.

    Args:
        metrics: All rows of the run.
        summary: Its summary.

    Returns:
        Numbers for the table, ``[start, end]`` where there are two.
    """
    train = [row for row in metrics if row["kind"] == "train"]
    tests = [row for row in metrics if row["kind"] == "evaluation" and row["split"] == "test"]
    ends = (train[:WINDOW_STEPS], train[-WINDOW_STEPS:])

    def averages(name: str, decimals: int) -> list[float]:
        return [round(math.fsum(row[name] for row in rows) / len(rows), decimals) for rows in ends]

    return {
        "mean_length": averages("completions/mean_length", 1),
        "repeated_ngram_share": averages("completions/repeated_ngram_share", 3),
        "longest_loop_tokens": averages("completions/longest_loop_mean", 1),
        "clipped_ratio": averages("completions/clipped_ratio", 3),
        "test_pass_at_1": [round(row["eval/pass_at_1"], 3) for row in tests],
        "test_mean_length": [round(row["eval/mean_length"], 1) for row in tests],
        "validation_pass_at_1": {
            row["step"]: round(row["eval/pass_at_1"], 3)
            for row in metrics
            if row["kind"] == "evaluation" and row["split"] == "validation"
        },
        "sampled_tokens": summary["tokens"],
        "wall_seconds": round(summary["seconds"]),
    }


def draw(curves: Mapping[tuple[str, int], Rows], path: Path) -> None:
    """Draws each panel against the step: training metrics as means of a few steps, one line for each run.

    Args:
        curves: Rows by variant and seed.
        path: The PNG, replaced if it exists.
    """
    figure = Figure(figsize=(4.0 * len(PANELS), 3.2), layout="constrained", dpi=120)
    for index, (title, metric, unit, kind) in enumerate(PANELS, start=1):
        axes = figure.add_subplot(1, len(PANELS), index)
        for number, ((variant, _), metrics) in enumerate(curves.items()):
            chosen = [row for row in metrics if row["kind"] == kind and row.get("split") != "test"]
            steps, values = [row["step"] for row in chosen], [row[metric] for row in chosen]
            window = WINDOW_STEPS if kind == "train" else 1
            means = [math.fsum(values[i : i + window]) / window for i in range(len(values) - window + 1)]
            label = variant if number < len(VARIANTS) else None
            axes.plot(steps[window - 1 :], means, color=COLORS[variant], linewidth=1.5, alpha=0.85, label=label)
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xlabel("step", fontsize=8)
        axes.set_ylabel(unit, fontsize=8)
        axes.set_ylim(0, 1 if kind == "evaluation" else None)
        axes.tick_params(labelsize=7)
        axes.grid(color="#e6e6e6", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False, fontsize=8)
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png")


if __name__ == "__main__":
    main()
