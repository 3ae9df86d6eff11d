import json
import re

import pytest

from grpo_jax import cost
from grpo_jax.config import ConfigError
from grpo_jax.io.metrics import MetricsWriter


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["cost", *arguments])
    assert cost.main() == 0
    return capsys.readouterr().out


def test_published_figures(monkeypatch, capsys):
    figures = json.loads(run(monkeypatch, capsys, "--gpus=32", "--ppo_gpus=64", "--days=30", "--json"))
    assert (figures["dollars_per_hour"], figures["dollars_total"], figures["gpu_hours"]) == (112, 80_640, 23_040)
    assert (figures["ppo"]["dollars_per_hour"], figures["ppo"]["dollars_total"]) == (224, 161_280)
    assert figures["dollars_saved"] == 80_640
    alone = json.loads(run(monkeypatch, capsys, "--gpus=64", "--price_per_gpu_hour=3.5", "--days=30", "--json"))
    assert (alone["dollars_per_hour"], alone["dollars_total"]) == (224, 161_280)
    assert "ppo" not in alone


def test_energy_and_utilisation(monkeypatch, capsys):
    arguments = ["--gpus=10", "--days=1", "--price_per_gpu_hour=2", "--utilisation=0.5", "--watts_per_gpu=1000"]
    figures = json.loads(run(monkeypatch, capsys, *arguments, "--pue=1.5", "--dollars_per_kwh=0.1", "--json"))
    assert figures["kilowatt_hours"] == pytest.approx(10 * 24 * 0.5 * 1.5)
    assert figures["dollars_energy"] == pytest.approx(18)
    assert figures["dollars_total"] == pytest.approx(480 + 18)
    assert figures["dollars_per_useful_gpu_hour"] == pytest.approx(498 / 120)


def test_time_from_steps_and_from_a_run(monkeypatch, capsys, tmp_path):
    figures = json.loads(run(monkeypatch, capsys, "--gpus=2", "--steps=100", "--step_seconds=36", "--json"))
    assert figures["hours"] == pytest.approx(1)
    writer = MetricsWriter(tmp_path / "metrics.jsonl")
    writer.write("cold_start", 1, {"step_time": 99.0})
    for step, seconds in ((1, 40.0), (2, 2.0), (3, 1.0)):  # the first one compiles
        writer.write("train", step, {"step_time": seconds})
    writer.close()
    figures = json.loads(run(monkeypatch, capsys, "--gpus=1", f"--run={tmp_path}", "--json"))
    assert figures["hours"] == pytest.approx(43 / 3600)
    figures = json.loads(run(monkeypatch, capsys, "--gpus=1", f"--run={tmp_path}", "--steps=30", "--json"))
    assert figures["hours"] == pytest.approx(60 / 3600)


def test_the_table(monkeypatch, capsys):
    lines = run(monkeypatch, capsys, "--gpus=32", "--ppo_gpus=64").splitlines()
    assert lines[0].split() == ["GRPO", "PPO"]
    assert len(lines) == 1 + len(cost.ROWS)
    assert re.search(r"\$ in all +80,640 +161,280", "\n".join(lines))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"--gpus: got none, wanted the number"),
        (["--gpus=0"], r"gpus.*0"),
        (["--gpus=1", "--utilisation=0"], r"--utilisation: got 0\.0, wanted a share above 0"),
        (["--gpus=1", "--days=0"], r"--days: got 0\.0, wanted a positive number"),
        (["--gpus=1", "--days=inf"], r"--days: got inf, wanted a positive number"),
        (["--gpus=1", "--pue=nan"], r"--pue: got nan, wanted 1 or more"),
        (["--gpus=1", "--steps=1", "--step_seconds=0"], r"--step_seconds: got 0\.0, wanted a positive"),
        (["--gpus=1", "--days=1", "--steps=3"], r"--days: got it beside"),
        (["--gpus=1", "--steps=3"], r"--steps and --step_seconds: got one of them"),
        (["--gpus=1", "--run=nowhere"], r"--run: nowhere has no training steps with"),
        (["--gpus=1", "--run=nowhere", "--step_seconds=1"], r"--step_seconds: got it beside --run"),
        (["--gpus=1", "--config.steps=3"], r"--config: got a configuration, wanted none"),
    ],
)
def test_what_cannot_be_worked_out_is_refused(monkeypatch, arguments, message):
    monkeypatch.setattr("sys.argv", ["cost", *arguments])
    with pytest.raises(ConfigError, match=message):
        cost.main()
