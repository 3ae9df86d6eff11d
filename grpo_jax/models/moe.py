"""Mixture of experts: a router sends every token to a few small feed-forward networks."""

import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Integer

from grpo_jax.models import grouped, layers
from grpo_jax.models.declaration import Declaration, initializers
from grpo_jax.models.spec import Experts, ModelSpec
from grpo_jax.parallel import rules


class Routing(NamedTuple):
    """What a layer's router decided.

    Attributes:
        weight: Weights of the chosen experts, float32.
        choice: The chosen experts.
    """

    weight: Float[Array, "... A"]
    choice: Int[Array, "... A"]


def declarations(spec: ModelSpec) -> dict[str, Declaration]:
    """The parameters of a mixture of experts.

    Args:
        spec: A spec with ``experts``.

    Returns:
        One declaration for each name.
    """
    experts, D = spec.experts, spec.d_model
    assert experts is not None
    E, F, init = experts.count, experts.d_ff, initializers(spec)
    table = {"router": Declaration((D, E), ("embed", None), init.projection)}
    if experts.choice_bias:
        table["router_bias"] = Declaration((E,), (None,), nn.initializers.zeros)
    table["expert_gate"] = Declaration((E, D, F), ("expert", "expert_embed", "mlp"), init.projection)
    table["expert_up"] = Declaration((E, D, F), ("expert", "expert_embed", "mlp"), init.projection)
    table["expert_down"] = Declaration((E, F, D), ("expert", "mlp", "expert_embed"), init.residual)
    if experts.shared_d_ff:
        table["shared_gate"] = Declaration((D, experts.shared_d_ff), ("embed", "mlp"), init.projection)
        table["shared_up"] = Declaration((D, experts.shared_d_ff), ("embed", "mlp"), init.projection)
        table["shared_down"] = Declaration((experts.shared_d_ff, D), ("mlp", "embed"), init.residual)
    return table


def route(
    experts: Experts,
    logits: Float[Array, "N E"],
    bias: Float[Array, "E"] | None,
    choice: Integer[Array, "N A"] | None = None,
) -> Routing:
    """Chooses experts for every token.

    Args:
        experts: What is chosen from, and how.
        logits: Of the router, float32.
        bias: Added to the scores for the choice alone; no gradient flows into it.
        choice: A choice made before, which is kept; the weights are these logits' all the same.

    Returns:
        Weights and choices ``[N, per_token]``.

    Source: Mixtral (Jiang et al. 2024); groups: DeepSeek-V2, section 2.2.2; bias: DeepSeek-V3, section 2.1.2.
    """
    score = jax.nn.sigmoid(logits) if experts.score == "sigmoid" else jax.nn.softmax(logits, axis=-1)
    choice = _choose(experts, score, bias) if choice is None else choice.astype(jnp.int32)
    weight = jnp.take_along_axis(score, choice, axis=-1)
    if experts.normalize:
        # Sigmoids may all be 0 in float32; the sum of the largest softmax values may not.
        weight = weight / (jnp.sum(weight, axis=-1, keepdims=True) + 1e-20)
    return Routing(weight * experts.weight_scale, choice)


def _choose(experts: Experts, score: jax.Array, bias: jax.Array | None) -> jax.Array:
    wanted = jax.lax.stop_gradient(score if bias is None else score + bias[None])
    if experts.groups > 1:
        grouped = wanted.reshape(len(wanted), experts.groups, -1)
        best = 2 if experts.group_score == "best_two" else 1
        group_score = jnp.sum(jax.lax.top_k(grouped, best)[0], axis=-1)
        kept = jax.lax.top_k(group_score, experts.groups_per_token)[1]
        allowed = jnp.any(kept[:, :, None] == jnp.arange(experts.groups)[None, None], axis=1)
        wanted = jnp.where(allowed[:, :, None], grouped, -jnp.inf).reshape(wanted.shape)
    return jax.lax.top_k(wanted, experts.per_token)[1]


