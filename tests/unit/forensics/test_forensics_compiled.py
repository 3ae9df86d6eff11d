import importlib.util
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from grpo_jax.config import ConfigError
from grpo_jax.forensics import compiled
from grpo_jax.forensics.hardware import parse_topology
from grpo_jax.forensics.programs import Program, lower

SHAPE = jax.ShapeDtypeStruct((256, 256), jnp.float32)


def test_a_programs_sizes():
    topology = parse_topology("cpu:1")
    program = lower(jax.jit(lambda kept, given: kept + given @ given, donate_argnums=0), SHAPE, SHAPE)
    sizes = compiled.compiled(program, topology, 10 * 256 * 256 * 4)
    one = 256 * 256 * 4
    assert (sizes.argument_bytes, sizes.output_bytes, sizes.alias_bytes) == (2 * one, one, one)
    assert sizes.peak_bytes == 2 * one + sizes.temp_bytes
    assert sizes.needed_bytes == 10 * one + sizes.temp_bytes
    assert sizes.flops == 2 * 256**3
    assert sizes.seconds > 0
    figures = compiled.figures({"update": sizes, "decode": sizes}, topology)
    assert figures["peak_bytes_per_device"] == figures["decode"]["peak_bytes_per_device"] == sizes.peak_bytes
    assert figures["fits"] is None
    assert compiled.figures({"update": sizes}, parse_topology("h100:1x1"))["fits"] is True


class Refusing:
    def compile(self):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Used 99G of 95G hbm.\nand so on")


def test_a_program_that_a_compiler_cannot_place_does_not_fit():
    with pytest.raises(
        compiled.DoesNotFit, match=r"v5p:2x2x1 does not hold the program: RESOURCE_EXHAUSTED.*95G hbm\.$"
    ):
        compiled.compiled(Program(Refusing(), 0.0), parse_topology("v5p:2x2x1"), 0)


class WithoutTiling:
    """XLA, where one of its own kernels cannot be tiled."""

    def __init__(self):
        self.real = jax.jit(lambda x: x @ x).lower(SHAPE)

    def compile(self, options=None):
        if options is None:
            raise jax.errors.JaxRuntimeError("INTERNAL: Couldn't find output tile sizes that satisfy hlo: dot")
        assert options == {"xla_gpu_enable_triton_gemm": False}
        return self.real.compile()


def test_products_without_a_tiling_are_left_to_libraries_which_is_said(capsys):
    program = Program(WithoutTiling(), 0.0)
    assert compiled.compiled(program, parse_topology("h100:1x1"), 0).matmuls_by_libraries
    assert "compiling again" in capsys.readouterr().err
    with pytest.raises(jax.errors.JaxRuntimeError, match="tile sizes"):
        compiled.compiled(program, parse_topology("cpu:1"), 0)


@pytest.mark.parametrize(("topology", "extra"), [("h100:1x8", "aot-cuda"), ("v5p:2x2x1", "aot-tpu")])
def test_an_absent_compiler_is_named_with_its_package(monkeypatch, topology, extra):
    def absent(*_, **__):
        raise NotImplementedError("topology not implemented")

    monkeypatch.setattr(compiled.topologies, "get_topology_desc", absent)
    with pytest.raises(ConfigError, match=rf"compiler is not installed.*pip install 'grpo-jax\[{extra}\]'"):
        compiled.described_devices(parse_topology(topology))


def test_a_topology_that_the_compiler_refuses(monkeypatch):
    def refuses(*_, **__):
        raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: no such slice")

    monkeypatch.setattr(compiled.topologies, "get_topology_desc", refuses)
    with pytest.raises(ConfigError, match=r"v6e:3x5, which the compiler refuses: INVALID_ARGUMENT: no such slice"):
        compiled.described_devices(parse_topology("v6e:3x5"))


CONFIG = """
from ml_collections import ConfigDict


def get_config():
    return ConfigDict({
        "model": {"num_layers": 1, "d_model": 16, "num_heads": 2, "num_kv_heads": 2, "head_dim": 4, "d_ff": 16},
        "data": {"max_prompt_tokens": 8},
        "rollout": {"prompts_per_step": 4, "completions_per_prompt": 4, "max_new_tokens": 16},
        "algorithm": {"micro_batch_completions": 8},
        "mesh": {"fsdp": 2, "tensor": 2},
    })
"""


@pytest.mark.skipif(not importlib.util.find_spec("jax_cuda13_plugin"), reason="needs pip install 'grpo-jax[aot-cuda]'")
def test_a_run_is_compiled_for_gpus_that_are_not_here(tmp_path):
    (tmp_path / "mine.py").write_text(CONFIG)
    arguments = [f"--config={tmp_path / 'mine.py'}", "--compile", "--topology=h100:2x4", "--json"]
    command = [sys.executable, "-m", "grpo_jax.memory", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["compiled"]
    assert figures["device_memory_bytes"] == 80 * 10**9
    assert figures["fits"] is True
    assert 0 < figures["argument_bytes"] < figures["peak_bytes_per_device"]
