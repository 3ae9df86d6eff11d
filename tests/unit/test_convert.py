import dataclasses
import json
import subprocess
import sys

import jax
import numpy as np
import pytest
import safetensors.numpy

from grpo_jax import convert
from grpo_jax.config import RunConfig, from_nested, to_nested
from grpo_jax.data.tokenizer import build_tokenizer
from grpo_jax.io.checkpoint import CheckpointMismatch, Checkpoints, NoUsableCheckpoint
from grpo_jax.io.run_folder import RunFolder, RunFolderInUse
from grpo_jax.models.huggingface import spec_from_huggingface
from grpo_jax.models.parameters import init_params
from grpo_jax.models.safetensors import SafetensorsFolder
from grpo_jax.models.weights import load_params
from grpo_jax.parallel.mesh import AXES, make_mesh
from grpo_jax.training import cold_start
from grpo_jax.training.published import open_policy
from grpo_jax.training.recipe import abstract_params, init_sharded
from grpo_jax.training.trainer import RECIPES

MODEL = {"num_layers": 2, "d_model": 16, "num_heads": 2, "num_kv_heads": 2, "head_dim": 8, "d_ff": 16}
VALUES = {
    "model": MODEL,
    "data": {"prompt_template": "{problem}=", "digits": 2},
    "cold_start": {"steps": 4},
    "rollout": {"max_new_tokens": 32},
}


def run_folder(path, phases, host_state=(), **changes):
    """A run folder with checkpoints of these phases, and the parameters of each."""
    config = from_nested(RunConfig, VALUES | changes)
    _, spec = open_policy(config.model, build_tokenizer(config.data.tokenizer).vocab_size)
    saved = {}
    mesh = make_mesh(dict.fromkeys(AXES, 1) | {"fsdp": 2}, jax.devices()[:2])
    with jax.set_mesh(mesh), RunFolder.open(path, to_nested(config), overrides={}) as folder:
        for number, phase in enumerate(phases):
            make_recipe = cold_start.make_recipe if phase == "cold_start" else RECIPES[phase]
            checkpoints = Checkpoints(folder.checkpoints / phase, 2)
            for step in (1, 2):
                params = init_sharded(jax.random.key(10 * number + step), spec)
                checkpoints.save(step, jax.jit(make_recipe(config, spec).init)(params), dict(host_state))
            checkpoints.close()
            saved[phase] = jax.device_get(params)
    return spec, saved


def load(folder):
    spec = spec_from_huggingface(json.loads((folder / "config.json").read_text()))
    abstract = jax.eval_shape(lambda: init_params(jax.random.key(0), spec))
    return spec, load_params(SafetensorsFolder(folder), spec, abstract)


@pytest.mark.parametrize(
    ("phases", "recipe", "taken"),
    [
        (["cold_start", "grpo"], "grpo", "grpo"),
        (["cold_start"], "grpo", "cold_start"),
        (["ppo"], "ppo", "ppo"),
    ],
)
def test_the_newest_policy_of_a_run(tmp_path, phases, recipe, taken):
    spec, saved = run_folder(tmp_path / "run", phases, recipe=recipe)
    message = convert.convert(tmp_path / "run", tmp_path / "published")
    assert f"step 2 of {taken} in" in message
    read, params = load(tmp_path / "published")
    assert dataclasses.replace(read, init_std=spec.init_std, embedding_init_std=spec.embedding_init_std) == spec
    jax.tree.map(np.testing.assert_array_equal, params, saved[taken])
    ours, published = build_tokenizer("characters"), build_tokenizer(str(tmp_path / "published"))
    assert published.encode_prompt("12+34=") == ours.encode_prompt("12+34=")
    assert (published.eos_ids, published.pad_id) == (ours.eos_ids, ours.pad_id)


def test_a_run_with_a_published_tokenizer_keeps_its_files(tmp_path):
    run_folder(tmp_path / "first", ["grpo"])
    convert.convert(tmp_path / "first", tmp_path / "published")
    data = VALUES["data"] | {"tokenizer": str(tmp_path / "published")}
    run_folder(tmp_path / "run", ["grpo"], data=data)
    convert.convert(tmp_path / "run", tmp_path / "again")
    for name in ("tokenizer_config.json", "generation_config.json"):
        assert json.loads((tmp_path / "again" / name).read_text()) == json.loads(
            (tmp_path / "published" / name).read_text()
        )
    text = "12+34=<think>"
    assert build_tokenizer(str(tmp_path / "again")).encode(text) == build_tokenizer("characters").encode(text)


