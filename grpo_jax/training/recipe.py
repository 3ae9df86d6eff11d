"""What the loop knows of an algorithm, and what every algorithm's state is made of."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import Array, Bool, Float, Int

from grpo_jax.config import ReferenceConfig, RunConfig
from grpo_jax.models import adapters, decoder, precision
from grpo_jax.models.parameters import STACK_NAMES
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import rules
from grpo_jax.training.optimizer import Optimizer, gradient_norm

Metrics = dict[str, jax.Array]


@runtime_checkable
class State(Protocol):
    """What the loop knows of an algorithm's state; it is a tree of arrays."""

    @property
    def params(self) -> decoder.Parameters:
        """The policy's parameters, which are sampled from."""
        ...

    @property
    def updates(self) -> Int[Array, ""]:
        """Optimizer updates of the policy."""
        ...


class TrainState(NamedTuple):
    """Everything a step changes, and the reference.

    Attributes:
        params: Float32 master parameters. Those are in the compute dtype whose masters the optimizer's state holds, and
            those that a policy's adapters stand beside.
        optimizer: State of the optimizer, for what is trained.
        updates: Optimizer updates that were applied; skipped ones do not count.
        reference: Frozen parameters, or None where none are needed or ``params`` hold them.
    """

    params: decoder.Parameters
    optimizer: Any
    updates: Int[Array, ""]
    reference: decoder.Parameters | None


class Outcome(NamedTuple):
    """What the judge says of a batch, on the host.

    Attributes:
        reward_BG: Rewards; 0 where the judge failed.
        part_BGK: Each of the K rewards on its own, before weights.
        valid_BG: False where the judge failed.
    """

    reward_BG: Float[np.ndarray, "B G"]
    part_BGK: Float[np.ndarray, "B G K"]
    valid_BG: Bool[np.ndarray, "B G"]


class Recipe(NamedTuple):
    """An algorithm as three pure functions; the loop knows nothing else of it.

    Attributes:
        init: ``(params) -> state``.
        prepare: ``(state, rollout, outcome, step) -> (batch, metrics)``: reference and old log-probabilities,
            advantages, and which completions take part.
        update: ``(state, batch) -> (state, metrics)``: one optimizer update. The state's buffers are reused.
    """

    init: Callable[[decoder.Parameters], State]
    prepare: Callable[..., tuple[Any, Metrics]]
    update: Callable[[Any, Any], tuple[Any, Metrics]]


def init_state(params: decoder.Parameters, optimizer: Optimizer, reference: Any) -> TrainState:
    """A state before its first update."""
    held, state = optimizer.init(adapters.trained(params))
    return TrainState(adapters.with_trained(params, held), state, jnp.int32(0), reference)


def init_policy(
    params: decoder.Parameters, spec: ModelSpec, optimizer: Optimizer, config: RunConfig, kl_beta: float
) -> TrainState:
    """A policy before its first update, with the reference that a KL penalty needs.

    Args:
        params: Float32 parameters to start from. A spec with ``lora`` freezes them and puts fresh adapters beside them.
        spec: The policy's spec.
        optimizer: Of what is trained.
        config: Its ``seed``, for fresh adapters, and how the reference is held.
        kl_beta: Weight of the KL penalty; 0 needs no reference.

    Returns:
        The state.
    """
    if spec.lora:
        fresh = adapters.init_adapters(jax.random.key(config.seed), spec)
        return init_state(adapters.attached(frozen_copy(params, spec), fresh), optimizer, None)
    return init_state(params, optimizer, frozen_copy(params, spec, config.reference) if kl_beta > 0 else None)


def reference_params(state: TrainState) -> decoder.Parameters | None:
    """The model that a policy started from: what its adapters stand beside, or the copy that its state holds."""
    return adapters.without_adapters(state.params) if adapters.ADAPTERS in state.params else state.reference


