"""Runs a configuration for several seeds and makes the figures of docs/quickstart.md.

python -m benchmarks.quickstart_seeds [--seeds 0 1 2] [--runs runs/seeds] [--config configs/quickstart.py]
    [--name quickstart_seeds] [--steps 0 20 40]

Finished runs in the folder are used again. Writes docs/images/NAME.png, and docs/NAME.json with the held-out pass rates
at those steps.
"""

import argparse
import json
from pathlib import Path

from benchmarks.runs import REPOSITORY, finished
from grpo_jax.io.metrics import read_metrics
from grpo_jax.io.plots import plot_runs

QUICKSTART_STEPS = (0, 20, 40, 80, 120, 160, 200)


def main() -> None:
    """Runs what is missing and writes picture and numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs/seeds"))
    parser.add_argument("--config", default="configs/quickstart.py")
    parser.add_argument("--name", default="quickstart_seeds")
    parser.add_argument("--steps", type=int, nargs="+", default=QUICKSTART_STEPS)
    arguments = parser.parse_args()
    curves, rows = {}, []
    for seed in arguments.seeds:
        folder = arguments.runs / f"{Path(arguments.config).stem}-{seed}"
        finished(folder, arguments.config, {"seed": seed})
        metrics = read_metrics(folder / "metrics.jsonl")
        summary = json.loads((folder / "summary.json").read_text())
        resources = json.loads((folder / "resources.json").read_text())
        curves[f"seed {seed}"] = metrics
        held_out = {
            row["step"]: round(row["eval/pass_at_1"], 3)
            for row in metrics
            if row["kind"] == "evaluation" and row["split"] == "validation" and row["step"] in arguments.steps
        }
        train = [row for row in metrics if row["kind"] == "train"]
        sampled = sum(row["trained_tokens"] + row["saved_tokens"] for row in train)
        rows.append(
            {
                "seed": seed,
                "validation_pass_at_1": held_out,
                "test_pass_at_1_before": round(summary["test_pass_at_1_before"], 3),
                "test_pass_at_1_after": round(summary["test_pass_at_1_after"], 3),
                "saved_token_share": round(sum(row["saved_tokens"] for row in train) / sampled, 3),
                "mean_length_first_and_last": [round(train[i]["completions/mean_length"], 1) for i in (0, -1)],
                "wall_seconds": round(summary["seconds"]),
                "cpu_seconds": resources["cpu_seconds"],
                "peak_gigabytes": round(resources["peak_bytes"] / 1e9, 2),
            }
        )
    plot_runs(curves, REPOSITORY / "docs" / "images" / f"{arguments.name}.png", mean=True)
    (REPOSITORY / "docs" / f"{arguments.name}.json").write_text(json.dumps(rows, indent=2) + "\n")
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
