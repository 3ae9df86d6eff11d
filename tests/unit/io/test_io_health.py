"""Warnings: each symptom on a made history, and none on recorded runs that went well."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from grpo_jax.config import ConfigError, HealthConfig, RunConfig, from_nested, require_key
from grpo_jax.io import symptoms
from grpo_jax.io.health import QUIET_STEPS, Monitor, alarms_of
from grpo_jax.io.history import History
from grpo_jax.io.symptoms import SYMPTOMS

RUNS = Path(__file__).with_name("runs")
HEALTHY = {
    "pass_at_1": 0.5,
    "reward": 0.5,
    "active_group_ratio": 0.8,
    "solved_none": 0.1,
    "completions/mean_length": 30.0,
    "completions/clipped_ratio": 0.02,
    "completions/repeated_ngram_share": 0.01,
    "entropy": 0.3,
    "kl": 0.02,
    "clip_ratio/region_mean": 0.05,
    "sampling/sampling_logp_difference/mean": 0.001,
    "verifier/error_share": 0.0,
}


def recorded(name):
    """A run of the training command, thinned to what symptoms read and to three digits."""
    table = json.loads((RUNS / f"{name}.json").read_text())
    return [
        {column: value for column, value in zip(table["columns"], row, strict=True) if value is not None}
        for row in table["rows"]
    ]


def history(*stretches):
    """Training rows: each stretch is a number of steps and what differs from the healthy values."""
    values = [changed for steps, changed in stretches for changed in [changed] * steps]
    return [{"kind": "train", "step": step, **HEALTHY, **changed} for step, changed in enumerate(values, start=1)]


def names(rows, **limits):
    return [alarm.symptom.name for alarm in alarms_of(rows, HealthConfig(**limits))]


@pytest.mark.parametrize("run", ["quickstart_seed0", "quickstart_seed1", "quickstart_seed2", "quickstart_kl_seed0"])
def test_no_false_alarm_on_the_quickstart(run):
    rows = recorded(run)
    assert sum(row["kind"] == "train" for row in rows) == 200
    assert alarms_of(rows, HealthConfig()) == []


def test_the_thinking_loop_raises_its_alarm():
    [alarm] = alarms_of(recorded("thinking_loop_seed0"), HealthConfig())
    assert (alarm.symptom.name, alarm.first_step, alarm.last_step) == ("thinking_loops", 21, 120)
    assert "64% of their text stood before" in alarm.words


def test_updates_that_are_too_large_raise_their_alarms():
    # configs/quickstart_kl.py with optimizer.learning_rate=3e-3 and algorithm.kl_beta=1e-4.
    found = {alarm.symptom.name: alarm.first_step for alarm in alarms_of(recorded("kl_runaway_seed0"), HealthConfig())}
    assert min(found, key=found.__getitem__) == "accuracy_lost"
    assert {"accuracy_lost", "kl_runaway"} <= set(found)


def test_a_reward_for_something_else_raises_its_alarm():
    # configs/quickstart.py with a reward for sevens ten times that for the right number.
    found = {
        alarm.symptom.name: alarm.first_step for alarm in alarms_of(recorded("reward_for_sevens_seed0"), HealthConfig())
    }
    assert min(found, key=found.__getitem__) == "reward_without_accuracy"
    assert "accuracy_lost" in found


def test_a_healthy_history_says_nothing():
    assert names(history((300, {}))) == []


@pytest.mark.parametrize(
    ("name", "changed", "words"),
    [
        ("hopeless_groups", {"solved_none": 0.95}, "95% of the groups have no right answer"),
        ("collapsed_groups", {"active_group_ratio": 0.05}, "95% of the groups got the same reward"),
        ("length_inflation", {"completions/mean_length": 60.0}, "60 tokens for a pass rate of 50%; around step 6, 30"),
        ("thinking_loops", {"completions/repeated_ngram_share": 0.5}, "50% of their text stood before"),
        ("truncation", {"completions/clipped_ratio": 0.4}, "40% of the completions were cut off"),
        ("kl_runaway", {"kl": 1.5}, "1.50 nats per token away"),
        ("entropy_collapse", {"entropy": 0.001}, "entropy fell from 0.3 to 0.001"),
        ("clip_fraction", {"clip_ratio/region_mean": 0.5}, "took hold of 50% of the tokens"),
        ("sampler_mismatch", {"sampling/sampling_logp_difference/mean": 0.3}, "differ by 0.30 nats"),
        (
            "verifier_errors",
            {"verifier/error_share": 0.1, "verifier/commonest_fault": "no memory"},
            "the judge failed on .* completions, .*; most often: no memory",
        ),
    ],
)
def test_each_symptom_is_found_and_goes_again(name, changed, words):
    alarms = alarms_of(history((30, {}), (30, changed), (30, {})), HealthConfig())
    alarm = next(alarm for alarm in alarms if alarm.symptom.name == name)
    assert [alarm.symptom.name for alarm in alarms] == [name]
    assert 31 <= alarm.first_step <= 41
    assert 60 <= alarm.last_step <= 72
    said = alarm.symptom.found(History(history((30, {}), (30, changed)), []), HealthConfig())
    assert re.search(words, said), said


def test_steps_that_update_nothing_hide_no_runaway():
    rows = history((60, {"kl": 1.5}))
    for row in rows:
        if row["step"] % 3:
            del row["kl"]
    assert names(rows) == ["kl_runaway"]


def test_solved_problems_are_no_collapse():
    assert names(history((50, {"active_group_ratio": 0.02, "pass_at_1": 0.97, "entropy": 0.3}))) == []


def test_sure_and_right_is_no_entropy_collapse():
    assert names(history((20, {}), (20, {"pass_at_1": 0.9}), (20, {"pass_at_1": 0.9, "entropy": 0.001}))) == []


def test_longer_and_better_is_no_inflation():
    assert names(history((20, {}), (20, {"completions/mean_length": 60.0, "pass_at_1": 0.7}))) == []


def test_reward_without_accuracy():
    rows = []
    for row in history(*((20, {"reward": 0.3 + 0.1 * block}) for block in range(5))):
        rows.append(row)
        if row["step"] % 20 == 0:
            rows.append({"kind": "evaluation", "split": "validation", "step": row["step"], "eval/pass_at_1": 0.4})
    [alarm] = alarms_of(rows, HealthConfig())
    assert alarm.symptom.name == "reward_without_accuracy"
    assert (
        "since step 40 the reward rose from 0.400 to 0.700, but held-out pass@1 went from 0.400 to 0.400" in alarm.words
    )
    solved = [row | {"eval/pass_at_1": row["step"] / 200} if row["kind"] == "evaluation" else row for row in rows]
    assert alarms_of(solved, HealthConfig()) == []


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ([0.2, 0.6, 0.3], "held-out pass@1 fell from 0.600 at step 1 to 0.300"),
        ([0.2, 0.6, 0.31], None),
        ([0.14, 0.05], None),  # one problem in ten
        ([0.0], None),
        ([], None),
    ],
)
def test_accuracy_lost(rates, words):
    rows = [{"step": step, "eval/pass_at_1": rate} for step, rate in enumerate(rates)]
    said = symptoms.accuracy_lost(History([], [*rows, {"step": 9, "eval/pass_at_1": None}]), HealthConfig())
    assert words in said if words else said is None


def test_the_test_problems_are_not_looked_at():
    monitor = Monitor(HealthConfig())
    assert monitor.observe({"kind": "evaluation", "split": "test", "step": 0, "eval/pass_at_1": 0.1}) == ([], [])


def test_an_alarm_is_given_once_until_it_goes():
    monitor = Monitor(HealthConfig())
    there = {"solved_none": 1.0}
    rows = history((10, there), (QUIET_STEPS - 5, {}), (5, there), (30, {}), (5, there))
    told = [monitor.observe(row) for row in rows]
    assert [index + 1 for index, (come, _) in enumerate(told) if come] == [1, 65]
    # Coming back within the quiet steps is the same alarm: it was last there at the 30th.
    assert [index + 1 for index, (_, gone) in enumerate(told) if gone] == [30 + QUIET_STEPS]
    assert monitor.metrics() == {"health/warnings": 1.0, "warnings": ["hopeless_groups"]}


def test_a_resumed_run_sees_what_the_whole_one_saw():
    rows = history((20, {}), (20, {"completions/clipped_ratio": 0.4}), (20, {}))
    whole = Monitor(HealthConfig())
    for row in rows:
        whole.observe(row)
    resumed = Monitor(HealthConfig(), rows[:55])
    for row in rows[55:]:
        resumed.observe(row)
    assert resumed.metrics() == whole.metrics()
    assert whole.metrics()["warnings"] == ["truncation"], "it is quiet, but not over"


def test_it_can_be_turned_off():
    monitor = Monitor(HealthConfig(enabled=False))
    assert [monitor.observe(row) for row in history((3, {"solved_none": 1.0}))] == [([], [])] * 3
    assert monitor.metrics() == {}


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda symptom: symptom.name)
def test_what_to_change_names_keys_that_exist(symptom):
    keys = re.findall(r"\b(?:[a-z_]+\.)+[a-z_]+\b", f"{symptom.remedy} {symptom.warns_when}")
    keys = [key for key in keys if not key.startswith("grpo_jax.")]
    assert keys or symptom.name in ("entropy_collapse", "reward_without_accuracy")
    for key in keys:
        require_key(RunConfig, key)


def test_every_limit_is_read():
    text = Path(symptoms.__file__).read_text()
    limits = {field.name for field in dataclasses.fields(HealthConfig)} - {"enabled"}
    assert {name for name in limits if f"limits.{name}" not in text} == set()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"truncated_completions": 1.5}, r"config\.health\.truncated_completions: got 1\.5, wanted a share"),
        ({"length_growth": 1.0}, r"config\.health\.length_growth: got 1\.0, wanted a factor above 1"),
        (
            {"enabled": False, "kl": 2.0},
            r"config\.health\.kl: got 2\.0, wanted 0\.3, .* only read when health\.enabled",
        ),
    ],
)
def test_limits_are_checked(values, message):
    with pytest.raises(ConfigError, match=message):
        from_nested(HealthConfig, values).validate("health")