def test_through_a_checkpoint_of_parameters_and_back(tmp_path):
    _, saved = run_folder(tmp_path / "run", ["grpo"])
    convert.convert(tmp_path / "run", tmp_path / "parameters", form="checkpoint")
    assert sorted(path.name for path in (tmp_path / "parameters").iterdir()) == [
        "checkpoints",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    convert.convert(tmp_path / "parameters", tmp_path / "published")
    jax.tree.map(np.testing.assert_array_equal, load(tmp_path / "published")[1], saved["grpo"])
    convert.convert(tmp_path / "published", tmp_path / "parameters too", form="checkpoint")
    convert.convert(tmp_path / "parameters too", tmp_path / "published too")
    files = [tmp_path / name / "model.safetensors" for name in ("published", "published too")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_adapters_go_alone_or_merged(tmp_path):
    model = MODEL | {"lora": {"rank": 2, "targets": "[qo]_proj"}}
    run_folder(tmp_path / "run", ["grpo"], model=model)
    message = convert.convert(tmp_path / "run", tmp_path / "adapter", form="adapter")
    # Two layers, each with two matrices of 16 x 16.
    assert message.startswith(f"{tmp_path / 'adapter'}: {2 * 2 * 2 * 32:,} parameters from step 2 of grpo")
    assert {path.name for path in (tmp_path / "adapter").iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "base",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (2, 32.0, ["o_proj", "q_proj"])
    assert config["base_model_name_or_path"] == "base"
    convert.convert(tmp_path / "run", tmp_path / "merged")
    files = (tmp_path / "adapter/adapter_model.safetensors", tmp_path / "adapter/base/model.safetensors")
    pair, base, merged = map(safetensors.numpy.load_file, (*files, tmp_path / "merged/model.safetensors"))
    assert base.keys() == merged.keys()
    for name, matrix in base.items():
        module = f"base_model.model.{name.removesuffix('.weight')}"
        a, b = (pair.get(f"{module}.lora_{part}.weight", np.zeros(())) for part in "AB")
        np.testing.assert_allclose(merged[name], matrix + 16 * (b @ a if a.ndim else 0), atol=1e-6, err_msg=name)
    convert.convert(tmp_path / "merged", tmp_path / "parameters", form="checkpoint")
    convert.convert(tmp_path / "run", tmp_path / "parameters of the run", form="checkpoint")
    for name in ("parameters", "parameters of the run"):
        convert.convert(tmp_path / name, tmp_path / f"{name} again")
        again = (tmp_path / f"{name} again" / "model.safetensors").read_bytes()
        assert again == (tmp_path / "merged" / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match=r"--form: got 'adapter', but .*merged has no adapters, wanted a run"):
        convert.convert(tmp_path / "merged", tmp_path / "none", form="adapter")


def test_adapters_are_not_scaled_otherwise_than_they_were_trained(tmp_path):
    model = MODEL | {"lora": {"rank": 4, "alpha": 8.0}}
    run_folder(tmp_path / "run", ["grpo"], host_state={"lora_scale": 2.0}, model=model)
    edited = json.loads((tmp_path / "run" / "config.json").read_text())
    edited["model"]["lora"]["alpha"] = 32.0
    (tmp_path / "run" / "config.json").write_text(json.dumps(edited))
    wanted = (
        r"config\.model\.lora: alpha and rank_stabilized scale the adapters by 8, but those of checkpoint 2 were "
        r"trained with 2: alpha 8, or 4 with rank_stabilized"
    )
    for form in ("adapter", "huggingface"):
        with pytest.raises(CheckpointMismatch, match=wanted):
            convert.convert(tmp_path / "run", tmp_path / "to", form=form)
    edited["model"]["lora"] |= {"alpha": 4.0, "rank_stabilized": True}
    (tmp_path / "run" / "config.json").write_text(json.dumps(edited))
    convert.convert(tmp_path / "run", tmp_path / "to", form="adapter")
    assert json.loads((tmp_path / "to" / "adapter_config.json").read_text())["lora_alpha"] == 8.0


def test_a_damaged_newest_checkpoint_is_named_and_nothing_is_renamed(tmp_path):
    run_folder(tmp_path / "run", ["grpo"])
    checkpoints = tmp_path / "run" / "checkpoints" / "grpo"
    for file in (checkpoints / "2").rglob("*"):
        if file.is_file() and file.stat().st_size > 200:
            file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(NoUsableCheckpoint, match=r"newest checkpoint cannot be used \(step 2: .* let the run go"):
        convert.convert(tmp_path / "run", tmp_path / "published")
    assert sorted(path.name for path in checkpoints.iterdir()) == ["1", "2"]


def test_a_run_that_goes_on_is_left_alone(tmp_path):
    run_folder(tmp_path / "run", ["grpo"])
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    with RunFolder.open(tmp_path / "run", config, overrides={}), pytest.raises(RunFolderInUse, match="is in use by"):
        convert.convert(tmp_path / "run", tmp_path / "published")
    assert not (tmp_path / "published").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"], "nothing unfinished is left"


def test_sources_without_a_model_are_refused(tmp_path):
    def opened(content=None, text=None):
        folder = tmp_path / "source"
        folder.mkdir(exist_ok=True)
        if content is not None or text is not None:
            (folder / "config.json").write_text(text or json.dumps(content))
        return lambda: convert.convert(folder, tmp_path / "to")

    with pytest.raises(ValueError, match=r"source is neither a \.gguf file nor a folder with config\.json in it"):
        convert.convert(tmp_path / "source", tmp_path / "to")
    with pytest.raises(ValueError, match=r"config\.json: no such file, wanted a folder with a model in it"):
        opened()()
    with pytest.raises(ValueError, match=r"config\.json is no JSON: .*Restore it from a copy"):
        opened(text="{")()
    with pytest.raises(ValueError, match=r"config\.json: got a list, wanted a JSON object"):
        opened(text="[]")()
    with pytest.raises(ValueError, match=r"holds neither model\.safetensors nor .*\(\.bin, \.pt\) must be converted"):
        opened({"model_type": "llama"})()
    with pytest.raises(ValueError, match=r"is a run without a checkpoint\. Let it go on"):
        opened(to_nested(from_nested(RunConfig, VALUES)))()
    with pytest.raises(ValueError, match=r"x\.gguf: no such file"):
        convert.convert(tmp_path / "x.gguf", tmp_path / "to")


def test_a_failure_leaves_no_folder_behind_and_takes_none_away(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(ValueError, match="is neither"):
        convert.convert(tmp_path / "absent", tmp_path / "mine" / "new" / "newer" / "to")
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"]


def test_what_exists_is_not_overwritten(tmp_path):
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "precious").touch()
    with pytest.raises(FileExistsError, match=r"--to: .*to exists already, wanted a new folder"):
        convert.convert(tmp_path, tmp_path / "to")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"wanted both --source PATH and --to FOLDER"),
        (["--source=a", "--to=b", "--form=onnx"], r"--form: got 'onnx', wanted one of huggingface, checkpoint"),
        (["--source=a", "--to=b", "--dtype=int8"], r"--dtype: got 'int8', wanted one of float32, bfloat16"),
        (["--source=a", "--to=b", "--form=checkpoint", "--dtype=bfloat16"], r"--dtype: .* hold what is trained"),
        (["--source=a", "--to=b", "--config.steps=3"], r"--config: got a configuration, wanted none"),
    ],
)
def test_command_lines_that_cannot_work_are_refused(monkeypatch, arguments, message):
    monkeypatch.setattr(sys, "argv", ["convert", *arguments])
    with pytest.raises(ValueError, match=message):
        convert.main()


