"""The in-process engine's programs, lowered from shapes."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from grpo_jax.config import RunConfig
from grpo_jax.forensics.programs import Program, lower
from grpo_jax.models.decoder import PromptCache
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import rules
from grpo_jax.rollout.decoding import DecodeState, advance, start
from grpo_jax.rollout.engine import SamplingParams, length_bucket, sampling_params
from grpo_jax.rollout.jax_engine import JaxEngine


class LoweredSampling(NamedTuple):
    """What samples a batch of groups.

    Attributes:
        prompt_cache: Shapes of the prompts' cache.
        state: Shapes of what a decode loop carries, the completions' cache among them.
        start: Prefill and the first token, lowered.
        advance: The decode loop, lowered; its arithmetic is that of one token of each completion.
    """

    prompt_cache: PromptCache
    state: DecodeState
    start: Program
    advance: Program


def lower_sampling(
    engine: JaxEngine, params: Any, sampling: SamplingParams, *, prompts: int, prompt_tokens: int
) -> LoweredSampling:
    """Lowers both programs on the mesh in use, for as many prompts as are sampled at once.

    Args:
        engine: Needs no parameters.
        params: Shapes of the policy's parameters.
        sampling: How to draw. Stop texts are left out: their table is small.
        prompts: B.
        prompt_tokens: Length of the longest prompt.

    Returns:
        The programs and the shapes between them.
    """
    on_mesh = NamedSharding(jax.sharding.get_mesh(), jax.P(rules.RULES[rules.BATCH]))
    batch = lambda dtype, *shape: jax.ShapeDtypeStruct(shape, dtype, sharding=on_mesh)  # noqa: E731
    key, static = jax.eval_shape(lambda: jax.random.key(0)), engine.static(sampling)
    started = lower(
        start,
        params,
        batch(jnp.int32, prompts, length_bucket(prompt_tokens)),
        batch(jnp.int32, prompts),
        batch(jnp.bool_, prompts),
        key,
        static=static,
    )
    prompt_cache, state = started.lowered.out_info
    until = jax.ShapeDtypeStruct((), jnp.int32)
    advanced = lower(advance, params, prompt_cache, state, until, key, static=static)
    return LoweredSampling(prompt_cache, state, started, advanced)


def lower_rollout(config: RunConfig, spec: ModelSpec, params: Any) -> LoweredSampling:
    """Lowers what samples a step's completions, as many as at once, on the mesh in use.

    Args:
        config: The run.
        spec: The policy's spec.
        params: Shapes of its parameters.

    Returns:
        The programs and the shapes between them.
    """
    rollout = config.rollout
    # Which ids end a completion changes no shape.
    engine = JaxEngine(
        spec,
        eos_ids=(1,),
        pad_id=0,
        batch_completions=1,
        chunk_tokens=rollout.decode_chunk_tokens,
        record_experts=config.algorithm.router_replay,
    )
    return lower_sampling(
        engine,
        params,
        sampling_params(rollout, rollout.completions_per_prompt),
        prompts=rollout.prompts_at_once,
        prompt_tokens=config.data.max_prompt_tokens,
    )
