import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from grpo_jax.config import ConfigError, RunConfig, from_nested
from grpo_jax.data.publication import published_files, write_files
from grpo_jax.data.tokenizer import build_tokenizer
from grpo_jax.models.architecture import published_config
from grpo_jax.models.huggingface import published_tensors
from grpo_jax.models.parameters import init_params
from grpo_jax.models.safetensors import write_folder
from grpo_jax.models.spec import ModelSpec
from grpo_jax.training import setup
from grpo_jax.training.published import initial_params, open_published

SPEC = ModelSpec(
    vocab_size=build_tokenizer("characters").vocab_size,
    num_layers=2,
    d_model=16,
    num_heads=4,
    num_kv_heads=2,
    head_dim=4,
    d_ff=24,
    qk_norm=True,
)


def write_model(folder: Path, spec: ModelSpec = SPEC) -> dict:
    params = jax.device_get(jax.jit(init_params, static_argnames="spec")(jax.random.key(7), spec=spec))
    folder.mkdir()
    write_folder(folder, published_tensors(params, spec), "float32")
    (folder / "config.json").write_text(json.dumps(published_config(spec, 64)))
    write_files(published_files("characters"), folder)
    return params


def config(folder: Path, **model: object) -> RunConfig:
    return from_nested(RunConfig, {"model": {"path": str(folder), **model}, "data": {"digits": 2}})


def test_a_run_starts_from_published_weights_on_any_mesh(tmp_path):
    params = write_model(tmp_path / "model")
    run = config(tmp_path / "model", remat="full", logprob_chunk_tokens=8)
    run = dataclasses.replace(run, mesh=dataclasses.replace(run.mesh, data=2, fsdp=2, tensor=2))
    parts = setup.build(run)
    assert dataclasses.replace(parts.spec, remat="none", logprob_chunk_tokens=1024) == SPEC
    with jax.set_mesh(parts.mesh):
        got = initial_params(parts.published, jax.random.key(0), parts.spec)
    jax.tree.map(np.testing.assert_array_equal, got, params)


def test_without_a_path_parameters_are_random():
    parts = setup.build(from_nested(RunConfig, {"data": {"digits": 2}}))
    assert parts.published is None


def test_sizes_that_the_model_brings_are_refused(tmp_path):
    write_model(tmp_path / "model")
    with pytest.raises(ConfigError, match=r"config\.model\.d_ff: got 32, wanted 256, its default, since model\.path"):
        setup.build(config(tmp_path / "model", d_ff=32))


def test_a_tokenizer_with_more_ids_than_the_model_is_refused(tmp_path):
    write_model(tmp_path / "model", dataclasses.replace(SPEC, vocab_size=16))
    with pytest.raises(ConfigError, match=r"which has 16 ids, wanted at least the tokenizer's \d+\. Is config\.data"):
        setup.build(config(tmp_path / "model"))


@pytest.mark.parametrize("name", ["absent", "absent.gguf"])
def test_a_path_without_a_model_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match=rf"config\.model\.path: got .*{name}.* download the folder first"):
        setup.build(config(tmp_path / name))


def test_a_folder_that_lacks_a_tensor_names_it(tmp_path):
    params = write_model(tmp_path / "model")
    tensors = dict(published_tensors(params, SPEC))
    del tensors["model.norm.weight"]
    for file in (tmp_path / "model").glob("*.safetensors*"):
        file.unlink()
    write_folder(tmp_path / "model", iter(tensors.items()), "float32")
    parts = setup.build(config(tmp_path / "model"))
    with jax.set_mesh(parts.mesh), pytest.raises(ValueError, match=r"model\.norm\.weight"):
        initial_params(open_published(tmp_path / "model"), jax.random.key(0), parts.spec)
