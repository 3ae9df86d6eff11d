"""The in-process engine: prompts prefilled once per group, a jitted decode loop, groups handed out as they end."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from grpo_jax.models import decoder
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import mesh, rules
from grpo_jax.records import FinishReason
from grpo_jax.rollout import sampling as sampling_lib
from grpo_jax.rollout.engine import FinishedGroup, SamplingParams, length_bucket, right_padded


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
        cache: Keys and values of the completions.
    """

    step: Int[Array, ""]
    done_BG: Bool[Array, "B G"]
    last_token_BG: Int[Array, "B G"]
    token_BGT: Int[Array, "B G T"]
    logprob_BGT: Float[Array, "B G T"]
    truncated_logprob_BGT: Float[Array, "B G T"]
    length_BG: Int[Array, "B G"]
    cache: decoder.CompletionCache


class _Policy(NamedTuple):
    params: Any
    version: int


class _Static(NamedTuple):
    spec: ModelSpec
    sampling: SamplingParams
    eos_ids: tuple[int, ...]
    pad_id: int
    record_experts: bool


def _record(state: DecodeState, hidden_BGD: jax.Array, params: Any, key: jax.Array, static: _Static) -> DecodeState:
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
    return state._replace(
        step=state.step + 1,
        done_BG=state.done_BG | ended_BG,
        last_token_BG=token_BG,
        token_BGT=jax.lax.dynamic_update_slice_in_dim(state.token_BGT, token_BG[:, :, None], state.step, axis=2),
        logprob_BGT=write(state.logprob_BGT, drawn.logprob),
        truncated_logprob_BGT=write(state.truncated_logprob_BGT, drawn.truncated_logprob),
        length_BG=state.length_BG + ~state.done_BG,
    )


