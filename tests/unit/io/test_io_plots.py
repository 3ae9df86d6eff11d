import math

import pytest
from matplotlib.figure import Figure

from grpo_jax.io.plots import plot_curves, plot_runs


def _evaluations(offset=0.0, steps=range(0, 201, 20)):
    return [
        {"kind": "evaluation", "step": step, "split": "validation", "eval/pass_at_1": offset + 0.6 * step / 200}
        for step in steps
    ]


def _training(steps=200):
    return [
        {
            "kind": "train",
            "step": step,
            "reward": 0.3 + 0.5 * step / steps + 0.1 * math.sin(7.0 * step),
            "active_group_ratio": 0.7 - 0.2 * step / steps,
            "completions/mean_length": 30 + 4 * math.sin(step / 9),
            "completions/clipped_ratio": 0.1,
            "entropy": 0.8 * math.exp(-step / 80),
            "kl": None if step == 50 else 1e-3 * step,
            "seconds/rollout": 1.0 + (9 if step == 0 else 0),
            "seconds/verify": 0.1,
            "seconds/prepare": 0.4,
            "seconds/update": 1.8,
        }
        for step in range(steps)
    ]


@pytest.fixture
def figure(monkeypatch):
    """The figure that was written last."""
    written = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (written.append(self), save(self, *a, **k))[1])
    return lambda: written[-1]


def test_all_curves(tmp_path, figure):
    path = tmp_path / "curves.png"
    test_row = {"kind": "evaluation", "step": 200, "split": "test", "eval/pass_at_1": 0.99}
    assert plot_curves([*_evaluations(0.2), *_training(), test_row], path)
    assert path.read_bytes().startswith(b"\x89PNG")
    axes = figure().axes
    assert [a.get_title(loc="left") for a in axes] == [
        "Held-out pass@1",
        "Reward",
        "Active groups",
        "Completion length",
        "Clipped completions",
        "Entropy",
        "KL to the reference",
        "Time of a step",
    ]
    assert all(a.get_xlabel() == "step" and a.get_ylabel() for a in axes)
    initial, curve = axes[0].lines
    assert set(initial.get_ydata()) == {0.2}
    assert curve.get_xdata()[-1] == 200
    assert max(curve.get_ydata()) == pytest.approx(0.8)
    assert len(axes[6].lines[0].get_xdata()) == 199
    assert axes[7].get_ylim()[1] == pytest.approx(1.5 * 3.3)


def test_missing_metrics_get_no_chart(tmp_path, figure):
    assert plot_curves([{"kind": "train", "step": 0, "reward": 1.0, "kl": None}], tmp_path / "curves.png")
    assert [a.get_title(loc="left") for a in figure().axes] == ["Reward"]


def test_nothing_to_draw_writes_nothing(tmp_path):
    path = tmp_path / "curves.png"
    assert not plot_curves([{"kind": "cold_start", "step": 0, "loss": 1.0}], path)
    assert not plot_runs({"seed 0": _training(2)}, path)
    assert not path.exists()


def test_seeds_and_their_mean(tmp_path, figure):
    path = tmp_path / "seeds.png"
    runs = {"seed 0": _evaluations(0.1), "seed 1": _evaluations(0.3, range(0, 101, 20)), "seed 2": []}
    assert plot_runs(runs, path, mean=True)
    assert path.read_bytes().startswith(b"\x89PNG")
    (axes,) = figure().axes
    assert [line.get_label() for line in axes.lines] == ["seed 0", "seed 1", "mean"]
    mean = axes.lines[-1]
    assert list(mean.get_xdata()) == [0, 20, 40, 60, 80, 100]
    assert mean.get_ydata()[0] == pytest.approx(0.2)