def chosen_experts(
    x: Float[Array, "N D"], routing: Routing, weights: grouped.Weights, activation: str
) -> Float[Array, "N D"]:
    """The weighted sum of the chosen experts: tokens are sorted by expert, and only chosen experts are computed.

    Args:
        x: Tokens.
        routing: ``[N, per_token]``; a choice outside the E experts at hand adds nothing.
        weights: Of the experts at hand.
        activation: See ``layers.gated``.

    Returns:
        The sum.
    """
    (N, D), A, E = x.shape, routing.choice.shape[1], len(weights[0])
    choice = routing.choice.reshape(-1)
    # Choices of experts that are not at hand come last, in no group.
    choice = jnp.where((choice >= 0) & (choice < E), choice, E)
    order = jnp.argsort(choice, stable=True)
    sizes = jnp.sum(choice[:, None] == jnp.arange(E)[None], axis=0, dtype=jnp.int32)
    at_hand = (jnp.arange(N * A) < jnp.sum(sizes))[:, None]
    # Copied first, so that the gather is a permutation: its gradient needs no sum in an undefined order.
    copies = jnp.broadcast_to(x[:, None], (N, A, D)).reshape(N * A, D)
    rows = jnp.where(at_hand, copies.at[order].get(unique_indices=True), 0)
    out = jnp.where(at_hand, grouped.network(rows, weights, sizes, activation), 0)
    back = out.at[jnp.argsort(order)].get(unique_indices=True).reshape(N, A, D)
    return jnp.sum(back * routing.weight.astype(x.dtype)[:, :, None], axis=1)


def _local(
    x: jax.Array,
    choice: jax.Array | None,
    router: jax.Array,
    bias: jax.Array | None,
    weights: grouped.Weights,
    *,
    spec: ModelSpec,
    row_axes: tuple[str, ...] | None,
) -> tuple[jax.Array, Routing]:
    experts, rows = spec.experts, x.reshape(-1, x.shape[-1])
    assert experts is not None
    choice = None if choice is None else choice.reshape(len(rows), -1)
    routing = route(experts, rows.astype(jnp.float32) @ router.astype(jnp.float32), bias, choice)
    if row_axes is None:
        out = chosen_experts(rows, routing, weights, spec.activation)
    else:
        out = _exchanged(rows, routing, weights, spec.activation, row_axes)
    return out.reshape(x.shape), jax.tree.map(lambda leaf: leaf.reshape(*x.shape[:-1], -1), routing)


def _exchanged(
    rows: jax.Array, routing: Routing, weights: grouped.Weights, activation: str, row_axes: tuple[str, ...]
) -> jax.Array:
    """``chosen_experts`` on one device: its experts see all rows along ``expert``, and it gets the sums of its own."""
    rows, routing = jax.lax.all_gather((rows, routing), "expert", tiled=True)
    choice = routing.choice - jax.lax.axis_index("expert") * len(weights[0])
    # The derivative is our own: everything varies alike inside of it, and is added up again outside.
    vary = functools.partial(jax.lax.pcast, to="varying")
    weights = vary(weights, tuple(axis for axis in row_axes if axis != "expert"))
    at_hand = Routing(routing.weight, vary(choice, "tensor"))
    out = chosen_experts(vary(rows, "tensor"), at_hand, weights, activation)
    return jax.lax.psum(jax.lax.psum_scatter(out, "expert", tiled=True), "tensor")


