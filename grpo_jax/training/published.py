"""The policy of a run: its architecture, its adapters, and the published weights that it may start from."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from grpo_jax.config import ModelConfig
from grpo_jax.data.gguf_tokenizer import open_gguf
from grpo_jax.data.installed import located
from grpo_jax.models.gguf import GGUFTensors, config_of
from grpo_jax.models.huggingface import spec_from_huggingface
from grpo_jax.models.huggingface.peft import lora_of
from grpo_jax.models.parameters import Parameters
from grpo_jax.models.safetensors import SafetensorsFolder, read_config
from grpo_jax.models.spec import ModelSpec, from_config
from grpo_jax.models.weights import PublishedTensors, load_params
from grpo_jax.training.recipe import abstract_params, init_sharded


class Published(NamedTuple):
    """A published model whose tensors have not been read yet.

    Attributes:
        config: Its ``config.json``, or the same fields out of a GGUF file.
        tensors: Its tensors by name.
    """

    config: dict[str, Any]
    tensors: PublishedTensors


def open_published(path: Path) -> Published:
    """Opens a folder of safetensors files, or a GGUF file.

    Args:
        path: A folder with ``config.json``, a ``.gguf`` file, or the name of an installed model.

    Returns:
        The model.

    Raises:
        ValueError: if it is neither, or cannot be read.
    """
    path = located(str(path))
    if path.suffix == ".gguf":
        reader = open_gguf(path)
        return Published(config_of(reader), GGUFTensors(reader))
    if not path.is_dir():
        raise ValueError(f"{path} is neither a .gguf file nor a folder with config.json in it.")
    return Published(read_config(path), SafetensorsFolder(path))


def open_policy(config: ModelConfig, vocab_size: int) -> tuple[Published | None, ModelSpec]:
    """Finds out what a configuration's policy is.

    Args:
        config: The model's section.
        vocab_size: The tokenizer's.

    Returns:
        The published model that it starts from, or None, and its spec.

    Raises:
        ValueError: if the published model cannot be opened or does not fit, or adapters have nothing to stand beside.
    """
    published = None
    if config.path is None:
        spec = from_config(config, vocab_size)
    else:
        try:
            published = open_published(located(config.path))
        except (ValueError, OSError) as error:
            raise ValueError(
                f"config.model.path: got {config.path!r}: {error} Models are not fetched by their name on a hub: "
                "download the folder first and name it."
            ) from error
        spec = published_spec(published, config, vocab_size)
    return published, with_adapters(spec, config)


def with_adapters(spec: ModelSpec, config: ModelConfig) -> ModelSpec:
    """The spec with the adapters that the configuration asks for.

    Args:
        spec: The architecture.
        config: Its ``lora`` is used.

    Returns:
        The spec.

    Raises:
        ValueError: if adapters have nothing to stand beside.
    """
    if not config.lora.rank:
        return spec
    return dataclasses.replace(spec, lora=lora_of(spec, **dataclasses.asdict(config.lora)))


def published_spec(published: Published, config: ModelConfig, vocab_size: int) -> ModelSpec:
    """The architecture of a published model, computed as the configuration says.

    Args:
        published: The model.
        config: How it is computed; its sizes are not looked at.
        vocab_size: The tokenizer's.

    Returns:
        The spec.

    Raises:
        ValueError: if the model is of no known family, or has fewer ids than the tokenizer.
    """
    spec = computed_spec(published.config, config)
    if spec.vocab_size < vocab_size:
        raise ValueError(
            f"config.model.path: got {config.path!r}, which has {spec.vocab_size} ids, wanted at least the tokenizer's "
            f"{vocab_size}. Is config.data.tokenizer that of the model?"
        )
    return spec


def computed_spec(published: Mapping[str, Any], config: ModelConfig) -> ModelSpec:
    """The architecture that a ``config.json`` describes, computed as the configuration says.

    Args:
        published: The fields of ``config.json``.
        config: How it is computed; its sizes are not looked at.

    Returns:
        The spec.

    Raises:
        ValueError: if the model is of no known family.
    """
    return dataclasses.replace(
        spec_from_huggingface(published),
        compute_dtype=config.compute_dtype,
        remat=config.remat,
        logprob_chunk_tokens=config.logprob_chunk_tokens,
        attention=config.attention,
        attention_block_tokens=config.attention_block_tokens,
    )


def initial_params(published: Published | None, key: jax.Array, spec: ModelSpec) -> Parameters:
    """The parameters that training starts from, made or read where they live on the mesh in use.

    Args:
        published: The model to read, or None for random parameters.
        key: PRNG key of random ones.
        spec: Their spec.

    Returns:
        Nested dict of float32 arrays.

    Raises:
        ValueError: naming tensors of the published model that are missing, of another shape, or that nothing would
            read.
    """
    if published is None:
        return init_sharded(key, spec)
    return load_params(published.tensors, spec, abstract_params(spec))
