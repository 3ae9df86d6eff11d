"""A functional decoder: stacked layers under a scan, with and without a cache.

Parameters are a nested dict of float32 arrays; ``logical_axes`` has the same structure. Axes: ``K`` key and value
heads and ``J`` query heads for each of them are kept apart, so that sharding K over ``tensor`` needs no reshape.
Families of models differ by the fields of their ``ModelSpec``.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int, Integer

from grpo_jax.models import adapters, attention, moe, precision, rotary
from grpo_jax.models.block import Attend, Block, Extras
from grpo_jax.models.cache import CompletionCache, PromptCache, empty_cache, kept_of, written
from grpo_jax.models.ends import embed, final_norm, token_logprobs, unembedding
from grpo_jax.models.parameters import Parameters, Stack, init_params, logical_axes, stacks
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import rules

__all__ = [
    "CompletionCache",
    "Parameters",
    "PromptCache",
    "decode_step",
    "empty_cache",
    "forward",
    "forward_with_load",
    "init_params",
    "logical_axes",
    "prefill",
    "token_logprobs",
    "unembedding",
]


_LAYER_INPUT = "layer_input"

_REMAT_POLICIES = {
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
    "host": jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=[_LAYER_INPUT],
        offload_src="device",
        offload_dst="pinned_host",
    ),
}


def _window(spec: ModelSpec) -> int | jax.Array:
    """Every layer's window: one number where all are alike, or an array of them."""
    if len(set(spec.windows)) > 1:
        return jnp.array(spec.windows, jnp.int32)
    return spec.windows[0] if spec.windows else 0


def _run_layers(
    params: Parameters,
    spec: ModelSpec,
    x: jax.Array,
    position: jax.Array,
    attend: Callable[[int | jax.Array, Any], Attend],
    *,
    keep: Callable[[Extras], Any],
    inputs: Any = None,
    choice: jax.Array | None = None,
    absorbed: bool = False,
    dropout_key_N: jax.Array | None = None,
) -> tuple[jax.Array, Any]:
    """Runs every layer.

    Args:
        params: From ``init_params``.
        spec: Their spec.
        x: Embeddings.
        position: Positions of what is embedded.
        attend: From a layer's window and its slice of ``inputs`` to how it attends.
        keep: What of a layer's extras is returned, stacked over the layers in which it is not None.
        inputs: Tree of arrays with a leading axis L.
        choice: Experts to visit, with a leading axis of the layers that have some.
        absorbed: See ``Block``.
        dropout_key_N: See ``forward``.

    Returns:
        The last layer's output, not normalised, and what was kept.
    """
    window, rotation = _window(spec), rotary.angles(position, spec)
    narrow = None if spec.window_rope_theta is None else rotary.window_angles(position, spec)
    axes = logical_axes(spec)

    def layer(stack: Stack, x: jax.Array, xs: Any) -> tuple[jax.Array, Any]:
        block, own_adapters, own_window, own_inputs, own_choice = xs
        x = checkpoint_name(x, _LAYER_INPUT)
        own_window = window if own_window is None else own_window
        own_rotation = rotation
        if narrow is not None:
            own_rotation = jax.tree.map(lambda near, far: jnp.where(own_window > 0, near, far), narrow, rotation)
        names = {name: leaf_axes[1:] for name, leaf_axes in axes[stack.name].items()}
        variables = {"params": precision.ready(block, names, spec.compute_dtype)}
        corrections = adapters.of_layer(own_adapters, spec, stack, dropout_key_N)
        given = (x, own_rotation, attend(own_window, own_inputs), corrections, own_choice)
        applied: Any = Block(spec, stack.routed, absorbed).apply(variables, *given)
        return applied[0], keep(applied[1])

    kept = []
    for stack in stacks(spec):
        body = functools.partial(layer, stack)
        if spec.remat != "none":
            body = jax.checkpoint(body, policy=_REMAT_POLICIES[spec.remat], prevent_cse=False)
        part = lambda leaf, stack=stack: leaf if stack.whole else leaf[stack.first : stack.end]  # noqa: E731
        windows = None if isinstance(window, int) else part(window)
        choices = choice if stack.routed else None
        xs = (params[stack.name], adapters.of_stack(params, stack), windows, jax.tree.map(part, inputs), choices)
        x, outputs = jax.lax.scan(body, x, xs)
        kept.append(outputs)
    return x, jax.tree.map(_joined, *kept, is_leaf=lambda leaf: leaf is None)


