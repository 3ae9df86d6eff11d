"""Converts models between published folders, GGUF files and what training saves.

python -m grpo_jax.convert --source PATH --to FOLDER [--form huggingface|checkpoint] [--dtype float32|bfloat16]

  --source PATH         one of: a folder with config.json and safetensors files; a .gguf file, which is dequantized; a
                        run folder, for the policy of its newest checkpoint; a folder that --form checkpoint wrote
  --to FOLDER           a new folder; it appears only when it is whole
  --form huggingface    (default) config.json, safetensors files and the tokenizer's files, as transformers reads them
  --form checkpoint     the same, with float32 parameters in checkpoints/params in the place of the safetensors files:
                        restored in parts onto any mesh
  --dtype               of safetensors files (default: float32, which is what is trained)

Works on the CPU alone, whatever accelerators there are. Exit status: 0 done, 2 bad command line or model, 3 no usable
checkpoint, 5 the run is still going on, 6 the checkpoint is not that of the configuration.
"""

import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import flags
from jax.sharding import NamedSharding

from grpo_jax import cli
from grpo_jax.config import ConfigError, RunConfig, from_nested
from grpo_jax.data.gguf_tokenizer import from_gguf, open_gguf
from grpo_jax.data.publication import published_files, write_files
from grpo_jax.data.tokenizer import build_tokenizer
from grpo_jax.io.checkpoint import Checkpoints
from grpo_jax.io.run_folder import RunFolder
from grpo_jax.models import spec as spec_lib
from grpo_jax.models.architecture import published_config
from grpo_jax.models.gguf import GGUFTensors, config_of
from grpo_jax.models.huggingface import leaf_sources, spec_from_huggingface, to_huggingface
from grpo_jax.models.parameters import Parameters
from grpo_jax.models.safetensors import CONFIG, INDEX, SINGLE, SafetensorsFolder, read_config, write_folder
from grpo_jax.models.spec import ModelSpec
from grpo_jax.models.weights import PublishedTensors, check_names, load_params
from grpo_jax.parallel.mesh import AXES, make_mesh
from grpo_jax.training import cold_start
from grpo_jax.training.published import open_published, published_spec
from grpo_jax.training.recipe import abstract_params
from grpo_jax.training.trainer import RECIPES

FORMS = ("huggingface", "checkpoint")
DTYPES = ("float32", "bfloat16")

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
)
"""What else a published folder may hold; copied as it is."""

_PARAMS = "params"


class Model(NamedTuple):
    """A model to convert.

    Attributes:
        description: What was found, for people.
        config: Its ``config.json``.
        write_tokenizer: Writes tokenizer and generation files into a folder.
        tensors: Its published tensors, where it comes from a published file.
        params: Its parameters, where training saved it.
    """

    description: str
    config: dict[str, Any]
    write_tokenizer: Callable[[Path], None]
    tensors: PublishedTensors | None = None
    params: Parameters | None = None

    def published(self, spec: ModelSpec) -> Iterator[tuple[str, np.ndarray]]:
        """The tensors under their published names, one after the other."""
        if self.tensors is None:
            assert self.params is not None, "a model has tensors or parameters"
            yield from to_huggingface(self.params, spec).items()
            return
        sources = leaf_sources(spec)
        check_names(self.tensors, spec, sources)
        for source in sources:
            for name in source.names:
                yield name, self.tensors.read(name, tuple(slice(0, size) for size in source.stored_shape))


def main() -> int:
    """Runs the command line; see the module's docstring."""
    if {"--help", "-h", "--helpfull"} & set(sys.argv):
        print(__doc__)
        return 0
    values = flags.FlagValues()
    flags.DEFINE_string("source", None, "What to convert.", flag_values=values)
    flags.DEFINE_string("to", None, "New folder.", flag_values=values)
    flags.DEFINE_string("form", "huggingface", "huggingface or checkpoint.", flag_values=values)
    flags.DEFINE_string("dtype", "float32", "float32 or bfloat16.", flag_values=values)
    command = cli.parse(sys.argv, values, config_required=False)
    if command.name or command.overrides:
        raise ConfigError("--config: got a configuration, wanted none: a conversion reads the source's own.")
    given = command.flags
    if given.source is None or given.to is None:
        raise ConfigError("convert: wanted both --source PATH and --to FOLDER. --help shows what they may be.")
    for flag, choices in (("form", FORMS), ("dtype", DTYPES)):
        if given[flag].value not in choices:
            raise ConfigError(f"--{flag}: got {given[flag].value!r}, wanted one of {', '.join(choices)}.")
    if given.form == "checkpoint" and given.dtype != "float32":
        raise ConfigError("--dtype: got 'bfloat16', wanted float32, since a checkpoint holds what is trained.")
    jax.config.update("jax_platforms", "cpu")
    try:
        print(convert(Path(given.source), Path(given.to), form=given.form, dtype=given.dtype))
    except (ValueError, OSError) as error:
        if hasattr(error, "exit_status"):
            raise
        raise ConfigError(str(error)) from error
    return 0


