"""The tree of a decoder's parameters: which stacks of layers there are, what their axes mean, how they begin."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from grpo_jax.models.block import Block, declarations
from grpo_jax.models.spec import ModelSpec

Parameters = dict[str, Any]


STACK_NAMES = ("dense_blocks", "blocks")
"""Where the parameters of stacked layers are."""


class Stack(NamedTuple):
    """Layers of one kind, whose parameters are stacked and which one scan runs.

    Attributes:
        name: Where their parameters are.
        first: Index of the first of them.
        end: Index behind the last.
        routed: Their feed-forward network is the mixture of experts.
        whole: There are no other layers.
    """

    name: str
    first: int
    end: int
    routed: bool
    whole: bool


def stacks(spec: ModelSpec) -> list[Stack]:
    """The layers in order: one stack, or two where a mixture of experts begins with ordinary layers."""
    dense = spec.experts.first_dense_layers if spec.experts else 0
    first = [Stack(STACK_NAMES[0], 0, dense, False, whole=False)] if dense else []
    return [*first, Stack(STACK_NAMES[1], dense, spec.num_layers, spec.experts is not None, whole=not dense)]


def logical_axes(spec: ModelSpec) -> Parameters:
    """Logical axes of every parameter, in the structure of ``init_params``."""
    axes: Parameters = {"embedding": ("vocab", "embed"), "final_norm": (None,)}
    for stack in stacks(spec):
        table = declarations(spec, stack.routed)
        axes[stack.name] = {name: ("layers", *one.axes) for name, one in table.items()}
    if not spec.tie_embeddings:
        axes["unembedding"] = ("embed", "vocab")
    return axes


def init_params(key: jax.Array, spec: ModelSpec) -> Parameters:
    """Fresh float32 parameters; layers are stacked along a leading axis.

    Args:
        key: PRNG key.
        spec: What to build.

    Returns:
        Nested dict of arrays.
    """
    embedding_key, block_key, unembedding_key = jax.random.split(key, 3)

    def init_block(layer_key: jax.Array, routed: bool) -> Parameters:
        with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):
            variables = Block(spec, routed).init(layer_key, method="parameters")
        return dict(variables["params"])

    params: Parameters = {
        "embedding": spec.embedding_init_std * jax.random.normal(embedding_key, (spec.vocab_size, spec.d_model)),
        "final_norm": jnp.full(spec.d_model, 1.0 - spec.norm_offset, jnp.float32),
    }
    layer_keys = jax.random.split(block_key, spec.num_layers)
    for stack in stacks(spec):
        init_stack = jax.vmap(functools.partial(init_block, routed=stack.routed))
        params[stack.name] = init_stack(layer_keys[stack.first : stack.end])
    if not spec.tie_embeddings:
        shape = (spec.d_model, spec.vocab_size)
        params["unembedding"] = spec.init_std * jax.random.normal(unembedding_key, shape)
    return params


def count(spec: ModelSpec, *, active: bool = False) -> int:
    """How many parameters a decoder has, from shapes alone.

    Args:
        spec: The decoder's spec.
        active: Count of the routed experts only as many as a token visits.

    Returns:
        The number; a tied embedding counts once.
    """
    shapes = jax.eval_shape(lambda: init_params(jax.random.key(0), spec))

    def size(path: Any, leaf: jax.ShapeDtypeStruct) -> int:
        if active and spec.experts and str(path[-1].key).startswith("expert_"):
            return leaf.size // spec.experts.count * spec.experts.per_token
        return leaf.size

    return sum(jax.tree.leaves(jax.tree_util.tree_map_with_path(size, shapes)))
