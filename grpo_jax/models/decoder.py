"""A functional decoder of the Llama family: stacked layers under a scan, with and without a cache.

Parameters are a nested dict of float32 arrays; ``logical_axes`` has the same structure. Axes: ``K`` key and value
heads and ``J`` query heads for each of them are kept apart, so that sharding K over ``tensor`` needs no reshape.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grpo_jax.models import layers
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import rules

Parameters = dict[str, Any]
Attend = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""(query, key, value) of the new positions -> attention output; the caller decides what else is seen."""


class Block(nn.Module):
    """One layer: attention and a gated feed-forward network, each behind RMSNorm and a residual."""

    spec: ModelSpec

    @nn.compact
    def __call__(
        self, x: jax.Array, rotation: tuple[jax.Array, jax.Array], attend: Attend
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Returns the layer's output and the keys and values of the new positions."""
        spec = self.spec
        K, J, C = spec.num_kv_heads, spec.queries_per_kv_head, spec.head_dim
        projection = nn.initializers.normal(spec.init_std)
        residual = nn.initializers.normal(spec.init_std / (2 * spec.num_layers) ** 0.5)
        ones, zeros = nn.initializers.ones, nn.initializers.zeros
        # Leading axes are rows and positions, or prompts and completions: the arithmetic is the same.
        residual_sharding = rules.sharding(rules.BATCH, *(None,) * (x.ndim - 1))

        def weight(name: str, initializer: Any, shape: tuple[int, ...]) -> jax.Array:
            return self.param(name, initializer, shape, jnp.float32).astype(x.dtype)

        hidden = layers.rms_norm(x, self.param("attention_norm", ones, (spec.d_model,)), spec.norm_epsilon)
        query = jnp.einsum("...D,DKJC->...KJC", hidden, weight("query", projection, (spec.d_model, K, J, C)))
        key = jnp.einsum("...D,DKC->...KC", hidden, weight("key", projection, (spec.d_model, K, C)))
        value = jnp.einsum("...D,DKC->...KC", hidden, weight("value", projection, (spec.d_model, K, C)))
        if spec.qkv_bias:
            query = query + weight("query_bias", zeros, (K, J, C))[None, None]
            key = key + weight("key_bias", zeros, (K, C))[None, None]
            value = value + weight("value_bias", zeros, (K, C))[None, None]
        if spec.qk_norm:
            query = layers.rms_norm(query, self.param("query_norm", ones, (C,)), spec.norm_epsilon)
            key = layers.rms_norm(key, self.param("key_norm", ones, (C,)), spec.norm_epsilon)
        cosine, sine = rotation
        query = layers.rotate(query, cosine[..., None, :], sine[..., None, :])
        key = layers.rotate(key, cosine, sine)
        attended = attend(query, key, value)
        x = x + jnp.einsum(
            "...KJC,KJCD->...D",
            attended,
            weight("output", residual, (K, J, C, spec.d_model)),
            out_sharding=residual_sharding,
        )
        hidden = layers.rms_norm(x, self.param("mlp_norm", ones, (spec.d_model,)), spec.norm_epsilon)
        gate = jnp.einsum("...D,DF->...F", hidden, weight("gate", projection, (spec.d_model, spec.d_ff)))
        up = jnp.einsum("...D,DF->...F", hidden, weight("up", projection, (spec.d_model, spec.d_ff)))
        x = x + jnp.einsum(
            "...F,FD->...D",
            layers.swiglu(gate, up),
            weight("down", residual, (spec.d_ff, spec.d_model)),
            out_sharding=residual_sharding,
        )
        return x, (key, value)


def logical_axes(spec: ModelSpec) -> Parameters:
    """Logical axes of every parameter, in the structure of ``init_params``."""
    block = {
        "attention_norm": (None,),
        "query": ("embed", "heads", None, None),
        "key": ("embed", "heads", None),
        "value": ("embed", "heads", None),
        "output": ("heads", None, None, "embed"),
        "mlp_norm": (None,),
        "gate": ("embed", "mlp"),
        "up": ("embed", "mlp"),
        "down": ("mlp", "embed"),
    }
    if spec.qkv_bias:
        block |= {"query_bias": ("heads", None, None), "key_bias": ("heads", None), "value_bias": ("heads", None)}
    if spec.qk_norm:
        block |= {"query_norm": (None,), "key_norm": (None,)}
    axes: Parameters = {
        "embedding": ("vocab", "embed"),
        "blocks": {name: ("layers", *names) for name, names in block.items()},
        "final_norm": (None,),
    }
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
    half = spec.head_dim // 2
    row = jnp.zeros((1, 1, spec.d_model))
    rotation = (jnp.zeros((1, 1, half)), jnp.zeros((1, 1, half)))

    def init_block(layer_key: jax.Array) -> Parameters:
        with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):
            variables = Block(spec).init(layer_key, row, rotation, lambda *qkv: qkv[0])
        return dict(variables["params"])

    params: Parameters = {
        "embedding": spec.embedding_init_std * jax.random.normal(embedding_key, (spec.vocab_size, spec.d_model)),
        "blocks": jax.vmap(init_block)(jax.random.split(block_key, spec.num_layers)),
        "final_norm": jnp.ones(spec.d_model),
    }
    if not spec.tie_embeddings:
        shape = (spec.d_model, spec.vocab_size)
        params["unembedding"] = spec.init_std * jax.random.normal(unembedding_key, shape)
    return params