def test_the_command(tmp_path):
    _, saved = run_folder(tmp_path / "run", ["grpo"])
    command = [sys.executable, "-m", "grpo_jax.convert", "--source", tmp_path / "run", "--to", tmp_path / "to"]
    done = subprocess.run([*command, "--dtype=bfloat16"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "parameters from step 2 of grpo in" in done.stdout
    rounded = jax.tree.map(lambda leaf: leaf.astype(jax.numpy.bfloat16).astype(np.float32), saved["grpo"])
    jax.tree.map(np.testing.assert_array_equal, load(tmp_path / "to")[1], rounded)
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert again.stderr.startswith(f"error: --to: {tmp_path / 'to'} exists already")


def test_a_run_that_began_with_a_published_model_goes_back_to_its_form(tmp_path):
    base = tmp_path / "base"
    run_folder(tmp_path / "first", ["grpo"])
    convert.convert(tmp_path / "first", base)
    values = {"model": {"path": str(base)}, "data": VALUES["data"] | {"tokenizer": str(base)}}
    config = from_nested(RunConfig, values)
    spec, params = load(base)
    mesh = make_mesh(dict.fromkeys(AXES, 1), jax.devices()[:1])
    with jax.set_mesh(mesh), RunFolder.open(tmp_path / "second", to_nested(config), overrides={}) as folder:
        placed = jax.tree.map(lambda leaf, like: jax.device_put(leaf, like.sharding), params, abstract_params(spec))
        checkpoints = Checkpoints(folder.checkpoints / "grpo", 2)
        checkpoints.save(1, jax.jit(RECIPES["grpo"](config, spec).init)(placed), {})
        checkpoints.close()
    convert.convert(tmp_path / "second", tmp_path / "back")
    assert json.loads((tmp_path / "back" / "config.json").read_text()) == json.loads((base / "config.json").read_text())
    for name in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / "back" / name).read_bytes() == (base / name).read_bytes()
