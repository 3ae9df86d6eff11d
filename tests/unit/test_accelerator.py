"""The benchmark of accelerators: what it runs, counts and writes, without an accelerator."""

import dataclasses
import json
import time
from concurrent.futures import Future
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import accelerator, accelerator_case, accelerator_checks, accelerator_device, accelerator_page
from benchmarks.accelerator_runs import CASES, CHECKS, LEAN, MODEL, SMALL, AlternatingJudge, configured
from grpo_jax.config import ConfigError, dotted, to_nested
from grpo_jax.data.tasks import build_task
from grpo_jax.data.tokenizer import build_tokenizer
from grpo_jax.forensics import present
from grpo_jax.models import attention, fused_attention
from grpo_jax.models.presets import preset
from grpo_jax.models.spec import from_config
from grpo_jax.records import Completion, FinishReason, Problem, Verdict
from grpo_jax.rollout.engine import length_bucket

RUNS = [case for case in CASES if case != CHECKS]

ROW = {
    "step": 3,
    "num_tokens": 300.0,
    "step_time": 4.0,
    "seconds/rollout": 2.0,
    "seconds/verify": 0.5,
    "seconds/prepare": 0.5,
    "seconds/update": 1.0,
    "sampling/sampling_logp_difference/mean": 1e-3,
    "sampling/sampling_logp_difference/max": 1e-2,
    "loss": 0.0,
}
DEVICE = {
    "kind": "cpu",
    "platform": "cpu",
    "processors": 2,
    "versions": {"jax": "0.10.2"},
    "peak_flops_per_second": 2e11,
    "peak_source": "measured",
    "measured_flops_per_second": 2e11,
}


@pytest.mark.parametrize("case", RUNS)
def test_runs_are_valid_and_do_nothing_but_steps(case):
    config = configured(case, "bfloat16")
    config.validate()
    assert config.model.compute_dtype == "bfloat16"
    assert config.rollout.stop == ()
    assert config.cold_start.steps == 0
    assert config.steps > 1000 < config.evaluation.every_steps


def test_the_random_model_has_the_published_shape_and_rows_of_8192_tokens():
    config = configured(MODEL, "bfloat16")
    wanted = dataclasses.replace(preset(MODEL), compute_dtype="bfloat16", remat="full")
    assert from_config(config.model, 263) == wanted
    assert config.data.max_prompt_tokens + config.rollout.max_new_tokens == 8192


@pytest.mark.parametrize("case", [MODEL, f"{MODEL}{SMALL}"])
def test_prompts_fill_their_bucket(case):
    config = configured(case, "float32")
    tokenizer, task = build_tokenizer(config.data.tokenizer), build_task(config.data, config.cold_start)
    lengths = [len(tokenizer.encode_prompt(problem.prompt)) for problem in task.problems("train")[:50]]
    assert max(lengths) <= config.data.max_prompt_tokens
    assert {length_bucket(length) for length in lengths} == {config.data.max_prompt_tokens}


@pytest.mark.parametrize(
    ("case", "dtype", "device_bytes", "lean"),
    [
        (MODEL, "bfloat16", 32 * 10**9, True),
        (MODEL, "bfloat16", 80 * 10**9, False),
        (MODEL, "bfloat16", None, False),
        (MODEL, "float32", 32 * 10**9, False),
        ("quickstart", "bfloat16", 16 * 10**9, False),
    ],
)
def test_the_random_model_is_held_in_less_where_there_is_less(case, dtype, device_bytes, lean):
    values = dotted(to_nested(configured(case, dtype, device_bytes)))
    assert all(values[key] == value for key, value in LEAN.items()) == lean


class Pool:
    """Judges at once."""

    def __init__(self, outcome):
        self.outcome = outcome

    def submit(self, problem, completion):
        future = Future()
        if isinstance(self.outcome, Exception):
            future.set_exception(self.outcome)
        else:
            future.set_result(self.outcome)
        return future

    def metrics(self):
        return {"verifier/workers": 1.0}


def test_rewards_alternate_within_each_problem():
    judge = AlternatingJudge(Pool(Verdict(0.5, False, None, "wrong")))
    completion = Completion("1", 1, FinishReason.LENGTH)
    problems = [Problem(identifier=name, prompt="1+1=", answer="2") for name in "abab"]
    assert [judge.submit(problem, completion).result().reward for problem in problems] == [1, 1, 0, 0]
    assert judge.metrics() == {"verifier/workers": 1.0}


def test_a_judge_that_fails_is_heard():
    judge = AlternatingJudge(Pool(RuntimeError("no worker")))
    given = judge.submit(Problem(identifier="a", prompt="", answer="2"), Completion("1", 1, FinishReason.STOP))
    with pytest.raises(RuntimeError, match="no worker"):
        given.result()


