"""Completions as rows of fixed-shape micro-batches: selecting, scoring and differentiating them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Integer

from grpo_jax.algorithms import reduce
from grpo_jax.models import adapters, decoder, moe
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import rules
from grpo_jax.training.optimizer import Optimizer


class Rows(NamedTuple):
    """Completions with their prompts. ``N`` rows; in micro-batches every array has a leading ``M`` axis too.

    Attributes:
        prompt_NP: Prompt ids, left-padded.
        prompt_length_N: Their lengths in tokens.
        token_NT: Completion ids, right-padded.
        length_N: Their lengths in tokens.
        sampler_logprob_NT: The sampler's own log-probabilities.
        advantage_NT: Advantage at each token.
        weight_N: Weight of each completion's token losses; 0 takes it out.
        index_N: Place of each completion in its batch, by which noise is drawn for it.
        choice_NSLA: Experts that the tokens of prompts and completions are to visit; None where the router that is
            computed decides.
    """

    prompt_NP: Int[Array, "N P"]
    prompt_length_N: Int[Array, "N"]
    token_NT: Int[Array, "N T"]
    length_N: Int[Array, "N"]
    sampler_logprob_NT: Float[Array, "N T"]
    advantage_NT: Float[Array, "N T"]
    weight_N: Float[Array, "N"]
    index_N: Int[Array, "N"]
    choice_NSLA: Integer[Array, "N S Lr A"] | None = None

    @property
    def freely_routed(self) -> "Rows":
        """The same rows without recorded experts: for models other than the one that visited them."""
        return self._replace(choice_NSLA=None)

    @property
    def mask_NT(self) -> Bool[Array, "*M N T"]:
        """True for counted tokens: made from lengths, so a sampled pad id counts and a pad does not."""
        index_NT = jax.lax.broadcasted_iota(self.length_N.dtype, self.token_NT.shape, self.token_NT.ndim - 1)
        return (index_NT < self.length_N[..., None]) & (self.weight_N[..., None] > 0)


class PreparedBatch(NamedTuple):
    """Micro-batches of one shape, of which training visits the first ``count``.

    Attributes:
        micro_batches: Rows, and what the algorithm knows of them; every array has a leading axis M.
        count: Micro-batches with at least one row that takes part.
    """

    micro_batches: Any
    count: Int[Array, ""]


class ScoredTokens(NamedTuple):
    """Completions under one policy.

    Attributes:
        logprob_NT: Log-probabilities of their tokens.
        entropy_NT: Entropies in nats; they carry no gradient.
        load_LE: How often each expert was chosen where a counted token was predicted, or None without experts.
    """

    logprob_NT: Float[Array, "N T"]
    entropy_NT: Float[Array, "N T"]
    load_LE: Float[Array, "Lr E"] | None


def dropout_key(spec: ModelSpec, seed: int, updates: Int[Array, ""]) -> jax.Array | None:
    """The noise of one update, or None where the policy has no dropout.

    Args:
        spec: The policy's spec.
        seed: The run's.
        updates: Updates that came before.

    Returns:
        A PRNG key.
    """
    if spec.lora is None or not spec.lora.dropout:
        return None
    return jax.random.fold_in(jax.random.key(seed), updates)


def hidden_states(
    params: decoder.Parameters, spec: ModelSpec, rows: Rows, dropout_key: jax.Array | None = None
) -> tuple[Float[Array, "N T D"], Float[Array, "Lr E"] | None]:
    """Final hidden states from which each token of the completions was sampled.

    Args:
        params: Parameters of a decoder; its output projection is not looked at.
        spec: Their spec.
        rows: N completions.
        dropout_key: PRNG key of a training pass with dropout; None for no dropout.

    Returns:
        Hidden states in the compute dtype, of which what stands behind a completion's end has no meaning; and the load
        of ``ScoredTokens``.
    """
    P, T = rows.prompt_NP.shape[1], rows.token_NT.shape[1]
    prompt_index_NP = jnp.arange(P)[None] - (P - rows.prompt_length_N[:, None])
    completion_index_NT = jnp.broadcast_to(jnp.arange(T)[None], rows.token_NT.shape)
    position_NS = jnp.concatenate([prompt_index_NP, rows.prompt_length_N[:, None] + completion_index_NT], axis=1)
    real_NS = jnp.concatenate([prompt_index_NP >= 0, completion_index_NT < rows.length_N[:, None]], axis=1)
    token_NS = jnp.concatenate([rows.prompt_NP, rows.token_NT], axis=1)
    key_N = None if dropout_key is None else jax.vmap(lambda i: jax.random.fold_in(dropout_key, i))(rows.index_N)
    # The last token is predicted, never read.
    choice = rows.choice_NSLA
    hidden_NSD, load_LE = decoder.forward_with_load(
        params,
        spec,
        token_NS[:, :-1],
        jnp.maximum(position_NS, 0)[:, :-1],
        real_NS[:, :-1].astype(jnp.int32),
        jnp.pad(rows.mask_NT, ((0, 0), (P - 1, 0))) if spec.experts else None,
        None if choice is None else jnp.moveaxis(choice[:, :-1], 2, 0),
        key_N,
    )
    return hidden_NSD[:, P - 1 :], load_LE


def completion_logprobs(
    params: decoder.Parameters,
    spec: ModelSpec,
    rows: Rows,
    temperature: float,
    dropout_key: jax.Array | None = None,
) -> ScoredTokens:
    """Log-probabilities of sampled tokens under the policy, at the sampler's temperature.

    Args:
        params: Parameters of the policy or of the reference.
        spec: Their spec.
        rows: N completions.
        temperature: The one that was sampled with.
        dropout_key: See ``hidden_states``.

    Returns:
        Log-probabilities and entropies, of which what stands behind a completion's end has no meaning, and the load.
    """
    hidden_NTD, load_LE = hidden_states(params, spec, rows, dropout_key)
    scored = decoder.token_logprobs(params, spec, hidden_NTD, rows.token_NT, temperature)
    return ScoredTokens(*scored, load_LE)


def compacted(rows: Rows, micro_batch_rows: int) -> tuple[Rows, Int[Array, ""]]:
    """Moves the rows that take part to the front and cuts all rows into micro-batches of one shape.

    Training then visits only the first ``count`` of them. Every process sees the same order, so on several
    hosts the rows are spread evenly again and all run the same number of micro-batches.

    Args:
        rows: N rows, the same on every device; N is a multiple of ``micro_batch_rows``.
        micro_batch_rows: Rows in a micro-batch.

    Returns:
        Rows with leading axes ``[M, micro_batch_rows]``, each micro-batch sharded over the batch axes, and the
        number of micro-batches that hold at least one row that takes part.
    """
    takes_part_N = rows.weight_N > 0
    order_N = jnp.argsort(~takes_part_N, stable=True)
    count = -(-jnp.sum(takes_part_N) // micro_batch_rows)

    def split(array: jax.Array) -> jax.Array:
        micro = array[order_N].reshape(-1, micro_batch_rows, *array.shape[1:])
        return rules.shard(micro, None, rules.BATCH, *(None,) * (array.ndim - 1))

    return jax.tree.map(split, rows), count


def micro_batch(stacked: Any, index: Int[Array, ""]) -> Any:
    """Takes one micro-batch out of arrays with a leading ``M`` axis."""
    return jax.tree.map(lambda array: jax.lax.dynamic_index_in_dim(array, index, keepdims=False), stacked)


def map_rows(
    compute: Callable[[Rows], Float[Array, "N T"]], rows: Rows, count: Int[Array, ""]
) -> Float[Array, "M N T"]:
    """Computes one number per token for the first ``count`` micro-batches, 0 in the others, which are not visited."""

    def body(index: Int[Array, ""], out: Float[Array, "M N T"]) -> Float[Array, "M N T"]:
        return jax.lax.dynamic_update_index_in_dim(out, compute(micro_batch(rows, index)), index, axis=0)

    return jax.lax.fori_loop(0, count, body, jnp.zeros_like(rows.sampler_logprob_NT))


def score(
    params: decoder.Parameters, spec: ModelSpec, rows: Rows, count: Int[Array, ""], temperature: float
) -> Float[Array, "M N T"]:
    """Log-probabilities of the first ``count`` micro-batches, 0 in the others, which are not computed."""
    return map_rows(lambda micro: completion_logprobs(params, spec, micro, temperature).logprob_NT, rows, count)


def accumulate_gradients(
    objective: Callable[[decoder.Parameters, Any], tuple[jax.Array, dict[str, jax.Array]]],
    params: decoder.Parameters,
    stacked: Any,
    count: Int[Array, ""],
    *,
    optimizer: Optimizer,
) -> tuple[decoder.Parameters, dict[str, jax.Array]]:
    """Adds up gradients and sums over the first ``count`` micro-batches; the others cost nothing.

    Args:
        objective: ``(params, micro_batch) -> (loss share, sums)``. Names ending in ``max`` are maximised over
            micro-batches, all others added up.
        params: Parameters; a policy with adapters is differentiated by those alone.
        stacked: Arrays with a leading ``M`` axis.
        count: Micro-batches to visit; a traced number, so any count runs the same program.
        optimizer: It says in which dtypes gradients are taken and added up.

    Returns:
        Gradients in the structure of ``adapters.trained(params)``, and sums, the loss among them as ``loss``.
    """
    trained = optimizer.differentiated(adapters.trained(params))

    def share(trained: decoder.Parameters, micro: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        return objective(adapters.with_trained(params, trained), micro)

    differentiate = jax.value_and_grad(share, has_aux=True)
    first = micro_batch(stacked, jnp.int32(0))
    if jax.tree.leaves(stacked)[0].shape[0] == 1:
        # Computed also where none of its rows takes part: a branch or a sum would hold the gradients twice.
        (loss, sums), gradients = differentiate(trained, first)
        return gradients, {"loss": loss, **sums}
    (loss_type, sums_type), _ = jax.eval_shape(differentiate, trained, first)
    sums = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), {"loss": loss_type, **sums_type})

    def body(index: Int[Array, ""], carry: Any) -> Any:
        gradients, sums = carry
        (loss, new_sums), new_gradients = differentiate(trained, micro_batch(stacked, index))
        new_sums = {"loss": loss, **new_sums}
        sums = {name: _combine(name, sums[name], new_sums[name]) for name in sums}
        return jax.tree.map(lambda total, new: total + new.astype(total.dtype), gradients, new_gradients), sums

    zeros = lambda leaf: jnp.zeros_like(leaf, jnp.promote_types(leaf.dtype, optimizer.gradient_dtype))  # noqa: E731
    return jax.lax.fori_loop(0, count, body, (jax.tree.map(zeros, trained), sums))


def observed_sums(scored: ScoredTokens, rows: Rows) -> dict[str, Float[Array, "..."]]:
    """What is only watched of the current policy, as sums over counted tokens; carries no gradient.

    Args:
        scored: N completions.
        rows: The completions.

    Returns:
        Sums of entropy and of the distance to the sampler's log-probabilities, its maximum, and the experts' load.
    """
    mask_NT = rows.mask_NT
    mismatch_NT = jnp.abs(jax.lax.stop_gradient(scored.logprob_NT) - rows.sampler_logprob_NT)
    return {
        "entropy": reduce.masked_sum(scored.entropy_NT, mask_NT),
        "mismatch": reduce.masked_sum(mismatch_NT, mask_NT),
        "mismatch_max": jnp.max(jnp.where(mask_NT, mismatch_NT, 0)),
        **({} if scored.load_LE is None else {"expert_load": scored.load_LE}),
    }


def observed_metrics(sums: dict[str, Float[Array, "..."]]) -> dict[str, Float[Array, ""]]:
    """Means over counted tokens, under the names of the metrics file.

    Args:
        sums: From ``observed_sums``, with ``tokens``, ``clipped_low`` and ``clipped_high`` of the objective.

    Returns:
        Metrics by name.
    """
    tokens = jnp.maximum(sums["tokens"], 1)
    return {
        "entropy": sums["entropy"] / tokens,
        "clip_ratio/low_mean": sums["clipped_low"] / tokens,
        "clip_ratio/high_mean": sums["clipped_high"] / tokens,
        "clip_ratio/region_mean": (sums["clipped_low"] + sums["clipped_high"]) / tokens,
        "sampling/sampling_logp_difference/mean": sums["mismatch"] / tokens,
        "sampling/sampling_logp_difference/max": sums["mismatch_max"],
        **(moe.balance(sums["expert_load"]) if "expert_load" in sums else {}),
    }


def _combine(name: str, total: jax.Array, new: jax.Array) -> jax.Array:
    return jnp.maximum(total, new) if name.endswith("max") else total + new
