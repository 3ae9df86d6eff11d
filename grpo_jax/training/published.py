"""A policy that starts from published weights."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from grpo_jax.config import ModelConfig
from grpo_jax.data.gguf_tokenizer import open_gguf
from grpo_jax.models.gguf import GGUFTensors, config_of
from grpo_jax.models.huggingface import spec_from_huggingface
from grpo_jax.models.parameters import Parameters
from grpo_jax.models.safetensors import SafetensorsFolder, read_config
from grpo_jax.models.spec import ModelSpec
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
        path: A folder with ``config.json``, or a ``.gguf`` file.

    Returns:
        The model.

    Raises:
        ValueError: if it is neither, or cannot be read.
    """
    if path.suffix == ".gguf":
        reader = open_gguf(path)
        return Published(config_of(reader), GGUFTensors(reader))
    if not path.is_dir():
        raise ValueError(f"{path} is neither a .gguf file nor a folder with config.json in it.")
    return Published(read_config(path), SafetensorsFolder(path))


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