def test_speed_is_the_median_of_the_steps():
    rows = [ROW | {"step": 2, "num_tokens": 200.0, "step_time": 400.0}, ROW, ROW | {"step": 4, "num_tokens": 400.0}]
    found = accelerator_case.speed(rows)
    assert found["new_tokens_per_step"] == 100
    assert found["tokens_per_second"] == {"rollout": 50, "prepare": 200, "update": 100, "step": 25}
    assert found["sanity"]["sampler_trainer_difference_max"] == 1e-2
    assert found["seconds_of_each_step"]["step"] == [400.0, 4.0, 4.0]


def test_utilisation_is_operations_over_seconds_and_what_the_device_can_do():
    seconds = {"rollout": 1.0, "prepare": 0.5, "update": 1.0, "step": 4.0}
    flops = {"rollout": 10.0, "prepare": 0.0, "update": 30.0}
    shares = accelerator_case.utilisation(seconds, flops, 100.0)
    assert shares == {"rollout": 0.1, "prepare": None, "update": 0.3, "step": 0.1}


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('custom_call @__cudnn$fmhaSoftmax(%1) {x = "y"}', "cuDNN"),
        ('kernel_name = "splash_mha_fwd_segmented_no_residuals"', "splash"),
        ("stablehlo.dot_general", "blockwise"),
    ],
)
def test_the_form_of_attention_is_read_off_the_program(text, form):
    assert accelerator_case.backend_of(text) == form


def test_peaks_are_those_of_data_sheets_or_measured(monkeypatch):
    assert accelerator_device.peak("float32")[1].startswith("measured")
    monkeypatch.setattr(present, "hardware", lambda _: present.HARDWARE["h200"])
    assert accelerator_device.peak("bfloat16") == (989e12, "data sheet, dense bfloat16")


def test_live_memory_of_a_processor_says_what_it_is():
    memory = accelerator_device.live_memory(0.0)
    assert memory["of"] == "growth of the process"
    assert memory["live_bytes"] > 10**7


@pytest.mark.parametrize(
    ("status", "said", "ending"),
    [
        (0, "", {}),
        (1, "a\nRESOURCE_EXHAUSTED: Out of memory allocating 5 bytes\nb\n", "out_of_memory"),
        (-11, "Fatal\n", "failed"),
        (1, "", "failed"),
        (None, "", "ended"),
    ],
)
def test_how_a_case_ended_is_recorded(status, said, ending):
    found = accelerator.ending(status, said, 60)
    assert list(found) == ([ending] if ending else [])
    if ending == "out_of_memory":
        assert found[ending] == "RESOURCE_EXHAUSTED: Out of memory allocating 5 bytes"


def test_figures_of_other_devices_and_cases_stay():
    first = accelerator.merged({}, {"device": DEVICE, "row": {"steps": 1}}, "quickstart")
    second = accelerator.merged(first, {"device": DEVICE, "row": {"steps": 2}}, CHECKS)
    third = accelerator.merged(second, {"device": {"kind": "TPU v6 lite"}, "row": {"steps": 3}}, "quickstart")
    assert list(third["cpu"]["rows"]) == [CHECKS, "quickstart"]
    assert third["cpu"]["device"] == DEVICE
    assert third["TPU v6 lite"]["rows"] == {"quickstart": {"steps": 3}}


def test_a_row_that_failed_or_differs_is_wrong():
    assert accelerator.wrong({"failed": "status 1"})
    assert accelerator.wrong({"outcomes": {"a": {"ok": True}, "b": {"ok": False}}})
    assert not accelerator.wrong({"outcomes": {"a": {"ok": True}}, "out_of_memory": "5 bytes"})


def test_a_process_sees_one_device_and_the_processor():
    assert accelerator.environment({})["CUDA_VISIBLE_DEVICES"] == "0"
    assert accelerator.environment({"CUDA_VISIBLE_DEVICES": "3"})["CUDA_VISIBLE_DEVICES"] == "3"
    assert accelerator.environment({"JAX_PLATFORMS": "cuda"})["JAX_PLATFORMS"] == "cuda,cpu"
    assert accelerator.environment({"JAX_PLATFORMS": "cpu"})["JAX_PLATFORMS"] == "cpu"


def test_cases_without_time_or_weights_are_left_out_and_said(tmp_path, monkeypatch, capsys):
    def located(name):
        raise ConfigError(f"{name}: run pip install")

    monkeypatch.setattr(accelerator, "located", located)
    ends = time.monotonic() + 5
    assert accelerator.measure(["smollm2_135m", "quickstart"], ends, tmp_path / "a.json", 1, None)
    said = capsys.readouterr().err
    assert "smollm2_135m: left out. smollm2-135m: run pip install" in said
    assert "quickstart: left out: 5 s left, wanted 60 at least" in said
    assert not (tmp_path / "a.json").exists()


