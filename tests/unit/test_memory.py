import json
import re
import subprocess
import sys

import pytest

from grpo_jax import memory
from grpo_jax.config import ConfigError, RunConfig, from_nested
from grpo_jax.forensics.hardware import parse_topology


def run(*arguments):
    command = [sys.executable, "-m", "grpo_jax.memory", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def test_the_command_prints_a_table_for_any_number_of_devices(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from ml_collections import ConfigDict\n\n\n"
        "def get_config():\n    return ConfigDict({'model': {'path': 'models/Qwen2.5-0.5B'}, 'mesh': {'fsdp': 2}})\n"
    )
    done = run(f"--config={tmp_path / 'mine.py'}", "--devices=2")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\| mine \| 0\.920 \| 0\.920 \| 1\.841 \| 0\.920 \|", done.stdout, re.MULTILINE), done.stdout


def test_sums_are_of_what_exists_at_once():
    held = memory.held_bytes(from_nested(RunConfig, {"algorithm": {"kl_beta": 0.0}}))
    assert held["reference"] == 0
    assert held["gradients"] == held["parameters"]
    assert 2 * held["parameters"] < held["optimizer"] < 2 * held["parameters"] + 64
    assert held["while sampling"] == held["parameters"] + held["optimizer"] + held["caches"]
    assert held["while updating"] == held["parameters"] + held["optimizer"] + held["gradients"] + held["batch"]


def test_levers_show_in_the_sums():
    model = {**TINY["model"], "compute_dtype": "bfloat16"}
    plain = memory.held_bytes(from_nested(RunConfig, TINY | {"model": model}))
    levers = {"optimizer": {"gradient_dtype": "bfloat16", "placement": "host"}}
    held = memory.held_bytes(from_nested(RunConfig, TINY | {"model": model} | levers))
    assert held["optimizer"] < plain["optimizer"] / 8, "what is left on the device is small"
    assert held["gradients"] < 0.6 * plain["gradients"]
    assert held["parameters"] < 0.6 * plain["parameters"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"path": "models/unknown"}}, r"config\.model\.path: models/unknown is not here"),
        (
            {"rollout": {"prompts_per_step": 36}, "algorithm": {"micro_batch_completions": 32}},
            r"prompts_per_step: got 36",
        ),
        (
            {"rollout": {"batch_prompts": 6}, "mesh": {"fsdp": 4, "data": 2}},
            r"batch_prompts: got 6, wanted a multiple of 8",
        ),
        ({"mesh": {"tensor": 8}}, r"config\.mesh: parameter .* wanted a multiple of 8"),
        ({"mesh": {"data": 3}}, r"config\.mesh: got .*'data': 3"),
        ({"rollout": {"top_p": 2.0}}, r"config\.rollout\.top_p: got 2\.0"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        memory.held_bytes(from_nested(RunConfig, changes))


TINY = {
    "model": {"num_layers": 1, "d_model": 16, "num_heads": 2, "num_kv_heads": 2, "head_dim": 4, "d_ff": 16},
    "data": {"max_prompt_tokens": 8},
    "rollout": {"prompts_per_step": 4, "completions_per_prompt": 4, "max_new_tokens": 16},
    "algorithm": {"micro_batch_completions": 8},
    "mesh": {"data": 2, "fsdp": 2, "tensor": 2},
}


def shown(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["memory", *arguments])
    assert memory.main() == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("algorithm", "total"), [("grpo", 1400.0), ("ppo", 2660.0)])
def test_published_figures(monkeypatch, capsys, algorithm, total):
    arguments = ("--model", "llama3-70b", "--algorithm", algorithm, "--devices", "64", "--tokens", "16384", "--json")
    figures = json.loads(shown(monkeypatch, capsys, *arguments))
    static = figures["static"]
    assert static["total_gb"] == total
    assert static["components_gb"]["policy"]["master"] == 280
    assert ("critic" in static["components_gb"]) == (algorithm == "ppo")
    assert static["components_gb"]["reference"] == {"weights": 140}
    assert static["counted_parameters"] == 70_553_706_496
    assert (figures["devices"], figures["tokens"], static["fits_on"]["h100"]["fits"]) == (64, 16384, True)


def test_dtypes_and_numbers_are_flags(monkeypatch, capsys):
    arguments = ("--model=deepseek-v3", "--algorithm=ppo", "--gradients_dtype=float8_e4m3fn", "--parameters=1e9")
    static = json.loads(shown(monkeypatch, capsys, *arguments, "--json"))["static"]
    assert sum(static["components_gb"]["critic"].values()) == 14
    assert static["dtypes"]["weights"] == "float8_e4m3fn"
    assert static["claim"] == {"total_gb": 14_800.0, "reproduced": False}


def test_the_tables_of_a_model(monkeypatch, capsys):
    text = shown(monkeypatch, capsys, "--model=deepseek-v3", "--devices=256")
    assert re.search(r"671e9 parameters \(671\.026e9 counted\)", text)
    assert re.search(r"claimed .* about 7,800: not reproduced", text)
    assert re.search(r"h200 +. 141 +. 77 +. yes", text)
    assert re.search(r"moments .* 10,065 / 10,736 \*", text)


