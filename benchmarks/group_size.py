"""Trains the quickstart with groups of 2, 4, 8 and 16 at equal completions per step, and draws the curves.

python -m benchmarks.group_size [--runs runs/group_size] [--seed 0]

Every run samples 256 completions a step. Finished runs in the folder are used again. Writes
docs/images/group_size.png and docs/group_size.json.
"""

import argparse
import json
from pathlib import Path

from benchmarks.runs import REPOSITORY, finished
from grpo_jax.io.metrics import read_metrics
from grpo_jax.io.plots import plot_runs

COMPLETIONS_PER_STEP = 256
GROUP_SIZES = (2, 4, 8, 16)


def main() -> None:
    """Runs what is missing and writes picture and numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/group_size"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    curves, rows = {}, []
    for size in GROUP_SIZES:
        overrides = {
            "seed": arguments.seed,
            "rollout.completions_per_prompt": size,
            "rollout.prompts_per_step": COMPLETIONS_PER_STEP // size,
        }
        folder = finished(arguments.runs / f"g{size}-{arguments.seed}", "configs/quickstart.py", overrides)
        metrics = read_metrics(folder / "metrics.jsonl")
        summary = json.loads((folder / "summary.json").read_text())
        curves[f"G = {size}"] = metrics
        train = [row for row in metrics if row["kind"] == "train"]
        held_out = {
            row["step"]: round(row["eval/pass_at_1"], 3)
            for row in metrics
            if row["kind"] == "evaluation" and row["split"] == "validation" and row["step"] in (20, 40, 100, 200)
        }
        active = sum(row["active_group_ratio"] for row in train[:40]) / 40
        rows.append(
            {
                "group_size": size,
                "validation_pass_at_1": held_out,
                "test_pass_at_1_after": round(summary["test_pass_at_1_after"], 3),
                "active_group_ratio_first_40_steps": round(active, 3),
                "tokens": summary["tokens"],
                "trained_tokens": round(sum(row["trained_tokens"] for row in train)),
            }
        )
    plot_runs(curves, REPOSITORY / "docs" / "images" / "group_size.png")
    (REPOSITORY / "docs" / "group_size.json").write_text(json.dumps(rows, indent=2) + "\n")
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
