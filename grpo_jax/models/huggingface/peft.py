"""Low-rank adapters as the PEFT library has them: which matrices a pattern names, and files that it and vLLM load."""

import re
from typing import Any

import numpy as np

from grpo_jax.models.adapters import ADAPTERS, INPUTS
from grpo_jax.models.huggingface.tensors import LeafSource, leaf_sources
from grpo_jax.models.parameters import Parameters
from grpo_jax.models.spec import LoRA, ModelSpec

ADAPTER_CONFIG, ADAPTER_TENSORS = "adapter_config.json", "adapter_model.safetensors"


def lora_of(spec: ModelSpec, *, rank: int, alpha: float, targets: str, rank_stabilized: bool, dropout: float) -> LoRA:
    """The adapters that a pattern asks for.

    Args:
        spec: The architecture.
        rank: R.
        alpha: Adapters are scaled by alpha / R.
        targets: Regular expression that must match the whole of a matrix's published name, such as ``q_proj``.
        rank_stabilized: Scale by alpha / sqrt(R) instead.
        dropout: Chance that a coordinate of an adapter's input is left out of a training pass.

    Returns:
        The adapters.

    Raises:
        ValueError: if the pattern matches no matrix that can have one, or attention is latent.

    Source: Hu et al. 2021; scale by the square root: Kalajdzievski 2023.
    """
    if spec.latent:
        raise ValueError(
            "config.model.lora.rank: got adapters for a model with latent attention, wanted one with ordinary "
            "attention. Set it to 0 to train the whole model."
        )
    modules = {source.path[-1]: _module(source) for source in _adaptable(spec)}
    chosen = tuple(name for name in INPUTS if name in modules and re.fullmatch(targets, modules[name]))
    if not chosen:
        raise ValueError(
            f"config.model.lora.targets: got {targets!r}, which matches nothing, wanted a regular expression that "
            f"matches some of {', '.join(sorted(set(modules.values())))}."
        )
    return LoRA(rank, alpha / (rank**0.5 if rank_stabilized else rank), chosen, dropout)


def peft_config(spec: ModelSpec, base_model: str) -> dict[str, Any]:
    """The content of ``adapter_config.json``.

    Args:
        spec: A spec with ``lora``.
        base_model: Name or folder of the model that the adapters stand beside.

    Returns:
        JSON values. The scale is written as alpha / R, whatever it was made of.
    """
    lora = spec.lora
    assert lora is not None
    modules = {_module(source) for source in _adaptable(spec) if source.path[-1] in lora.targets}
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": lora.rank,
        "lora_alpha": lora.scale * lora.rank,
        "lora_dropout": lora.dropout,
        "use_rslora": False,
        "target_modules": sorted(modules),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "modules_to_save": None,
    }


def peft_tensors(params: Parameters, spec: ModelSpec) -> dict[str, np.ndarray]:
    """The tensors of ``adapter_model.safetensors``.

    Args:
        params: A policy with adapters.
        spec: Its spec.

    Returns:
        Float32 arrays by PEFT's names: ``lora_A`` ``[R, inputs]``, ``lora_B`` ``[outputs, R]``.
    """
    tensors = {}
    for source in _adaptable(spec):
        stack, name = source.path
        pair = params[ADAPTERS].get(stack, {}).get(name)
        if pair is None:
            continue
        a, b = (np.asarray(pair[part], np.float32) for part in ("a", "b"))
        for layer, published in enumerate(source.names):
            module = f"base_model.model.{published.removesuffix('.weight')}"
            rank = b.shape[1]
            tensors[f"{module}.lora_A.weight"] = np.ascontiguousarray(a[layer].reshape(-1, rank).T)
            tensors[f"{module}.lora_B.weight"] = np.ascontiguousarray(b[layer].reshape(rank, -1).T)
    return tensors


def _adaptable(spec: ModelSpec) -> list[LeafSource]:
    return [source for source in leaf_sources(spec) if source.path[-1] in INPUTS]


def _module(source: LeafSource) -> str:
    """The published name of a matrix inside its layer's part, such as ``q_proj``."""
    return source.names[0].split(".")[-2]