def test_json_of_a_configuration(monkeypatch, capsys, tmp_path):
    (tmp_path / "mine.py").write_text(
        f"from ml_collections import ConfigDict\n\n\ndef get_config():\n    return ConfigDict({TINY})\n"
    )
    figures = json.loads(
        shown(monkeypatch, capsys, f"--config={tmp_path / 'mine.py'}", "--json", f"--png={tmp_path / 'a.png'}")
    )
    assert figures["run"] == "mine"
    assert set(figures["held_bytes"]) == {*memory.PARTS, *memory.MOMENTS}
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_is_compiled_program_by_program():
    config = from_nested(RunConfig, TINY)
    figures = memory.compile_run(config, parse_topology("cpu:8"), micro_batches=1)
    held = memory.held_bytes(config)
    parts = figures["components_bytes"]["policy"]
    assert (figures["topology"], figures["mesh"]["fsdp"], figures["micro_batches"]) == ("cpu:8", 2, 1)
    assert (parts["parameters"], parts["optimizer"], parts["reference"]) == (
        held["parameters"],
        held["optimizer"],
        held["reference"],
    )
    # Numbers that a program does not read are left out, and what it does not get lies beside it.
    given = sum(parts.values()) + figures["components_bytes"]["batch"]["rows"]
    assert 0 <= given - figures["argument_bytes"] <= figures["beside_bytes"] <= 64
    temporaries = figures["temp_bytes"] + figures["output_bytes"] - figures["alias_bytes"]
    assert figures["peak_bytes_per_device"] == figures["argument_bytes"] + temporaries > held["parameters"]
    assert figures["prepare"]["argument_bytes"] < figures["argument_bytes"]
    assert figures["prepare"]["flops"] > figures["flops"] / 4, "the reference is gone through, in two micro-batches"
    assert figures["decode"]["beside_bytes"] == pytest.approx(held["optimizer"] + held["reference"], abs=64)
    assert figures["seconds"] > 0
    assert figures["fits"] is None


def test_the_critic_of_a_compiled_run_is_a_model_of_its_own():
    config = from_nested(RunConfig, TINY | {"recipe": "ppo"})
    run = memory.lower_run(config, None)
    assert list(memory.models(run.step.state)) == ["policy", "critic"]


@pytest.mark.slow  # compiles a model of 30 layers for 8 devices
def test_a_model_is_compiled_from_the_command_line(tmp_path):
    arguments = ["--model=smollm2-135m", "--algorithm=ppo", "--tokens=64", "--compile", "--topology=cpu:8"]
    done = run(*arguments, "--config.model.lora.rank=4", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["compiled"]
    assert figures["components_bytes"]["policy"]["optimizer"] < figures["components_bytes"]["critic"]["optimizer"] / 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"--model, --config: got both or none"),
        (["--model=llama3-8b", "--config=configs/quickstart.py"], r"--model, --config: got both or none"),
        (["--model=llama3-9b"], r"--model: preset: got 'llama3-9b'.* Did you mean llama3"),
        (["--model=llama3-8b", "--compile"], r"--topology: got none beside --compile"),
        (["--model=llama3-8b", "--search"], r"--topology: got none beside --compile or --search"),
        (["--model=llama3-8b", "--topology=h100:1x8"], r"--topology: got it without --compile or --search"),
        (["--model=llama3-8b", "--micro_batches=2"], r"--micro_batches: got it without --compile or --search"),
        (["--model=llama3-8b", "--search_over=rows"], r"--search_over: got it without --search"),
        (["--config=configs/quickstart.py", "--tokens=64"], r"--tokens: got it without --model"),
        (["--config=configs/quickstart.py", "--master_dtype=int8"], r"--master_dtype: got it without --model"),
        (["--config=configs/quickstart.py", "--devices=100000"], r"--devices: got 100000, wanted at most 4096"),
        (["--model=llama3-8b", "--parameters=nan"], r"--parameters: got nan, wanted a number below 1e\+18"),
        (["--model=llama3-8b", "--compile", "--topology=h100:1x8", "--devices=4"], r"--devices: got 4, wanted the 8"),
        (["--model=llama3-8b", "--config.mesh.fsdp=2"], r"--config\.mesh: got it beside --model, wanted --mesh"),
        (["--model=llama3-8b", "--compile", "--topology=h100"], r"--topology: got 'h100', wanted h100:HOSTSxDEVICES"),
        (["--model=llama3-8b", "--mesh=fsdp"], r"--mesh: got 'fsdp', wanted AXIS=SIZE"),
        (["--model=llama3-8b", "--tokens=1"], r"command line: .*tokens"),
        (["--model=llama3-8b", "--tokens=999999999999"], r"command line: .*tokens"),
        (["--model=llama3-8b", "--png=/nowhere/x.png"], r"--png: /nowhere/x\.png cannot be written"),
        (["--model=llama3-8b", "--weights_dtype=float64"], r"command line: .*float64"),
        (
            ["--model=llama3-8b", "--compile", "--topology=cpu:8", "--mesh=tensor=4"],
            r"--mesh: got tensor=4, wanted sizes whose product is the number of devices, 8",
        ),
        (
            ["--model=qwen2.5-0.5b", "--compile", "--topology=cpu:8", "--mesh=tensor=8"],
            r"^--mesh: parameter .* \(heads\), wanted a multiple of 8, the devices along tensor. Choose a smaller mesh",
        ),
        (
            ["--model=qwen2.5-0.5b", "--compile", "--topology=cpu:8", "--mesh=expert=8"],
            r"^--mesh expert: got 8, wanted 1, since the policy has no experts",
        ),
    ],
)
def test_command_lines_that_do_not_fit_together_are_refused(monkeypatch, arguments, message):
    monkeypatch.setattr("sys.argv", ["memory", *arguments])
    with pytest.raises(ConfigError, match=message):
        memory.main()