def _embed(params: Parameters, spec: ModelSpec, token: jax.Array) -> jax.Array:
    table_VD = rules.shard(params["embedding"], None, None).astype(spec.compute_dtype)
    if not rules.has_mesh():
        return table_VD[token]
    return table_VD.at[token].get(out_sharding=rules.partition((rules.BATCH, *(None,) * token.ndim)))


def _apply_block(spec: ModelSpec, block: Parameters, x: jax.Array, rotation: Any, attend: Attend) -> Any:
    axes = {name: names[1:] for name, names in logical_axes(spec)["blocks"].items()}
    return Block(spec).apply({"params": rules.gather_parameters(block, axes)}, x, rotation, attend)


_REMAT_POLICIES = {
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}


def forward(
    params: Parameters,
    spec: ModelSpec,
    token_NS: Int[Array, "N S"],
    position_NS: Int[Array, "N S"],
    segment_NS: Int[Array, "N S"],
) -> Float[Array, "N S D"]:
    """Final hidden states of whole rows, for training.

    Args:
        params: From ``init_params``.
        spec: Their spec.
        token_NS: Token ids.
        position_NS: Position of each token inside its own sequence.
        segment_NS: Sequence that a token belongs to, counted from 1; 0 is padding.

    Returns:
        Normalised hidden states in the compute dtype; what stands at padding has no meaning.
    """
    mask_NSS = layers.causal_mask(segment_NS)
    rotation = layers.rotary_angles(position_NS, spec)

    def layer(x_NSD: jax.Array, block: Parameters) -> tuple[jax.Array, None]:
        attend = lambda query, key, value: layers.attention(query, key, value, mask_NSS)  # noqa: E731
        return _apply_block(spec, block, x_NSD, rotation, attend)[0], None

    if spec.remat != "none":
        layer = jax.checkpoint(layer, policy=_REMAT_POLICIES[spec.remat], prevent_cse=False)
    x_NSD, _ = jax.lax.scan(layer, _embed(params, spec, token_NS), params["blocks"])
    return layers.rms_norm(x_NSD, params["final_norm"], spec.norm_epsilon)


def unembedding(params: Parameters, spec: ModelSpec) -> Float[Array, "D V"]:
    """The output projection in the compute dtype, gathered over ``fsdp``."""
    table_DV = params["embedding"].T if spec.tie_embeddings else params["unembedding"]
    return rules.shard(table_DV, None, "vocab").astype(spec.compute_dtype)