def test_a_case_that_breaks_is_recorded_and_the_next_goes_on(tmp_path, monkeypatch):
    parts = {
        "quickstart": {"row": {"failed": "status 1: boom"}},
        CHECKS: {"device": DEVICE, "row": {"outcomes": {}}},
    }
    monkeypatch.setattr(accelerator, "measured", lambda case, *_: dict(parts[case]))
    ends = time.monotonic() + 1000
    assert not accelerator.measure([CHECKS, "quickstart"], ends, tmp_path / "a.json", 1, None)
    rows = json.loads((tmp_path / "a.json").read_text())["cpu"]["rows"]
    assert list(rows) == [CHECKS, "quickstart"]
    assert rows["quickstart"] == {"failed": "status 1: boom"}


def test_the_page_is_that_of_the_figures():
    figures, page = accelerator.read(accelerator.FIGURES), accelerator.PAGE.read_text(encoding="utf-8")
    assert accelerator_page.page(figures, page) == page, (
        "run python -m benchmarks.accelerator --merge docs/accelerator.json"
    )
    assert {"quickstart", "smollm2_135m"} <= set(figures["cpu"]["rows"])


def test_the_page_says_whether_an_accelerator_was_measured():
    row = {"compute_dtype": "float32", "flops": {"prepare": 0.0}, "memory": {"live_bytes": 2e9, "of": "device"}}
    row |= accelerator_case.speed([ROW]) | {"attention": {"update": "cuDNN", "prefill": "cuDNN"}}
    cpu = {"cpu": {"device": DEVICE, "rows": {"quickstart": row, MODEL: {"out_of_memory": "5 bytes"}}}}
    text = accelerator_page.section(cpu)
    assert accelerator_page.NOTHING_YET in text
    assert "| `quickstart`, float32 | 4.00 s | 50 | - | 100 | **25** |" in text
    assert f"`{MODEL}`: out of memory: 5 bytes" in text
    assert "No accelerator" not in accelerator_page.section(
        cpu | {"NVIDIA H200": {"device": DEVICE | {"platform": "gpu"}, "rows": {}}}
    )


@pytest.mark.parametrize(
    ("difference", "known", "dtype", "ok"),
    [
        (1e-5, 0.0, "float32", True),
        (1e-3, 1.0, "float32", False),
        (0.019, 0.01, "bfloat16", True),
        (0.021, 0.01, "bfloat16", False),
        (float("nan"), 0.01, "bfloat16", False),
    ],
)
def test_differences_are_small_for_their_dtype(difference, known, dtype, ok):
    assert accelerator_checks.small(difference, known, dtype, 1e-4) == ok


def test_a_difference_is_relative_to_the_largest_value_of_its_array():
    wanted = [np.array([2.0, -4.0]), np.array([10.0])]
    assert accelerator_checks.relative_difference([np.array([2.0, -3.0]), np.array([9.0])], wanted) == 0.25


TINY = accelerator_checks.Shape(2, 48, 1, 2, 8, 0, True)


def test_the_blockwise_form_agrees_with_itself():
    outcome = accelerator_checks.attention_outcome(TINY, "float32")
    assert outcome == {"form": "blockwise", "difference": 0.0, "of_blockwise": 0.0, "ok": True}


def test_a_kernel_that_is_wrong_is_found(monkeypatch):
    def without_masks(query, key, value, segment):
        return fused_attention.cudnn_attention(
            query, key, value, jnp.ones_like(segment), window=0, implementation="xla"
        )

    monkeypatch.setattr(attention.fused_attention, "kernel_for", lambda *_, **__: without_masks)
    outcome = accelerator_checks.attention_outcome(TINY, "float32")
    assert not outcome["ok"]
    assert outcome["difference"] > 0.01


@pytest.mark.slow
def test_the_command_measures_a_small_run_and_writes_its_figures(tmp_path, monkeypatch, capsys):
    out, trace = tmp_path / "figures.json", tmp_path / "trace"
    command = ["accelerator", MODEL, "--scale", "small", "--steps", "1", "--out", str(out), "--trace", str(trace)]
    monkeypatch.setattr("sys.argv", command)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=1")
    assert accelerator.main() == 0
    row = json.loads(out.read_text())["cpu"]["rows"][f"{MODEL}{SMALL}"]
    assert row["compilations_after_the_first_step"] == 0
    assert row["new_tokens_per_step"] == 4 * 64
    assert 0 < row["utilisation"]["step"] < 1
    assert row["memory"]["predicted_bytes"] > 10**6
    assert row["sanity"]["active_group_ratio"] == 1
    assert row["sanity"]["sampler_trainer_difference_max"] < 1e-4
    assert list(Path(row["trace"]).rglob("*.xplane.pb"))
    assert f"`{MODEL}{SMALL}`, float32" in capsys.readouterr().out
