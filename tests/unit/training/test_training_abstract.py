import dataclasses
import tracemalloc

import jax
import pytest

from grpo_jax.config import RunConfig, from_nested
from grpo_jax.forensics.static import device_bytes
from grpo_jax.models.spec import Experts
from grpo_jax.parallel import mesh
from grpo_jax.training.abstract import abstract_spec, lower_step
from grpo_jax.training.recipe import init_sharded
from grpo_jax.training.trainer import RECIPES

SMALL = {
    "model": {"num_layers": 1, "d_model": 16, "num_heads": 2, "num_kv_heads": 2, "head_dim": 4, "d_ff": 16},
    "data": {"max_prompt_tokens": 8},
    "rollout": {"prompts_per_step": 4, "completions_per_prompt": 4, "max_new_tokens": 32},
    "algorithm": {"micro_batch_completions": 8},
}


@pytest.fixture(autouse=True)
def eight_devices():
    with jax.set_mesh(mesh.make_mesh({"data": 2, "fsdp": 2, "tensor": 2, "context": 1, "expert": 1})):
        yield


@pytest.mark.slow  # compiles an update for 8 devices
def test_the_bytes_are_those_that_a_compiled_update_is_given():
    config = from_nested(RunConfig, SMALL)
    spec = abstract_spec(config)
    recipe = RECIPES["grpo"](config, spec)
    lowered = lower_step(recipe, config, spec)
    given = lowered.update.lowered.compile().memory_analysis().argument_size_in_bytes
    # Numbers that the program does not read are left out.
    assert 0 <= device_bytes((lowered.state, lowered.batch)) - given <= 256
    state = jax.jit(recipe.init)(init_sharded(jax.random.key(0), spec))
    held = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(state))
    assert device_bytes(lowered.state) == held


def test_a_published_model_that_is_not_here_is_known_by_its_name(tmp_path):
    model = {"path": str(tmp_path / "Qwen3-0.6B"), "compute_dtype": "bfloat16", "remat": "full"}
    spec = abstract_spec(from_nested(RunConfig, {"model": model, "data": {"tokenizer": "nowhere"}}))
    assert (spec.num_layers, spec.d_model, spec.compute_dtype, spec.remat) == (28, 1024, "bfloat16", "full")


def test_a_model_that_is_here_goes_before_its_name(tmp_path):
    folder = tmp_path / "Qwen3-0.6B"
    folder.mkdir()
    with pytest.raises(ValueError, match=r"config\.json"):
        abstract_spec(from_nested(RunConfig, {"model": {"path": str(folder)}}))


def test_a_batch_of_the_greatest_lengths_takes_no_memory():
    config = from_nested(RunConfig, SMALL)
    rollout = dataclasses.replace(config.rollout, prompts_per_step=2**10, max_new_tokens=2**15)
    spec = abstract_spec(config)
    huge = dataclasses.replace(config, rollout=rollout)
    tracemalloc.start()
    batch = lower_step(RECIPES["grpo"](huge, spec), huge, spec).batch
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert device_bytes(batch) > 2**29
    assert peak < 2**27


def test_recorded_experts_are_part_of_a_batch_that_replays_them():
    config = from_nested(RunConfig, SMALL | {"algorithm": {"micro_batch_completions": 8, "router_replay": True}})
    spec = dataclasses.replace(abstract_spec(config), num_layers=3, experts=Experts(4, 2, 8, first_dense_layers=1))
    batch = lower_step(RECIPES["grpo"](config, spec), config, spec).batch
    choice = batch.micro_batches.rows.choice_NSLA
    # Two micro-batches of 8 rows of 8 + 32 tokens, in two layers with experts of which a token visits two.
    assert (choice.shape, choice.dtype) == ((2, 8, 40, 2, 2), "uint8")
