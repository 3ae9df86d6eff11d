"""Models where they are stored: published folders, GGUF files, checkpoints of parameters, and runs."""

import contextlib
import functools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding

from grpo_jax.config import RunConfig, from_nested
from grpo_jax.data.gguf_tokenizer import from_gguf, open_gguf
from grpo_jax.data.installed import located
from grpo_jax.data.publication import published_files, write_files
from grpo_jax.data.tokenizer import build_tokenizer
from grpo_jax.io.checkpoint import Checkpoints
from grpo_jax.io.run_folder import RunFolder
from grpo_jax.models.adapters import merged
from grpo_jax.models.architecture import published_config
from grpo_jax.models.gguf import GGUFTensors, config_of
from grpo_jax.models.huggingface import leaf_sources, published_tensors, spec_from_huggingface
from grpo_jax.models.parameters import Parameters
from grpo_jax.models.safetensors import CONFIG, INDEX, SINGLE, SafetensorsFolder, read_config
from grpo_jax.models.spec import ModelSpec
from grpo_jax.models.weights import PublishedTensors, check_names, load_params
from grpo_jax.training import cold_start
from grpo_jax.training.published import open_policy
from grpo_jax.training.recipe import abstract_params
from grpo_jax.training.trainer import RECIPES

PARAMS = Path("checkpoints", "params")
"""Where a folder has a checkpoint of parameters alone."""

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


class StoredModel(NamedTuple):
    """A model that can be read.

    Attributes:
        description: What was found, for people.
        config: Its ``config.json``.
        spec: Its architecture.
        tokenizer: Its tokenizer, as ``build_tokenizer`` takes it.
        write_tokenizer: Writes tokenizer and generation files into a folder.
        tensors: Its published tensors, where it comes from a published file.
        params: Its parameters, where training saved it; with their adapters, if it has them.
        base: The published model that it was trained from, if it was.
    """

    description: str
    config: dict[str, Any]
    spec: ModelSpec
    tokenizer: str
    write_tokenizer: Callable[[Path], None]
    tensors: PublishedTensors | None = None
    params: Parameters | None = None
    base: str = ""

    def merged(self) -> Parameters:
        """Its parameters, of which its adapters have become part."""
        if self.tensors is not None:
            return load_params(self.tensors, self.spec, abstract_params(self.spec))
        assert self.params is not None, "a model has tensors or parameters"
        return merged(self.params, self.spec)

    def published(self) -> Iterator[tuple[str, np.ndarray]]:
        """Its tensors under their published names, one after the other."""
        if self.tensors is None:
            yield from published_tensors(self.merged(), self.spec)
            return
        sources = leaf_sources(self.spec)
        check_names(self.tensors, self.spec, sources)
        for source in sources:
            for name in source.names:
                yield name, self.tensors.read(name, tuple(slice(0, size) for size in source.stored_shape))


def open_model(source: Path) -> StoredModel:
    """Finds out what a path holds.

    Args:
        source: A folder with config.json and safetensors files, a ``.gguf`` file, a run folder (its newest policy), or
            a folder with a checkpoint of parameters; or the name of an installed model.

    Returns:
        The model.

    Raises:
        ValueError: for a path that holds none, or files that cannot be read.
    """
    source = located(str(source))
    if source.suffix == ".gguf":
        reader = open_gguf(source)
        files = from_gguf(reader, source)
        config = config_of(reader)
        spec = spec_from_huggingface(config)
        write_tokenizer = functools.partial(write_files, files)
        return StoredModel(str(source), config, spec, str(source), write_tokenizer, GGUFTensors(reader))
    if not source.is_dir():
        raise ValueError(f"{source} is neither a .gguf file nor a folder with {CONFIG} in it.")
    config = read_config(source)
    if "recipe" in config:
        return _open_run(source, config)
    if not any((source / name).exists() for name in (SINGLE, INDEX, PARAMS)):
        raise ValueError(
            f"{source} holds neither {SINGLE} nor {INDEX} nor checkpoints. Files of other kinds (.bin, .pt) "
            "must be converted first."
        )
    spec, write_tokenizer = spec_from_huggingface(config), functools.partial(_copy_tokenizer, source)
    if (source / PARAMS).exists():
        params = _restored(source / PARAMS, abstract_params(spec))[1]
        return StoredModel(str(source), config, spec, str(source), write_tokenizer, params=params)
    return StoredModel(str(source), config, spec, str(source), write_tokenizer, SafetensorsFolder(source))


def _open_run(folder: Path, values: dict[str, Any]) -> StoredModel:
    config = from_nested(RunConfig, values)
    vocab_size = build_tokenizer(config.data.tokenizer).vocab_size
    original, spec = open_policy(config.model, vocab_size)
    longest = config.data.max_prompt_tokens + config.rollout.max_new_tokens
    published = published_config(spec, longest) if original is None else original.config
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
                write_tokenizer = functools.partial(write_files, files)
                return StoredModel(
                    description,
                    published,
                    spec,
                    config.data.tokenizer,
                    write_tokenizer,
                    params=state.params,
                    base=config.model.path or "",
                )
    raise ValueError(f"{folder} is a run without a checkpoint. Let it go on until its first one.")


def _restored(folder: Path, abstract: Any) -> tuple[int, Any]:
    mesh = jax.sharding.get_mesh()
    placed = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, jax.P())), abstract
    )
    with contextlib.closing(Checkpoints(folder, keep=2**31)) as checkpoints:
        restored = checkpoints.restore(placed)
    if restored is None:
        raise ValueError(f"{folder} holds no checkpoint.")
    return restored.step, restored.state


def _copy_tokenizer(source: Path, target: Path) -> None:
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
