"""The in-process engine: prompts prefilled once per group, a jitted decode loop, groups handed out as they end."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from grpo_jax.data.stops import stop_table
from grpo_jax.data.tokenizer import Tokenizer
from grpo_jax.models import decoder
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import mesh, rules
from grpo_jax.records import FinishReason
from grpo_jax.rollout.decoding import DecodeState, Static, advance, start
from grpo_jax.rollout.engine import FinishedGroup, SamplingParams, length_bucket, right_padded


class _Policy(NamedTuple):
    params: Any
    version: int
    stops_SV: Int[Array, "S V"] | None


def _recorded(prompts: decoder.PromptCache, state: DecodeState) -> tuple[np.ndarray, np.ndarray] | None:
    """The experts that prompts ``[B, P, L, A]`` and completions ``[B, G, T, L, A]`` visited, on the host."""
    recorded = (prompts.choice_LBPA, state.cache.choice_LBGTA)
    if recorded[1] is None:
        return None
    prompt_LBPA, completion_LBGTA = mesh.fetch(recorded)
    # A cache may have room for more tokens than are drawn.
    completion_LBGTA = completion_LBGTA[:, :, :, : state.token_BGT.shape[2]]
    return np.moveaxis(prompt_LBPA, 0, 2), np.moveaxis(completion_LBGTA, 0, 3)


class JaxEngine:
    """Samples from the policy on the mesh in use. Its processes all give it the same prompts and get the same groups.

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
        tokenizer: Tokenizer | None = None,
    ) -> None:
        """Makes an engine without parameters; ``sync`` brings them.

        Args:
            spec: The policy's spec.
            eos_ids: Ids that end a completion.
            pad_id: Id behind a completion's end.
            batch_completions: Completions that are sampled at once, at most; fewer where all prompts need fewer.
            chunk_tokens: Tokens between two looks at which groups have ended.
            record_experts: Groups come with the experts that their tokens visited.
            tokenizer: Finds stop texts; needed where there are any.

        Raises:
            ValueError: if there is no id that ends a completion.
        """
        if not eos_ids:
            raise ValueError("eos_ids: got none, wanted at least one id that ends a completion")
        self._spec, self._eos_ids, self._pad_id = spec, eos_ids, pad_id
        self._batch_completions, self._chunk_tokens = batch_completions, chunk_tokens
        self._record_experts = record_experts
        self._tokenizer = tokenizer
        self._stop_tables: dict[tuple[str, ...], jax.Array] = {}
        self._params: Any = None
        self._version = -1

    def static(self, sampling: SamplingParams) -> Static:
        """What the programs are compiled for when drawing so."""
        return Static(self._spec, sampling, self._eos_ids, self._pad_id, self._record_experts)

    def sync(self, params: Any, version: int) -> None:
        """Takes new parameters (shared with the trainer, not copied)."""
        self._params, self._version = params, version

    def generate(
        self, prompts: Sequence[Sequence[int]], *, sampling: SamplingParams, key: jax.Array
    ) -> Iterator[FinishedGroup]:
        """Samples every prompt; see ``Engine.generate``.

        The last batch is filled up to the shape of the others; what fills it is not returned.
        """
        # Bound here: a sync() while groups are still being handed out concerns later calls only.
        return self._generate(self._policy(prompts, sampling), prompts, sampling, key)

    def stream(
        self, prompt: Sequence[int], *, sampling: SamplingParams, key: jax.Array
    ) -> Iterator[tuple[list[int], FinishReason | None]]:
        """Samples one completion and shows it after every chunk of tokens.

        Args:
            prompt: Token ids of the prompt.
            sampling: How to draw; one completion for the prompt.
            key: PRNG key; ``generate`` draws the same completion with it.

        Returns:
            The ids so far, and why the completion ended, or None as long as it goes on.
        """
        assert sampling.completions_per_prompt == 1, "only one completion can be shown as it comes"
        policy, filled = self._policy([prompt], sampling), [prompt] * rules.batch_shards()
        for _, state in self._states(policy, filled, 1, sampling, jax.random.fold_in(key, 0)):
            finish = _finish_BG(state, sampling)[0, 0]
            token_T, length = np.asarray(state.token_BGT)[0, 0], np.asarray(state.length_BG)[0, 0]
            yield token_T[:length].tolist(), None if finish == _GOES_ON else FinishReason(int(finish))

    def _policy(self, prompts: Sequence[Sequence[int]], sampling: SamplingParams) -> _Policy:
        assert self._params is not None, "sync() comes before generate()"
        assert all(len(prompt) > 0 for prompt in prompts), "a prompt has no token to predict from"
        stops = sampling.stop
        if stops and stops not in self._stop_tables:
            assert self._tokenizer is not None, "stop texts are found by the bytes of the tokenizer's tokens"
            self._stop_tables[stops] = mesh.put(stop_table(self._tokenizer, stops, self._spec.vocab_size))
        return _Policy(self._params, self._version, self._stop_tables.get(stops))

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
        waiting = set(range(real))
        for prompt_cache, state in self._states(policy, prompts, real, sampling, key):
            finish_BG = _finish_BG(state, sampling)
            ended = [b for b in sorted(waiting) if (finish_BG[b] != _GOES_ON).all()]
            if not ended:
                continue
            drawn = mesh.fetch(state._replace(cache=None))
            choices = _recorded(prompt_cache, state)
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

    def _states(
        self,
        policy: _Policy,
        prompts: Sequence[Sequence[int]],
        real: int,
        sampling: SamplingParams,
        key: jax.Array,
    ) -> Iterator[tuple[decoder.PromptCache, DecodeState]]:
        """The state after every chunk of tokens until all have ended; each is gone once the next one is asked for."""
        static = self.static(sampling)
        prompt_BP, length_B = right_padded(prompts, length_bucket(max(map(len, prompts))), self._pad_id)
        real_B = np.arange(len(prompts)) < real
        on_mesh = [mesh.put(array, rules.RULES[rules.BATCH]) for array in (prompt_BP, length_B, real_B)]
        prompt_cache, state = start(policy.params, *on_mesh, key, static=static, stops_SV=policy.stops_SV)
        until, ended = 0, False
        while not ended:
            until = min(until + self._chunk_tokens, sampling.max_new_tokens)
            state = advance(
                policy.params, prompt_cache, state, jnp.int32(until), key, static=static, stops_SV=policy.stops_SV
            )
            ended = bool((_finish_BG(state, sampling) != _GOES_ON).all())
            yield prompt_cache, state


_GOES_ON = -1


def _finish_BG(state: DecodeState, sampling: SamplingParams) -> Int[np.ndarray, "B G"]:
    """``FinishReason`` of each completion, or ``_GOES_ON``."""
    unfinished = FinishReason.LENGTH if int(state.step) == sampling.max_new_tokens else _GOES_ON
    return np.where(mesh.fetch(state.done_BG), FinishReason.STOP, unfinished).astype(np.int32)
