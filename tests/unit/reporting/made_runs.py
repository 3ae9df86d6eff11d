"""Made run folders, some with text that attacks the page that shows it."""

import json
import random
from pathlib import Path
from typing import Any

from grpo_jax.config import RunConfig, to_nested
from grpo_jax.io.metrics import MetricsWriter, SamplesWriter, write_summary
from grpo_jax.io.run_folder import write_json

ATTACKS = (
    "</script><script>document.title='owned'</script>",
    "<img src=http://attack.invalid/x onerror=\"document.title='owned'\">",
    "<!--<script>",
    "]]></pre></article><iframe src=http://attack.invalid/></iframe>",
    "'\" onmouseover='document.title=1' \u2028\u2029 \\u003cb>",
    "<a href=javascript:document.title='owned'>x</a>",
)

START = {
    "time": "2025-01-31T14:25:01+00:00",
    "argv": ["train", "--config", "<b>x</b>.py"],
    "overrides": {},
    "changes": {"steps": {"before": 10, "now": 30}},
    "git": {"revision": "0123456789abcdef", "dirty": True},
    "versions": {"python": "3.11.7", "jax": "0.10.2"},
    "host": "machine",
    "system": "Linux",
    "device": {"platform": "cpu", "kind": "cpu", "count": 1},
    "processes": 1,
}


def outcomes(rate: float, problems: int, samples: int, seed: int) -> dict[str, Any]:
    """What each problem did, as a run records it."""
    draw = random.Random(seed)
    right = [sum(draw.random() < rate for _ in range(samples)) for _ in range(problems)]
    return {"problems": "0a1b2c3d", "right": right, "judged": [samples] * problems}


def evaluation(split: str, rate: float, seed: int = 0) -> dict[str, Any]:
    """A row of an evaluation."""
    found = outcomes(rate, 40, 4, seed)
    return {"split": split, "eval/pass_at_1": sum(found["right"]) / 160, "eval/problems": 40.0, "outcomes": found}


def training(step: int) -> dict[str, Any]:
    """A row of a training step."""
    return {
        "reward": step / 40,
        "pass_at_1": step / 40,
        "active_group_ratio": 0.5,
        "solved_all": 0.2,
        "solved_some": 0.5,
        "solved_none": 0.3,
        "completions/mean_length": 30.0 + step,
        "completions/clipped_ratio": 0.5,
        "clip_ratio/region_mean": 0.0,
        "learning_rate": 1e-6,
        "num_tokens": 1000.0 * step,
        "step_time": 1.5,
        "seconds/rollout": 1.0,
        "seconds/update": 0.5,
        "memory/host_peak_bytes": 3.0 * 2**30,
        "curriculum/seen": 10.0 * step,
        "curriculum/active": 7.0 * step,
        "curriculum/solved": 2.0 * step,
        "curriculum/hopeless": 1.0 * step,
    }


def make(folder: Path, *, steps: int = 30, finished: bool = True, **changed: Any) -> Path:
    """Writes a run folder as training does."""
    folder.mkdir(parents=True)
    write_json(folder / "config.json", json.loads(json.dumps(to_nested(RunConfig()))) | {"steps": 30, **changed})
    write_json(folder / "run.json", {"starts": [START]})
    metrics, samples = MetricsWriter(folder / "metrics.jsonl"), SamplesWriter(folder / "samples.jsonl")
    metrics.write("evaluation", 0, evaluation("test", 0.3))
    for step in range(1, steps + 1):
        metrics.write("train", step, training(step))
        if step % 10 == 0:
            metrics.write("evaluation", step, evaluation("validation", step / 40, step))
            for index in range(10):
                samples.write(step, sample(index, step))
    if finished:
        metrics.write("evaluation", steps, evaluation("test", 0.8, 1))
        write_summary(folder / "summary.json", {"seconds": 75.0})
    metrics.close()
    samples.close()
    return folder


def sample(index: int, step: int) -> dict[str, Any]:
    """A row of a sample; the first ones are attacks."""
    return {
        "split": "validation",
        "problem": f"problem {index}: 1 < 2 & 3",
        "answer": str(index),
        "completion": ATTACKS[index] if index < len(ATTACKS) else f"the answer is {index} at step {step}",
        "length_tokens": 10 + index,
        "truncated": index == 7,
        "reward": float(index % 2),
        "correct": index % 2 == 1,
        "error": index == 8,
        "parsed": None if index == 0 else ATTACKS[index % len(ATTACKS)],
        "reason": "equal" if index % 2 else "no answer block",
    }