def _joined(*parts: jax.Array | None) -> jax.Array | None:
    """What several stacks kept; layers without experts keep None of them."""
    kept = [part for part in parts if part is not None]
    return jnp.concatenate(kept) if len(kept) > 1 else kept[0] if kept else None


def _attend_to_rows(
    spec: ModelSpec, segment_NS: jax.Array, packed: bool = False
) -> Callable[[int | jax.Array, Any], Attend]:
    block_tokens = spec.attention_block_tokens

    def attend(window: int | jax.Array, _: Any) -> Attend:
        return functools.partial(
            attention.row_attention,
            segment_NS=segment_NS,
            window=window,
            block_tokens=block_tokens,
            kernels=spec.attention == "auto",
            packed=packed,
        )

    return attend


def forward(
    params: Parameters,
    spec: ModelSpec,
    token_NS: Int[Array, "N S"],
    position_NS: Int[Array, "N S"],
    segment_NS: Int[Array, "N S"],
    dropout_key_N: Array | None = None,
    *,
    packed: bool = False,
) -> Float[Array, "N S D"]:
    """Final hidden states of whole rows, for training.

    Args:
        params: From ``init_params``.
        spec: Their spec.
        token_NS: Token ids.
        position_NS: Position of each token inside its own sequence.
        segment_NS: Sequence that a token belongs to, counted from 1; 0 is padding.
        dropout_key_N: One PRNG key for each row, for a training pass of adapters with dropout; None for no dropout.
        packed: Rows may hold several sequences; where they do not, attention has faster kernels.

    Returns:
        Normalised hidden states in the compute dtype; what stands at padding has no meaning.
    """
    row = (token_NS, position_NS, segment_NS)
    return forward_with_load(params, spec, *row, None, dropout_key_N=dropout_key_N, packed=packed)[0]


def forward_with_load(
    params: Parameters,
    spec: ModelSpec,
    token_NS: Int[Array, "N S"],
    position_NS: Int[Array, "N S"],
    segment_NS: Int[Array, "N S"],
    counted_NS: Bool[Array, "N S"] | None,
    choice_LNSA: Integer[Array, "Lr N S A"] | None = None,
    dropout_key_N: Array | None = None,
    *,
    packed: bool = False,
) -> tuple[Float[Array, "N S D"], Float[Array, "Lr E"] | None]:
    """``forward``, and how many of the choices of experts fell on each; see ``moe.balance``.

    Args:
        params: From ``init_params``.
        spec: Their spec.
        token_NS: As in ``forward``.
        position_NS: As in ``forward``.
        segment_NS: As in ``forward``.
        counted_NS: Tokens whose choices are counted, or None to count nothing.
        choice_LNSA: Experts that each token visits, where that was decided before, in the layers that have some.
        dropout_key_N: As in ``forward``.
        packed: As in ``forward``.

    Returns:
        Hidden states as in ``forward``, and the counts of each layer that has experts, or None.
    """

    def keep(extras: Extras) -> jax.Array | None:
        if extras.routing is None or counted_NS is None:
            return None
        assert spec.experts is not None
        return moe.load(spec.experts, extras.routing, counted_NS)

    S = token_NS.shape[1]
    token_NS, position_NS, segment_NS = map(rules.in_parts, (token_NS, position_NS, segment_NS))
    counted_NS = None if counted_NS is None else rules.in_parts(counted_NS)
    choice_LNSA = None if choice_LNSA is None else rules.in_parts(choice_LNSA, axis=2)
    x_NSD, attend = embed(params, spec, token_NS, rules.RESIDUAL), _attend_to_rows(spec, segment_NS, packed)
    run = functools.partial(_run_layers, keep=keep, choice=choice_LNSA, dropout_key_N=dropout_key_N)
    x_NSD, load_LE = run(params, spec, x_NSD, position_NS, attend)
    return rules.whole(final_norm(params, spec, x_NSD), 1)[:, :S], load_LE


