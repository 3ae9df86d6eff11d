"""What a rollout engine is, and what it returns."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, Integer

from grpo_jax.config import RolloutConfig


@dataclasses.dataclass(frozen=True)
class SamplingParams:
    """How tokens are drawn. Hashable, so it can be a static argument of ``jax.jit``.

    Attributes:
        completions_per_prompt: G.
        max_new_tokens: T, the length at which a completion is cut off.
        temperature: Logits are divided by it, in the sampler and in the trainer alike; 0 takes the likeliest token.
        top_k: Draw from the k likeliest tokens only; 0 is off.
        top_p: Draw from the smallest set of likeliest tokens with at least this probability; 1 is off.
        stop: Texts that end a completion: it ends with the token that completes the first of them.
    """

    completions_per_prompt: int
    max_new_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()


def sampling_params(config: RolloutConfig, completions_per_prompt: int) -> SamplingParams:
    """How a run draws.

    Args:
        config: The rollout's section.
        completions_per_prompt: G: that of training, or that of an evaluation.

    Returns:
        The section's settings.
    """
    return SamplingParams(
        completions_per_prompt, config.max_new_tokens, config.temperature, config.top_k, config.top_p, config.stop
    )


class FinishedGroup(NamedTuple):
    """All completions of one prompt, on the host.

    Attributes:
        index: Which of the prompts given to ``generate``.
        token_GT: Sampled ids; pads follow a completion's end.
        logprob_GT: The sampler's own log-probabilities at its temperature, before any truncation to top-k or top-p.
        truncated_logprob_GT: The same after the truncation: what was really drawn from.
        length_G: Lengths in tokens, the token that ended them counted.
        finish_G: ``records.FinishReason`` of each.
        policy_version: Version of the parameters that sampled.
        prompt_choice_PLA: Experts that each token of the prompt visited, where the engine records them.
        choice_GTLA: Experts that each sampled token visited. A completion's last token was not read again: what stands
            at it and behind it has no meaning.
    """

    index: int
    token_GT: Int[np.ndarray, "G T"]
    logprob_GT: Float[np.ndarray, "G T"]
    truncated_logprob_GT: Float[np.ndarray, "G T"]
    length_G: Int[np.ndarray, "G"]
    finish_G: Int[np.ndarray, "G"]
    policy_version: int
    prompt_choice_PLA: Integer[np.ndarray, "P Lr A"] | None = None
    choice_GTLA: Integer[np.ndarray, "G T Lr A"] | None = None


class Rollout(NamedTuple):
    """A batch of groups with their prompts, on the host.

    Attributes:
        prompt_BP: Prompt ids, left-padded: a prompt's last token stands next to its completion's first.
        prompt_length_B: Their lengths in tokens.
        token_BGT: Sampled ids; pads follow a completion's end.
        logprob_BGT: The sampler's own log-probabilities.
        length_BG: Completion lengths in tokens, the token that ended them counted.
        finish_BG: ``records.FinishReason`` of each.
        policy_version: Version of the parameters that sampled.
        prompt_choice_BPLA: Experts that each token of the prompts visited, left-padded with 0, or None where the
            engine does not record them.
        choice_BGTLA: Experts that each sampled token visited, as in ``FinishedGroup``, or None.
    """

    prompt_BP: Int[np.ndarray, "B P"]
    prompt_length_B: Int[np.ndarray, "B"]
    token_BGT: Int[np.ndarray, "B G T"]
    logprob_BGT: Float[np.ndarray, "B G T"]
    length_BG: Int[np.ndarray, "B G"]
    finish_BG: Int[np.ndarray, "B G"]
    policy_version: int
    prompt_choice_BPLA: Integer[np.ndarray, "B P Lr A"] | None = None
    choice_BGTLA: Integer[np.ndarray, "B G T Lr A"] | None = None

    @property
    def mask_BGT(self) -> Bool[np.ndarray, "B G T"]:
        """True for sampled tokens: made from lengths, never from token ids."""
        return np.arange(self.token_BGT.shape[2]) < self.length_BG[:, :, None]


@runtime_checkable
class Engine(Protocol):
    """Samples completions from the newest parameters it was given."""

    def sync(self, params: Any, version: int) -> None:
        """Takes new parameters; every later ``generate`` uses them and reports ``version``."""
        ...

    def generate(
        self, prompts: Sequence[Sequence[int]], *, sampling: SamplingParams, key: jax.Array
    ) -> Iterator[FinishedGroup]:
        """Samples every prompt and yields each group as soon as all of its completions have ended.

        Args:
            prompts: Token ids of each prompt.
            sampling: How to draw.
            key: PRNG key; the same key and parameters give the same completions.

        Returns:
            One ``FinishedGroup`` per prompt, in the order in which they end.
        """
        ...


def right_padded(prompts: Sequence[Sequence[int]], width: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
    """Stacks prompts into ``[B, width]`` ids and their lengths."""
    token_BP = np.full((len(prompts), width), pad_id, np.int32)
    for row, prompt in enumerate(prompts):
        token_BP[row, : len(prompt)] = prompt
    return token_BP, np.array([len(prompt) for prompt in prompts], np.int32)


def length_bucket(length: int, smallest: int = 8) -> int:
    """The smallest of 8, 16, 32, 64, ... that holds ``length``: few shapes, so few compilations."""
    return max(smallest, 1 << max(length - 1, 0).bit_length())


def assemble(groups: Sequence[FinishedGroup], prompts: Sequence[Sequence[int]], pad_id: int) -> Rollout:
    """Puts finished groups back into the order of their prompts.

    Args:
        groups: One group per prompt, in any order.
        prompts: Token ids of each prompt.
        pad_id: Id to fill up prompts with.

    Returns:
        The batch.
    """
    ordered = sorted(groups, key=lambda group: group.index)
    assert [group.index for group in ordered] == list(range(len(prompts))), "a group is missing or was yielded twice"
    versions = {group.policy_version for group in ordered}
    assert len(versions) == 1, f"groups of several policy versions in one batch: {sorted(versions)}"
    width = length_bucket(max(map(len, prompts)))
    prompt_choices = [group.prompt_choice_PLA for group in ordered if group.prompt_choice_PLA is not None]
    choices = [group.choice_GTLA for group in ordered if group.choice_GTLA is not None]
    assert len(prompt_choices) == len(choices) in (0, len(ordered)), "some groups lack the experts that others have"
    left_padded = lambda choice: np.pad(choice, ((width - len(choice), 0), (0, 0), (0, 0)))  # noqa: E731
    return Rollout(
        np.array([[pad_id] * (width - len(prompt)) + list(prompt) for prompt in prompts], np.int32),
        np.array([len(prompt) for prompt in prompts], np.int32),
        np.stack([group.token_GT for group in ordered]),
        np.stack([group.logprob_GT for group in ordered]),
        np.stack([group.length_G for group in ordered]),
        np.stack([group.finish_G for group in ordered]),
        versions.pop(),
        np.stack([left_padded(choice) for choice in prompt_choices]) if choices else None,
        np.stack(choices) if choices else None,
    )