def frozen_copy(
    params: decoder.Parameters, spec: ModelSpec, config: ReferenceConfig | None = None
) -> decoder.Parameters:
    """The reference, in buffers that the policy's update does not reuse.

    Args:
        params: Float32 parameters.
        spec: Their spec.
        config: How it is held; None for the compute dtype, on the devices.

    Returns:
        Parameters for ``forward``.
    """
    config = config or ReferenceConfig()
    copy = jax.tree.map(jnp.copy, params)
    if config.dtype != "compute":
        copy = precision.quantized_stacks(copy, decoder.logical_axes(spec), config.dtype)
    copy = precision.narrowed(copy, spec.compute_dtype)
    if config.placement == "host":
        copy = {name: rules.on_host(part) if name in STACK_NAMES else part for name, part in copy.items()}
    return copy


def apply_gradients(
    state: TrainState,
    gradients: decoder.Parameters,
    optimizer: Optimizer,
    wanted: jax.Array,
) -> tuple[TrainState, Metrics]:
    """Applies one update, or leaves parameters, moments and counters untouched.

    Args:
        state: The state before.
        gradients: Gradients of the loss, in the structure of what is trained.
        optimizer: From ``make_optimizer``.
        wanted: False where there is nothing to learn from; no weight decay or momentum acts then either.

    Returns:
        The new state and ``grad_norm`` (before clipping), ``skipped_update`` (nothing to learn from) and
        ``nonfinite_update`` (refused, since the gradient was not finite).
    """
    norm = gradient_norm(gradients)
    finite = jnp.isfinite(norm)
    moves = wanted & finite
    trained, held = optimizer.apply(gradients, norm, state.optimizer, adapters.trained(state.params), moves)
    params = adapters.with_trained(state.params, trained)
    state = state._replace(params=params, optimizer=held, updates=state.updates + moves)
    metrics = {"grad_norm": norm, "skipped_update": ~wanted, "nonfinite_update": wanted & ~finite}
    return state, {name: value.astype(jnp.float32) for name, value in metrics.items()}


def abstract_params(spec: ModelSpec) -> Any:
    """Shape, dtype and place of every parameter on the mesh in use.

    Args:
        spec: The policy's spec.

    Returns:
        Nested dict of ``jax.ShapeDtypeStruct``.

    Raises:
        ValueError: if a parameter does not divide over its mesh axes.
    """
    shapes = jax.eval_shape(lambda: decoder.init_params(jax.random.key(0), spec))
    axes = decoder.logical_axes(spec)
    rules.validate_divisible(shapes, axes)
    mesh = jax.sharding.get_mesh()

    def place(leaf: jax.ShapeDtypeStruct, names: rules.LogicalAxes) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, rules.partition(names)))

    return jax.tree.map(place, shapes, axes)


def abstract_state(recipe: Recipe, spec: ModelSpec) -> Any:
    """Shape, dtype and place of everything in an algorithm's state, on the mesh in use and in which memory.

    Args:
        recipe: The algorithm.
        spec: The policy's spec.

    Returns:
        The state's tree, of ``jax.ShapeDtypeStruct``.
    """
    mesh = jax.sharding.get_mesh()
    traced, shapes = jax.make_jaxpr(recipe.init, return_shape=True)(abstract_params(spec))

    def place(aval: Any) -> jax.ShapeDtypeStruct:
        sharding = NamedSharding(mesh, aval.sharding.spec)
        if aval.memory_space == jax.memory.Space.Host:
            sharding = sharding.with_memory_kind("pinned_host")
            if sharding.memory_kind is None:
                # Devices that are only described have no memories to choose from; what is lowered says it all the same.
                sharding = NamedSharding(mesh.abstract_mesh, aval.sharding.spec, memory_kind="pinned_host")
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding)

    return jax.tree.unflatten(jax.tree.structure(shapes), map(place, traced.out_avals))


def init_sharded(key: jax.Array, spec: ModelSpec) -> decoder.Parameters:
    """Fresh parameters, made where they live."""
    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract_params(spec))
    return jax.jit(decoder.init_params, static_argnames="spec", out_shardings=shardings)(key, spec=spec)