def prefill(
    params: Parameters,
    spec: ModelSpec,
    token_BP: Int[Array, "B P"],
    length_B: Int[Array, "B"],
    *,
    record_experts: bool = False,
) -> tuple[Float[Array, "B D"], PromptCache]:
    """Runs right-padded prompts once.

    Args:
        params: From ``init_params``.
        spec: Their spec.
        token_BP: Prompt tokens, right-padded.
        length_B: Their lengths in tokens, >= 1.
        record_experts: The cache also says which experts each token visited.

    Returns:
        Final hidden state of each prompt's last token, and the cache, which has as many positions as divide over the
        mesh in use.
    """
    token_BP = rules.in_parts(token_BP)
    index_BP = jnp.broadcast_to(jnp.arange(token_BP.shape[1])[None], token_BP.shape)
    position_BP = rules.shard(index_BP, rules.BATCH, rules.POSITIONS)
    mask_BP = position_BP < length_B[:, None]
    x_BPD, attend = embed(params, spec, token_BP, rules.RESIDUAL), _attend_to_rows(spec, mask_BP.astype(jnp.int32))
    keep = kept_of(spec, record_experts)
    x_BPD, (key, value, choice) = _run_layers(params, spec, x_BPD, position_BP, attend, keep=keep)
    is_last_BP1 = (index_BP == length_B[:, None] - 1)[:, :, None]
    last_BD = jnp.sum(jnp.where(is_last_BP1, x_BPD, 0), axis=1)
    return final_norm(params, spec, last_BD), PromptCache(key, value, mask_BP, length_B, choice)


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
        completion: Cache of the completions, filled up to ``step``; one with room for experts records them.

    Returns:
        Final hidden states, and the cache with these tokens in it.
    """
    position_BG = jnp.broadcast_to(prompt.length_B[:, None] + step, token_BG.shape)
    index_T = rules.shard(jnp.arange(completion.key_LBGKTC.shape[4]), rules.POSITIONS)
    prompt_distance_BP = prompt.length_B[:, None] + step - jnp.arange(prompt.mask_BP.shape[1])[None]

    def attend(window: int | jax.Array, cached: Any) -> Attend:
        prompt_key, prompt_value, own_key, own_value = cached
        if spec.latent:
            prompt_value, own_value = (key[..., : spec.latent.latent_dim] for key in (prompt_key, own_key))
        seen_BP = attention.within_window(prompt_distance_BP, prompt.mask_BP, window)
        earlier_T = attention.within_window(step - index_T, index_T < step, window)
        return lambda query, key, value: attention.decode_attention(
            query, (prompt_key, prompt_value, seen_BP), (own_key, own_value, earlier_T), (key, value)
        )

    own_key, own_value, recorded = completion
    x_BGD, inputs = embed(params, spec, token_BG), (prompt.key_LBPKC, prompt.value_LBPKC, own_key, own_value)
    keep = kept_of(spec, recorded is not None)
    x_BGD, (key, value, choice) = _run_layers(
        params, spec, x_BGD, position_BG, attend, keep=keep, inputs=inputs, absorbed=spec.latent is not None
    )
    if recorded is not None:
        recorded = written(recorded, choice, step, axis=3)
    own_key, own_value = (written(cache, new, step, axis=4) for cache, new in ((own_key, key), (own_value, value)))
    return final_norm(params, spec, x_BGD), CompletionCache(own_key, own_value, recorded)
