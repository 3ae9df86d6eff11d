"""Between the tensors of a published checkpoint and our parameter tree, by one table read in both directions.

A published matrix is ``[outputs, inputs]`` for one layer (and one expert); ours has inputs first, heads apart, and
layers (and experts) stacked. Rotated coordinates of latent attention are published in pairs and kept in halves here.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
import numpy as np

from grpo_jax.models import parameters
from grpo_jax.models.parameters import Parameters
from grpo_jax.models.spec import ModelSpec

_ATTENTION = {
    "attention_norm": "input_layernorm.weight",
    "query": "self_attn.q_proj.weight",
    "key": "self_attn.k_proj.weight",
    "value": "self_attn.v_proj.weight",
    "query_bias": "self_attn.q_proj.bias",
    "key_bias": "self_attn.k_proj.bias",
    "value_bias": "self_attn.v_proj.bias",
    "query_norm": "self_attn.q_norm.weight",
    "key_norm": "self_attn.k_norm.weight",
    "output": "self_attn.o_proj.weight",
    "query_down": "self_attn.q_a_proj.weight",
    "query_latent_norm": "self_attn.q_a_layernorm.weight",
    "query_up": "self_attn.q_b_proj.weight",
    "latent_down": "self_attn.kv_a_proj_with_mqa.weight",
    "latent_norm": "self_attn.kv_a_layernorm.weight",
    "latent_up": "self_attn.kv_b_proj.weight",
}
_TWO_NORMS = {"mlp_norm": "post_attention_layernorm.weight"}
_FOUR_NORMS = {
    "post_attention_norm": "post_attention_layernorm.weight",
    "mlp_norm": "pre_feedforward_layernorm.weight",
    "post_mlp_norm": "post_feedforward_layernorm.weight",
}
_FEED_FORWARD = {
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
    "router": "mlp.gate.weight",
    "router_bias": "mlp.gate.e_score_correction_bias",
    "expert_gate": "mlp.experts.{expert}.gate_proj.weight",
    "expert_up": "mlp.experts.{expert}.up_proj.weight",
    "expert_down": "mlp.experts.{expert}.down_proj.weight",
    "shared_gate": "mlp.shared_experts.gate_proj.weight",
    "shared_up": "mlp.shared_experts.up_proj.weight",
    "shared_down": "mlp.shared_experts.down_proj.weight",
}
_MIXTRAL = {
    "router": "block_sparse_moe.gate.weight",
    "expert_gate": "block_sparse_moe.experts.{expert}.w1.weight",
    "expert_up": "block_sparse_moe.experts.{expert}.w3.weight",
    "expert_down": "block_sparse_moe.experts.{expert}.w2.weight",
}
_OUTSIDE = {
    "embedding": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "unembedding": "lm_head.weight",
}


class LeafSource(NamedTuple):
    """Where one leaf of our tree is in a published checkpoint.

    Attributes:
        path: Keys of the leaf in our tree.
        shape: Its shape.
        names: Published tensors, one for each index of the stacked leading axes, in row-major order.
        stacked: How many leading axes are stacked: layers, experts.
        stored_shape: Shape of each published tensor.
        inputs: How many axes of an unstacked leaf are a matrix's inputs; 0 where nothing is transposed.
        paired: How many of the last coordinates are published in pairs.
    """

    path: tuple[str, ...]
    shape: tuple[int, ...]
    names: tuple[str, ...]
    stacked: int
    stored_shape: tuple[int, ...]
    inputs: int
    paired: int


def leaf_sources(spec: ModelSpec) -> list[LeafSource]:
    """The table for one spec: every leaf of ``init_params`` with the published tensors that it is made of.

    Args:
        spec: The decoder's spec.

    Returns:
        One entry for each leaf. Reading them one by one keeps one leaf in memory at a time.
    """
    shapes = jax.eval_shape(lambda: parameters.init_params(jax.random.key(0), spec))
    sources = [
        _source((name,), leaf.shape, (_OUTSIDE[name],), 0, spec) for name, leaf in shapes.items() if name in _OUTSIDE
    ]
    suffixes = _ATTENTION | (_FOUR_NORMS if spec.post_norms else _TWO_NORMS) | _FEED_FORWARD
    if spec.experts and not spec.qk_norm and not spec.latent:
        suffixes |= _MIXTRAL
    for stack in parameters.stacks(spec):
        for name, leaf in shapes[stack.name].items():
            layers = [f"model.layers.{layer}.{suffixes[name]}" for layer in range(stack.first, stack.end)]
            if name.startswith("expert_"):
                names = tuple(layer.format(expert=e) for layer in layers for e in range(leaf.shape[1]))
                sources.append(_source((stack.name, name), leaf.shape, names, 2, spec))
            else:
                sources.append(_source((stack.name, name), leaf.shape, tuple(layers), 1, spec))
    return sources


def _source(
    path: tuple[str, ...], shape: tuple[int, ...], names: tuple[str, ...], stacked: int, spec: ModelSpec
) -> LeafSource:
    own, name = shape[stacked:], path[-1]
    paired = 0
    if spec.latent and name in ("query", "query_up", "latent_down"):
        paired = spec.latent.rotary_dim
    if name == "embedding":
        return LeafSource(path, shape, names, stacked, own, 0, 0)
    if name.endswith(("norm", "bias")):
        return LeafSource(path, shape, names, stacked, (math.prod(own),), 0, 0)
    inputs = len(own) - 1 if name == "output" else 1
    stored = (math.prod(own[inputs:]), math.prod(own[:inputs]))
    return LeafSource(path, shape, names, stacked, stored, inputs, paired)


def read_leaf(tensors: Mapping[str, np.ndarray], source: LeafSource) -> np.ndarray:
    """Makes one leaf of our tree.

    Args:
        tensors: Published tensors by name; each needed one is looked up once, so the mapping may read on demand.
        source: From ``leaf_sources``.

    Returns:
        A float32 array.

    Raises:
        ValueError: naming a tensor whose shape is not the spec's.
    """
    leaf = np.empty((len(source.names), *source.shape[source.stacked :]), np.float32)
    for index, name in enumerate(source.names):
        stored = np.asarray(tensors[name])
        if stored.shape != source.stored_shape:
            raise ValueError(
                f"checkpoint: tensor {name}: got shape {stored.shape}, wanted {source.stored_shape}. "
                "Is this the checkpoint that config.json describes?"
            )
        leaf[index] = _in_halves(_transposed(stored, source).reshape(leaf.shape[1:]), source.paired)
    return leaf.reshape(source.shape)


def _transposed(matrix: np.ndarray, source: LeafSource) -> np.ndarray:
    return matrix.T if source.inputs else matrix


def _in_halves(array: np.ndarray, paired: int) -> np.ndarray:
    if not paired:
        return array
    rest, pairs = array[..., :-paired], array[..., -paired:]
    return np.concatenate([rest, pairs[..., ::2], pairs[..., 1::2]], axis=-1)


def _in_pairs(array: np.ndarray, paired: int) -> np.ndarray:
    if not paired:
        return array
    rest, halves = array[..., :-paired], array[..., -paired:]
    pairs = np.stack([halves[..., : paired // 2], halves[..., paired // 2 :]], axis=-1)
    return np.concatenate([rest, pairs.reshape(halves.shape)], axis=-1)


def published_tensors(params: Parameters, spec: ModelSpec) -> Iterator[tuple[str, np.ndarray]]:
    """The tensors of a published checkpoint from our parameter tree, one after the other.

    Args:
        params: Nested dict of arrays, in the structure of ``init_params``.
        spec: Their spec.

    Yields:
        Published names and arrays in the dtype of the leaves; the host has one leaf at a time.
    """
    for source in leaf_sources(spec):
        leaf = params
        for key in source.path:
            leaf = leaf[key]
        leaf = np.asarray(leaf)
        if leaf.shape != source.shape:
            raise ValueError(f"parameter {'/'.join(source.path)}: got shape {leaf.shape}, wanted {source.shape}.")
        for name, own in zip(source.names, leaf.reshape(-1, *source.shape[source.stacked :]), strict=True):
            array = _in_pairs(own, source.paired)
            if source.inputs:
                array = array.reshape(source.stored_shape[::-1]).T
            yield name, np.ascontiguousarray(array.reshape(source.stored_shape))
