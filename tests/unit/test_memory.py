import re
import subprocess
import sys

import pytest

from grpo_jax import memory
from grpo_jax.config import ConfigError, RunConfig, from_nested


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"path": "models/unknown"}}, r"config\.model\.path: models/unknown is not here"),
        (
            {"rollout": {"prompts_per_step": 36}, "algorithm": {"micro_batch_completions": 32}},
            r"prompts_per_step: got 36",
        ),
        ({"mesh": {"tensor": 8}}, r"config\.mesh: parameter .* wanted a multiple of 8"),
        ({"mesh": {"data": 3}}, r"config\.mesh: got .*'data': 3"),
        ({"rollout": {"top_p": 2.0}}, r"config\.rollout\.top_p: got 2\.0"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        memory.held_bytes(from_nested(RunConfig, changes))