@functools.partial(jax.jit, static_argnames="static")
def start(
    params: Any,
    prompt_BP: Int[Array, "B P"],
    length_B: Int[Array, "B"],
    real_B: Bool[Array, "B"],
    key: jax.Array,
    *,
    static: _Static,
) -> tuple[decoder.PromptCache, DecodeState]:
    """Runs the prompts and draws every completion's first token.

    Args:
        params: Parameters of the policy.
        prompt_BP: Prompt ids, right-padded.
        length_B: Their lengths.
        real_B: False for prompts that only fill up the batch; their completions count as ended.
        key: PRNG key of this call of ``generate``.
        static: What the computation is compiled for.

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
        cache=decoder.empty_cache(spec, B, G, T, record_experts=static.record_experts),
    )
    hidden_BGD = jnp.broadcast_to(hidden_BD[:, None], (B, G, spec.d_model))
    return prompt_cache, _record(state, hidden_BGD, params, key, static)


@functools.partial(jax.jit, static_argnames="static", donate_argnames="state")
def advance(
    params: Any,
    prompt_cache: decoder.PromptCache,
    state: DecodeState,
    until: Int[Array, ""],
    key: jax.Array,
    *,
    static: _Static,
) -> DecodeState:
    """Draws tokens until ``until`` of them exist or every completion has ended.

    Args:
        params: Parameters of the policy.
        prompt_cache: From ``start``.
        state: State so far; its buffers are reused.
        until: Step to stop at, at most T.
        key: The key that was given to ``start``.
        static: What the computation is compiled for.

    Returns:
        The new state.
    """

    def unfinished(state: DecodeState) -> Bool[Array, ""]:
        return (state.step < until) & ~jnp.all(state.done_BG)

    def body(state: DecodeState) -> DecodeState:
        hidden_BGD, cache = decoder.decode_step(
            params, static.spec, state.last_token_BG, state.step - 1, prompt_cache, state.cache
        )
        return _record(state._replace(cache=cache), hidden_BGD, params, key, static)

    return jax.lax.while_loop(unfinished, body, state)


def _recorded(prompts: decoder.PromptCache, state: DecodeState) -> tuple[np.ndarray, np.ndarray] | None:
    """The experts that prompts ``[B, P, L, A]`` and completions ``[B, G, T, L, A]`` visited, on the host."""
    recorded = (prompts.choice_LBPA, state.cache.choice_LBGTA)
    if recorded[1] is None:
        return None
    prompt_LBPA, completion_LBGTA = jax.device_get(recorded)
    return np.moveaxis(prompt_LBPA, 0, 2), np.moveaxis(completion_LBGTA, 0, 3)


class JaxEngine:
    """Samples from the policy in this process, on the mesh in use.

    The loop comes back to the host every ``chunk_tokens`` tokens and hands out the groups that have ended, so
    their verification runs while the others are still being sampled.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        eos_ids: tuple[int, ...],
        pad_id: int,
        batch_completions: int,
        chunk_tokens: int = 16,
        record_experts: bool = False,
    ) -> None:
        """Makes an engine without parameters; ``sync`` brings them.

        Args:
            spec: The policy's spec.
            eos_ids: Ids that end a completion.
            pad_id: Id behind a completion's end.
            batch_completions: Completions that are sampled at once, at most; fewer where all prompts need fewer.
            chunk_tokens: Tokens between two looks at which groups have ended.
            record_experts: Groups come with the experts that their tokens visited.

        Raises:
            ValueError: if there is no id that ends a completion.
        """
        if not eos_ids:
            raise ValueError("eos_ids: got none, wanted at least one id that ends a completion")
        self._spec, self._eos_ids, self._pad_id = spec, eos_ids, pad_id
        self._batch_completions, self._chunk_tokens = batch_completions, chunk_tokens
        self._record_experts = record_experts
        self._params: Any = None
        self._version = -1

    def static(self, sampling: SamplingParams) -> _Static:
        """What the programs are compiled for when drawing so."""
        return _Static(self._spec, sampling, self._eos_ids, self._pad_id, self._record_experts)

    def sync(self, params: Any, version: int) -> None:
        """Takes new parameters (shared with the trainer, not copied)."""
        self._params, self._version = params, version

    def generate(
        self, prompts: Sequence[Sequence[int]], *, sampling: SamplingParams, key: jax.Array
    ) -> Iterator[FinishedGroup]:
        """Samples every prompt; see ``Engine.generate``.

        The last batch is filled up to the shape of the others; what fills it is not returned.
        """
        assert self._params is not None, "sync() comes before generate()"
        assert all(len(prompt) > 0 for prompt in prompts), "a prompt has no token to predict from"
        # Bound here: a sync() while groups are still being handed out concerns later calls only.
        policy = _Policy(self._params, self._version)
        return self._generate(policy, prompts, sampling, key)

    def _generate(
        self, policy: _Policy, prompts: Sequence[Sequence[int]], sampling: SamplingParams, key: jax.Array
    ) -> Iterator[FinishedGroup]:
        shards = rules.batch_shards()
        size = max(1, min(self._batch_completions // sampling.completions_per_prompt, len(prompts)))
        size = -(-size // shards) * shards
        for first in range(0, len(prompts), size):
            batch = list(prompts[first : first + size])
            filled = batch + [batch[0]] * (size - len(batch))
            batch_key = jax.random.fold_in(key, first)
            for group in self._generate_batch(policy, filled, len(batch), sampling, batch_key):
                yield group._replace(index=first + group.index)

    def _generate_batch(
        self,
        policy: _Policy,
        prompts: Sequence[Sequence[int]],
        real: int,
        sampling: SamplingParams,
        key: jax.Array,
    ) -> Iterator[FinishedGroup]:
        static = self.static(sampling)
        prompt_BP, length_B = right_padded(prompts, length_bucket(max(map(len, prompts))), self._pad_id)
        real_B = np.arange(len(prompts)) < real
        on_mesh = [mesh.put(array, rules.RULES[rules.BATCH]) for array in (prompt_BP, length_B, real_B)]
        prompt_cache, state = start(policy.params, *on_mesh, key, static=static)
        waiting = set(range(real))
        until = 0
        while waiting:
            until = min(until + self._chunk_tokens, sampling.max_new_tokens)
            state = advance(policy.params, prompt_cache, state, jnp.int32(until), key, static=static)
            done_BG = np.asarray(state.done_BG)
            last = until == sampling.max_new_tokens
            ended = sorted(waiting) if last else [b for b in sorted(waiting) if done_BG[b].all()]
            if not ended:
                continue
            drawn = jax.device_get(state._replace(cache=None))
            choices = _recorded(prompt_cache, state)
            finish_BG = np.where(done_BG, FinishReason.STOP, FinishReason.LENGTH).astype(np.int32)
            for b in ended:
                waiting.remove(b)
                prompt_choice, choice = (None, None) if choices is None else (part[b] for part in choices)
                yield FinishedGroup(
                    b,
                    drawn.token_BGT[b],
                    drawn.logprob_BGT[b],
                    drawn.truncated_logprob_BGT[b],
                    drawn.length_BG[b],
                    finish_BG[b],
                    policy.version,
                    None if prompt_choice is None else prompt_choice[: len(prompts[b])],
                    choice,
                )