class PromptCache(NamedTuple):
    """Keys and values of the prompts, held once per prompt and shared by its completions.

    Attributes:
        key_LBPKC: Keys.
        value_LBPKC: Values.
        mask_BP: False at padding.
        length_B: Prompt lengths in tokens.
    """

    key_LBPKC: Float[Array, "L B P K C"]
    value_LBPKC: Float[Array, "L B P K C"]
    mask_BP: Bool[Array, "B P"]
    length_B: Int[Array, "B"]


class CompletionCache(NamedTuple):
    """Keys and values of the completions so far.

    Attributes:
        key_LBGKTC: Keys; positions from ``step`` on are not written yet.
        value_LBGKTC: Values.
    """

    key_LBGKTC: Float[Array, "L B G K T C"]
    value_LBGKTC: Float[Array, "L B G K T C"]


def prefill(
    params: Parameters, spec: ModelSpec, token_BP: Int[Array, "B P"], length_B: Int[Array, "B"]
) -> tuple[Float[Array, "B D"], PromptCache]:
    """Runs right-padded prompts once.

    Args:
        params: From ``init_params``.
        spec: Their spec.
        token_BP: Prompt tokens, right-padded.
        length_B: Their lengths in tokens, >= 1.

    Returns:
        Final hidden state of each prompt's last token, and the cache.
    """
    position_BP = jnp.broadcast_to(jnp.arange(token_BP.shape[1])[None], token_BP.shape)
    mask_BP = position_BP < length_B[:, None]
    mask_BPP = layers.causal_mask(mask_BP.astype(jnp.int32))
    rotation = layers.rotary_angles(position_BP, spec)

    def layer(x_BPD: jax.Array, block: Parameters) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        attend = lambda query, key, value: layers.attention(query, key, value, mask_BPP)  # noqa: E731
        return _apply_block(spec, block, x_BPD, rotation, attend)

    x_BPD, (key, value) = jax.lax.scan(layer, _embed(params, spec, token_BP), params["blocks"])
    is_last_BP1 = (position_BP == length_B[:, None] - 1)[:, :, None]
    last_BD = jnp.sum(jnp.where(is_last_BP1, x_BPD, 0), axis=1)
    hidden_BD = layers.rms_norm(last_BD, params["final_norm"], spec.norm_epsilon)
    return hidden_BD, PromptCache(key, value, mask_BP, length_B)


def decode_step(
    params: Parameters,
    spec: ModelSpec,
    token_BG: Int[Array, "B G"],
    step: Int[Array, ""],
    prompt: PromptCache,
    completion: CompletionCache,
) -> tuple[Float[Array, "B G D"], CompletionCache]:
    """Runs one token of every completion.

    Args:
        params: From ``init_params``.
        spec: Their spec.
        token_BG: The token at completion index ``step``.
        step: Index of these tokens inside their completions, counted from 0.
        prompt: Cache of the prompts.
        completion: Cache of the completions, filled up to ``step``.

    Returns:
        Final hidden states, and the cache with these tokens in it.
    """
    position_BG = jnp.broadcast_to(prompt.length_B[:, None] + step, token_BG.shape)
    rotation = layers.rotary_angles(position_BG, spec)
    earlier_T = jnp.arange(completion.key_LBGKTC.shape[4]) < step

    def layer(x_BGD: jax.Array, xs: Any) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        block, prompt_key, prompt_value, own_key, own_value = xs
        attend = lambda query, key, value: layers.decode_attention(  # noqa: E731
            query, (prompt_key, prompt_value, prompt.mask_BP), (own_key, own_value, earlier_T), (key, value)
        )
        return _apply_block(spec, block, x_BGD, rotation, attend)

    xs = (params["blocks"], prompt.key_LBPKC, prompt.value_LBPKC, *completion)
    x_BGD, (key, value) = jax.lax.scan(layer, _embed(params, spec, token_BG), xs)
    hidden_BGD = layers.rms_norm(x_BGD, params["final_norm"], spec.norm_epsilon)
    write = lambda cache, new: jax.lax.dynamic_update_slice_in_dim(cache, new[:, :, :, :, None], step, axis=4)  # noqa: E731
    return hidden_BGD, CompletionCache(write(completion.key_LBGKTC, key), write(completion.value_LBGKTC, value))