def convert(source: Path, target: Path, *, form: Any = "huggingface", dtype: Any = "float32") -> str:
    """Converts one model.

    Args:
        source: What to convert.
        target: A folder that does not exist yet, or is empty.
        form: One of ``FORMS``.
        dtype: One of ``DTYPES``, for safetensors files.

    Returns:
        A sentence for people on what was written.

    Raises:
        ValueError: for a source that is no model, or that cannot be converted.
        FileExistsError: where the target holds something already.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"--to: {target} exists already, wanted a new folder.")
    target.parent.mkdir(parents=True, exist_ok=True)
    mesh = make_mesh(dict.fromkeys(AXES, 1), jax.devices()[:1])
    unfinished = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        with jax.set_mesh(mesh):
            model = open_model(source)
            spec = spec_from_huggingface(model.config)
            if form == "checkpoint":
                params = model.params if model.tensors is None else _placed(model.tensors, spec)
                with contextlib.closing(Checkpoints(unfinished / "checkpoints" / _PARAMS, 1)) as checkpoints:
                    checkpoints.save(0, params, {})
            else:
                write_folder(unfinished, model.published(spec), dtype)
        model.write_tokenizer(unfinished)
        config = {name: value for name, value in model.config.items() if name != "dtype"} | {"torch_dtype": dtype}
        (unfinished / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        unfinished.chmod(0o755)
        unfinished.rename(target)
    except BaseException:
        shutil.rmtree(unfinished)
        raise
    parameters = sum(int(np.prod(part.shape)) for part in leaf_sources(spec))
    return f"{target}: {parameters:,} parameters from {model.description}"


def open_model(source: Path) -> Model:
    """Finds out what a path holds.

    Args:
        source: See the module's docstring.

    Returns:
        The model.

    Raises:
        ValueError: for a path that holds none, or files that cannot be read.
    """
    if source.suffix == ".gguf":
        reader = open_gguf(source)
        files = from_gguf(reader, source)
        return Model(str(source), config_of(reader), lambda to: write_files(files, to), GGUFTensors(reader))
    if not source.is_dir():
        raise ValueError(f"--source: {source} is neither a .gguf file nor a folder with {CONFIG} in it.")
    config = read_config(source)
    if "recipe" in config:
        return _open_run(source, config)
    if (source / SINGLE).exists() or (source / INDEX).exists():
        return Model(str(source), config, lambda to: _copy_tokenizer(source, to), SafetensorsFolder(source))
    if (source / "checkpoints" / _PARAMS).is_dir():
        spec = spec_from_huggingface(config)
        params = _restored(source / "checkpoints" / _PARAMS, abstract_params(spec))[1]
        return Model(str(source), config, lambda to: _copy_tokenizer(source, to), params=params)
    raise ValueError(
        f"--source: {source} holds neither {SINGLE} nor {INDEX} nor checkpoints. Files of other kinds (.bin, .pt) must "
        "be converted first."
    )


def _open_run(folder: Path, values: dict[str, Any]) -> Model:
    config = from_nested(RunConfig, values)
    vocab_size = build_tokenizer(config.data.tokenizer).vocab_size
    if config.model.path is None:
        spec = spec_lib.from_config(config.model, vocab_size)
        published = published_config(spec, config.data.max_prompt_tokens + config.rollout.max_new_tokens)
    else:
        original = open_published(Path(config.model.path))
        spec, published = published_spec(original, config.model, vocab_size), original.config
    files = published_files(config.data.tokenizer)
    # Nothing may write to the folder meanwhile.
    with RunFolder.open(folder, values, overrides={}) as run:
        phases = {config.recipe: RECIPES[config.recipe], "cold_start": cold_start.make_recipe}
        for phase, make_recipe in phases.items():
            saved = run.checkpoints / phase
            if saved.is_dir() and any(saved.iterdir()):
                abstract = jax.eval_shape(make_recipe(config, spec).init, abstract_params(spec))
                step, state = _restored(saved, abstract)
                description = f"step {step} of {phase} in {folder}"
                return Model(description, published, lambda to: write_files(files, to), params=state.params)
    raise ValueError(f"--source: {folder} is a run without a checkpoint. Let it go on until its first one.")


def _restored(folder: Path, abstract: Any) -> tuple[int, Any]:
    mesh = jax.sharding.get_mesh()
    placed = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, jax.P())), abstract
    )
    with contextlib.closing(Checkpoints(folder, keep=2**31)) as checkpoints:
        restored = checkpoints.restore(placed)
    if restored is None:
        raise ValueError(f"--source: {folder} holds no checkpoint.")
    return restored.step, restored.state


def _placed(tensors: PublishedTensors, spec: ModelSpec) -> Parameters:
    return load_params(tensors, spec, abstract_params(spec))


def _copy_tokenizer(source: Path, target: Path) -> None:
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


if __name__ == "__main__":
    cli.run(main)
