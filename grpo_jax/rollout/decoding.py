"""The jitted decode loop: what it is compiled for, what it carries, and one token after the other."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grpo_jax.models import decoder
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import rules
from grpo_jax.rollout import sampling as sampling_lib
from grpo_jax.rollout.engine import SamplingParams


class DecodeState(NamedTuple):
    """Everything a decode loop carries.

    Attributes:
        step: Tokens drawn so far.
        done_BG: Completions that have ended.
        last_token_BG: The newest token of each.
        token_BGT: Drawn ids, pads behind a completion's end.
        logprob_BGT: Log-probabilities at the temperature.
        truncated_logprob_BGT: Log-probabilities of what was drawn from.
        length_BG: Lengths in tokens so far.
        stop_BG: How much of a stop text has been written: states of the stop table.
        cache: Keys and values of the completions.
    """

    step: Int[Array, ""]
    done_BG: Bool[Array, "B G"]
    last_token_BG: Int[Array, "B G"]
    token_BGT: Int[Array, "B G T"]
    logprob_BGT: Float[Array, "B G T"]
    truncated_logprob_BGT: Float[Array, "B G T"]
    length_BG: Int[Array, "B G"]
    stop_BG: Int[Array, "B G"]
    cache: decoder.CompletionCache


class Static(NamedTuple):
    """What the loop is compiled for.

    Attributes:
        spec: The policy's spec.
        sampling: How to draw.
        eos_ids: Ids that end a completion.
        pad_id: Id behind a completion's end.
        record_experts: Record which experts every token visits.
    """

    spec: ModelSpec
    sampling: SamplingParams
    eos_ids: tuple[int, ...]
    pad_id: int
    record_experts: bool = False


def _record(
    state: DecodeState,
    hidden_BGD: jax.Array,
    params: Any,
    key: jax.Array,
    static: Static,
    stops_SV: Int[Array, "S V"] | None,
) -> DecodeState:
    unembedding_DV = decoder.unembedding(params, static.spec)
    logits_BGV = jnp.einsum("BGD,DV->BGV", hidden_BGD, unembedding_DV, preferred_element_type=jnp.float32)
    sampling = static.sampling
    drawn = sampling_lib.draw(
        logits_BGV,
        jax.random.fold_in(key, state.step),
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
    )
    token_BG = jnp.where(state.done_BG, static.pad_id, drawn.token)
    write = lambda row_BGT, value_BG: jax.lax.dynamic_update_slice_in_dim(  # noqa: E731
        row_BGT, jnp.where(state.done_BG, 0, value_BG)[:, :, None], state.step, axis=2
    )
    ended_BG = functools.reduce(jnp.logical_or, [drawn.token == eos_id for eos_id in static.eos_ids])
    stop_BG = state.stop_BG
    if stops_SV is not None:
        index = stops_SV.at[stop_BG, drawn.token]
        stop_BG = index.get(out_sharding=rules.sharding(rules.BATCH, None)).astype(jnp.int32)
        ended_BG |= stop_BG == stops_SV.shape[0] - 1
    return state._replace(
        step=state.step + 1,
        done_BG=state.done_BG | ended_BG,
        last_token_BG=token_BG,
        token_BGT=jax.lax.dynamic_update_slice_in_dim(state.token_BGT, token_BG[:, :, None], state.step, axis=2),
        logprob_BGT=write(state.logprob_BGT, drawn.logprob),
        truncated_logprob_BGT=write(state.truncated_logprob_BGT, drawn.truncated_logprob),
        length_BG=state.length_BG + ~state.done_BG,
        stop_BG=stop_BG,
    )


@functools.partial(jax.jit, static_argnames="static")
def start(
    params: Any,
    prompt_BP: Int[Array, "B P"],
    length_B: Int[Array, "B"],
    real_B: Bool[Array, "B"],
    key: jax.Array,
    *,
    static: Static,
    stops_SV: Int[Array, "S V"] | None = None,
) -> tuple[decoder.PromptCache, DecodeState]:
    """Runs the prompts and draws every completion's first token.

    Args:
        params: Parameters of the policy.
        prompt_BP: Prompt ids, right-padded.
        length_B: Their lengths.
        real_B: False for prompts that only fill up the batch; their completions count as ended.
        key: PRNG key of this call of ``generate``.
        static: What the computation is compiled for.
        stops_SV: Table of the stop texts, or None where there are none.

    Returns:
        The prompts' cache and the state after one token.
    """
    spec, G, T = static.spec, static.sampling.completions_per_prompt, static.sampling.max_new_tokens
    B = prompt_BP.shape[0]
    hidden_BD, prompt_cache = decoder.prefill(params, spec, prompt_BP, length_B, record_experts=static.record_experts)
    rows = lambda array: rules.shard(array, rules.BATCH, *(None,) * (array.ndim - 1))  # noqa: E731
    state = DecodeState(
        step=jnp.int32(0),
        done_BG=rows(jnp.broadcast_to(~real_B[:, None], (B, G))),
        last_token_BG=rows(jnp.zeros((B, G), jnp.int32)),
        token_BGT=rows(jnp.full((B, G, T), static.pad_id, jnp.int32)),
        logprob_BGT=rows(jnp.zeros((B, G, T), jnp.float32)),
        truncated_logprob_BGT=rows(jnp.zeros((B, G, T), jnp.float32)),
        length_BG=rows(jnp.zeros((B, G), jnp.int32)),
        stop_BG=rows(jnp.zeros((B, G), jnp.int32)),
        cache=decoder.empty_cache(spec, B, G, T, record_experts=static.record_experts),
    )
    hidden_BGD = jnp.broadcast_to(hidden_BD[:, None], (B, G, spec.d_model))
    return prompt_cache, _record(state, hidden_BGD, params, key, static, stops_SV)


@functools.partial(jax.jit, static_argnames="static", donate_argnames="state")
def advance(
    params: Any,
    prompt_cache: decoder.PromptCache,
    state: DecodeState,
    until: Int[Array, ""],
    key: jax.Array,
    *,
    static: Static,
    stops_SV: Int[Array, "S V"] | None = None,
) -> DecodeState:
    """Draws tokens until ``until`` of them exist or every completion has ended.

    Args:
        params: Parameters of the policy.
        prompt_cache: From ``start``.
        state: State so far; its buffers are reused.
        until: Step to stop at, at most T.
        key: The key that was given to ``start``.
        static: What the computation is compiled for.
        stops_SV: The table that was given to ``start``.

    Returns:
        The new state.
    """

    def unfinished(state: DecodeState) -> Bool[Array, ""]:
        return (state.step < until) & ~jnp.all(state.done_BG)

    def body(state: DecodeState) -> DecodeState:
        hidden_BGD, cache = decoder.decode_step(
            params, static.spec, state.last_token_BG, state.step - 1, prompt_cache, state.cache
        )
        return _record(state._replace(cache=cache), hidden_BGD, params, key, static, stops_SV)

    return jax.lax.while_loop(unfinished, body, state)
