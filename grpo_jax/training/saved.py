"""Whatever holds a model: published folders, GGUF files, run folders and converted checkpoints."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding

from grpo_jax.config import RunConfig, from_nested
from grpo_jax.data.tokenizer import build_tokenizer
from grpo_jax.io.checkpoint import Checkpoints, Restored
from grpo_jax.io.run_folder import RunFolder
from grpo_jax.models import adapters, decoder
from grpo_jax.models.architecture import published_config
from grpo_jax.models.huggingface import leaf_sources, published_tensors, spec_from_huggingface
from grpo_jax.models.parameters import Parameters
from grpo_jax.models.safetensors import CONFIG, INDEX, SINGLE, read_config
from grpo_jax.models.spec import ModelSpec
from grpo_jax.models.weights import PublishedTensors, check_names, load_params
from grpo_jax.parallel import rules
from grpo_jax.training import adapted, cold_start
from grpo_jax.training.published import open_policy, open_published
from grpo_jax.training.recipe import abstract_params
from grpo_jax.training.trainer import RECIPES

CONVERTED = Path("checkpoints", "params")
"""Where a converted checkpoint has its parameters."""


class SavedModel(NamedTuple):
    """A model that was found.

    Attributes:
        description: What was found, for people.
        config: Its ``config.json``.
        spec: Its architecture.
        tokenizer: Its tokenizer, as ``build_tokenizer`` takes it.
        tensors: Its published tensors, where it comes from a published file.
        params: Its parameters, where training saved it; with their adapters, if it has them.
        base: The published model that its adapters stand beside, if they do.
    """

    description: str
    config: dict[str, Any]
    spec: ModelSpec
    tokenizer: str
    tensors: PublishedTensors | None = None
    params: Parameters | None = None
    base: str = ""

    def load(self) -> Parameters:
        """Its parameters on the mesh in use, read now where they are still on disk."""
        if self.tensors is not None:
            return load_params(self.tensors, self.spec, abstract_params(self.spec))
        assert self.params is not None, "a model has tensors or parameters"
        return self.params

    def published(self) -> Iterator[tuple[str, np.ndarray]]:
        """Its tensors under their published names, one after the other; adapters have become part of them."""
        if self.tensors is None:
            yield from published_tensors(adapters.merged(self.load(), self.spec), self.spec)
            return
        sources = leaf_sources(self.spec)
        check_names(self.tensors, self.spec, sources)
        for source in sources:
            for name in source.names:
                yield name, self.tensors.read(name, tuple(slice(0, size) for size in source.stored_shape))


def open_saved(source: Path) -> SavedModel:
    """Finds out what a path holds; on the mesh in use.

    Args:
        source: A folder with ``config.json`` and safetensors files; a ``.gguf`` file; a run folder, for the policy of
            its newest checkpoint; a folder with a converted checkpoint.

    Returns:
        The model.

    Raises:
        ValueError: for a path that holds none, or files that cannot be read.
        RunFolderInUse: for a run that is still going on.
    """
    if source.suffix == ".gguf":
        config, tensors = open_published(source)
        return SavedModel(str(source), config, spec_from_huggingface(config), str(source), tensors)
    if not source.is_dir():
        raise ValueError(f"{source} is neither a .gguf file nor a folder with {CONFIG} in it.")
    config = read_config(source)
    if "recipe" in config:
        return _open_run(source, config)
    if not any((source / name).exists() for name in (SINGLE, INDEX, CONVERTED)):
        raise ValueError(
            f"{source} holds neither {SINGLE} nor {INDEX} nor checkpoints. Files of other kinds (.bin, .pt) must be "
            "converted first."
        )
    spec = spec_from_huggingface(config)
    if (source / CONVERTED).exists():
        params = _restored(source / CONVERTED, abstract_params(spec)).state
        return SavedModel(str(source), config, spec, str(source), params=params)
    return SavedModel(str(source), config, spec, str(source), open_published(source).tensors)


def placed(params: Parameters, spec: ModelSpec) -> Parameters:
    """Parameters where a run of the mesh in use has them: those that were restored are whole on each device."""
    mesh = jax.sharding.get_mesh()
    axes = decoder.logical_axes(spec)
    if adapters.ADAPTERS in params:
        axes = adapters.attached(axes, adapters.logical_axes(spec))
    return jax.tree.map(
        lambda leaf, names: jax.device_put(leaf, NamedSharding(mesh, rules.partition(names))), params, axes
    )


def _open_run(folder: Path, values: dict[str, Any]) -> SavedModel:
    config = from_nested(RunConfig, values)
    vocab_size = build_tokenizer(config.data.tokenizer).vocab_size
    original, spec = open_policy(config.model, vocab_size)
    longest = config.data.max_prompt_tokens + config.rollout.max_new_tokens
    published = published_config(spec, longest) if original is None else original.config
    # Nothing may write to the folder meanwhile.
    with RunFolder.open(folder, values, overrides={}) as run:
        phases = {config.recipe: RECIPES[config.recipe], "cold_start": cold_start.make_recipe}
        for phase, make_recipe in phases.items():
            saved = run.checkpoints / phase
            if saved.is_dir() and any(saved.iterdir()):
                abstract = jax.eval_shape(make_recipe(config, spec).init, abstract_params(spec))
                restored = _restored(saved, abstract)
                adapted.require_same_scale(restored, spec)
                description = f"step {restored.step} of {phase} in {folder}"
                files = (published, spec, config.data.tokenizer)
                # After a cold start the adapters stand beside another model than the one that was published.
                base = config.model.path if config.model.path and not config.cold_start.steps else ""
                return SavedModel(description, *files, params=restored.state.params, base=base)
    raise ValueError(f"{folder} is a run without a checkpoint. Let it go on until its first one.")


def _restored(folder: Path, abstract: Any) -> Restored:
    mesh = jax.sharding.get_mesh()
    placed = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, jax.P())), abstract
    )
    with contextlib.closing(Checkpoints(folder, keep=2**31)) as checkpoints:
        restored = checkpoints.restore(placed, set_aside=False)
    if restored is None:
        raise ValueError(f"{folder} holds no checkpoint.")
    return restored