def feed_forward(
    spec: ModelSpec,
    parameters: dict[str, jax.Array],
    x: Float[Array, "N S D"],
    choice: Integer[Array, "N S A"] | None = None,
) -> tuple[Float[Array, "N S D"], Routing]:
    """The mixture of experts on hidden states.

    On a mesh every device routes its own rows; the experts that it holds then see those of all devices along
    ``expert``.

    Args:
        spec: A spec with ``experts``.
        parameters: Those of one layer.
        x: Normalised hidden states.
        choice: Experts to visit, where that was decided before.

    Returns:
        What is added to the residual, and the router's decisions ``[N, S, per_token]``.
    """
    assert spec.experts is not None
    weight = lambda name: parameters[name].astype(x.dtype)  # noqa: E731
    router, bias = parameters["router"], parameters.get("router_bias")
    weights = (weight("expert_gate"), weight("expert_up"), weight("expert_down"))
    rows = layers.sharding_of(x)
    row_axes = None if rows is None else rules.mesh_axes(rows)
    local = functools.partial(_local, spec=spec, row_axes=row_axes)
    if rows is not None:
        table = declarations(spec)
        held = [
            tuple(None if axis in rules.GATHERED else axis for axis in table[f"expert_{name}"].axes)
            for name in ("gate", "up", "down")
        ]
        given = lambda place, array: None if array is None else place  # noqa: E731
        places = (rows, given(rows, choice), jax.P(), given(jax.P(), bias), tuple(map(rules.partition, held)))
        local = jax.shard_map(local, in_specs=places, out_specs=(rows, rows))
    out, routing = local(x, choice, router, bias, weights)
    if spec.experts.shared_d_ff:
        gate, up, down = (layers.Projection(weight(f"shared_{name}")) for name in ("gate", "up", "down"))
        out = out + layers.feed_forward(x, (gate, up, down), spec.activation, layers.sharding_of(x))
    return out, routing


def load(experts: Experts, routing: Routing, mask: Bool[Array, "N S"]) -> Float[Array, "E"]:
    """How many choices fell on each expert.

    Args:
        experts: What was chosen from.
        routing: Of one layer.
        mask: Tokens that count.

    Returns:
        Counts.
    """
    chosen = routing.choice[..., None] == jnp.arange(experts.count).reshape(*(1,) * routing.choice.ndim, -1)
    return jnp.sum(chosen & mask[..., None, None], axis=(0, 1, 2), dtype=jnp.float32)


def choice_dtype(experts: Experts) -> type[np.integer]:
    """The smallest type that choices are recorded in."""
    return np.uint8 if experts.count <= 256 else np.int16


def balanced_bias(
    bias_LE: Float[Array, "L E"], load_LE: Float[Array, "L E"], speed: float | Float[Array, ""]
) -> Float[Array, "L E"]:
    """Moves the bias of every expert by ``speed``: up where fewer than the even share of choices fell on it, or down.

    Args:
        bias_LE: Biases of the choice.
        load_LE: From ``load``, for every layer.
        speed: How far, in units of the scores.

    Returns:
        The new biases.

    Source: DeepSeek-V3, section 2.1.2 (Wang et al. 2024, algorithm 1).
    """
    return bias_LE + speed * jnp.sign(jnp.mean(load_LE, axis=1, keepdims=True) - load_LE)


def balance(load_LE: Float[Array, "L E"]) -> dict[str, Float[Array, ""]]:
    """How evenly experts are used: numbers to log.

    Args:
        load_LE: From ``load``, for every layer.

    Returns:
        ``experts/load_max`` (the busiest expert of any layer over the even share, 1 is even),
        ``experts/load_entropy`` (mean over layers, over that of even use) and ``experts/idle_share`` (experts that no
        token chose).
    """
    total = jnp.maximum(jnp.sum(load_LE, axis=1, keepdims=True), 1)
    share_LE, count = load_LE / total, load_LE.shape[1]
    entropy_L = -jnp.sum(jax.scipy.special.xlogy(share_LE, share_LE), axis=1)
    return {
        "experts/load_max": jnp.max(share_LE) * count,
        "experts/load_entropy": jnp.mean(entropy_L) / jnp.log(count),
        "experts/idle_share": jnp.mean(load_LE == 0),
    }
