"""What a run needs is known before it begins."""

import jax
import pytest

from grpo_jax import cli, footprint, planning, train
from grpo_jax.config import ConfigError, RunConfig, dotted, from_nested, to_nested
from grpo_jax.forensics import present
from grpo_jax.forensics.compiled import DoesNotFit
from grpo_jax.models.parameters import count
from grpo_jax.training import setup

TINY = {
    "steps": 3,
    "model": {"num_layers": 1, "d_model": 16, "head_dim": 4, "d_ff": 16},
    "data": {"prompt_template": "{problem}=", "digits": 2, "validation_problems": 8, "test_problems": 8},
    "rollout": {"prompts_per_step": 8, "completions_per_prompt": 2, "max_new_tokens": 4},
    "algorithm": {"micro_batch_completions": 8, "kl_beta": 0.0},
}


@pytest.fixture(scope="module")
def config():
    return from_nested(RunConfig, TINY)


def test_a_plan_counts_bytes_and_arithmetic(config):
    made = planning.plan(config)
    parts = setup.build(config)
    assert made.held["parameters"] == 4 * count(parts.spec)
    assert made.held["while updating"] > made.held["parameters"] + made.held["optimizer"]
    # Two operations for each parameter and token of a forward pass, three times as many with the derivative.
    tokens = 16 * (parts.config.data.max_prompt_tokens + 4)
    assert 4 * tokens * count(parts.spec) < made.step_flops < 40 * tokens * count(parts.spec)
    assert made.flops_per_second > 1e6
    assert made.step_seconds == made.step_flops / made.flops_per_second / jax.device_count()


def test_twice_the_tokens_ask_for_about_twice_the_arithmetic(config):
    longer = from_nested(RunConfig, TINY | {"rollout": TINY["rollout"] | {"prompts_per_step": 16}})
    assert 1.9 < planning.plan(longer).step_flops / planning.plan(config).step_flops < 2.1


def test_a_plan_knows_what_compiled_programs_need(config):
    made = planning.plan(config)
    assert set(made.needed) == set(footprint.LEVERS)
    resident = sum(made.held[part] for part in ("parameters", "optimizer", "reference"))
    assert all(size > resident for size in made.needed.values())


def test_batches_bound_the_caches_and_ask_for_the_same_arithmetic():
    plan = lambda **rollout: planning.plan(from_nested(RunConfig, TINY | {"rollout": TINY["rollout"] | rollout}))  # noqa: E731
    whole, made = plan(prompts_per_step=32), plan(prompts_per_step=32, batch_prompts=8)
    assert made.held["caches"] < 0.3 * whole.held["caches"]
    assert made.needed["decode"] < whole.needed["decode"]
    assert made.step_flops == pytest.approx(whole.step_flops, rel=0.01)


def test_what_does_not_fit_is_refused_with_the_keys_that_decide_it(config, monkeypatch):
    needed = planning.plan(config).needed
    limit = sorted(needed.values())[-1] - 1
    monkeypatch.setattr(present, "device_bytes", lambda: limit)
    [largest] = [name for name, size in needed.items() if size > limit]
    shown = []
    with pytest.raises(
        DoesNotFit, match=f"(?s)As compiled, {largest} .* GiB.*{footprint.LEVERS[largest][0]}"
    ) as refused:
        shown.extend(planning.lines(setup.build(config)))
    assert refused.value.exit_status == cli.USAGE
    assert any(line.startswith("memory") for line in shown)
    assert "max_new_tokens=4" in str(refused.value)


def test_levers_are_keys(config):
    assert {key for keys in footprint.LEVERS.values() for key in keys} <= dotted(to_nested(config)).keys()


@pytest.mark.parametrize("device_bytes", [1000, None])
def test_a_run_without_memory_ends_with_what_it_needs(device_bytes, tmp_path, monkeypatch):
    file = tmp_path / "tiny.py"
    file.write_text(f"from ml_collections import ConfigDict\n\ndef get_config():\n    return ConfigDict({TINY!r})\n")
    arguments = ["train", "--config", str(file), "--workdir", str(tmp_path / "run"), "--config.verifier.workers=1"]
    monkeypatch.setattr("sys.argv", arguments)

    def exhausted(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nand more")

    monkeypatch.setattr(train, "train", exhausted)
    monkeypatch.setattr(present, "device_bytes", lambda: device_bytes)
    with pytest.raises(cli.OutOfMemory, match=r"allocating 9 bytes\.\nAs compiled, .*config\.\w+\.\w+=") as ended:
        train.main()
    assert ended.value.exit_status == 1


def test_a_dry_run_prints_the_run_and_leaves_nothing_behind(tmp_path, monkeypatch, capsys):
    file = tmp_path / "tiny.py"
    file.write_text(f"from ml_collections import ConfigDict\n\ndef get_config():\n    return ConfigDict({TINY!r})\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["train", "--config", "tiny.py", "--dry_run", "--config.steps=7"])
    assert train.main() == 0
    shown = capsys.readouterr().out
    assert "config.steps=7  (default 200)" in shown
    for word in ("policy  ", "problems  ", "memory  ", "for 7 steps"):
        assert word in shown
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["tiny.py"]


def test_a_dry_run_refuses_what_a_run_would(tmp_path, monkeypatch):
    file = tmp_path / "tiny.py"
    file.write_text(f"from ml_collections import ConfigDict\n\ndef get_config():\n    return ConfigDict({TINY!r})\n")
    monkeypatch.setattr("sys.argv", ["train", "--config", str(file), "--dry_run", "--config.mesh.fsdp=3"])
    with pytest.raises(ConfigError, match=r"config\.mesh"):
        train.main()
