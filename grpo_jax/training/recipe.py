"""What the loop knows of an algorithm, and what every algorithm's state is made of."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jaxtyping import Array, Bool, Float, Int

from grpo_jax.config import OptimizerConfig
from grpo_jax.models import adapters, decoder
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import rules

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
        params: Float32 master parameters; of a policy with adapters only those are, the others are frozen and in the
            compute dtype.
        optimizer: State of the optax optimizer, for what is trained.
        updates: Optimizer updates that were applied; skipped ones do not count.
        reference: Frozen parameters in the compute dtype, or None where none are needed or ``params`` hold them.
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


def learning_rate_schedule(config: OptimizerConfig, total_updates: int) -> optax.Schedule:
    """Linear warm-up to the peak, then constant, or linear or cosine decay.

    The decay reaches ``final_fraction`` one update after the last, so that the last still moves when it is 0.
    """
    peak, end = config.learning_rate, config.learning_rate * config.final_fraction
    decay_updates = max(total_updates - config.warmup_steps, 1)
    decay = {
        "constant": lambda: optax.constant_schedule(peak),
        "linear": lambda: optax.linear_schedule(peak, end, decay_updates),
        "cosine": lambda: optax.cosine_decay_schedule(peak, decay_updates, config.final_fraction),
    }[config.schedule]()
    # The first update already moves: a warm-up that starts at 0 wastes a whole batch.
    warmup = optax.linear_schedule(peak / max(config.warmup_steps, 1), peak, max(config.warmup_steps - 1, 1))
    return optax.join_schedules([warmup, decay], [config.warmup_steps])


def make_optimizer(config: OptimizerConfig, total_updates: int) -> optax.GradientTransformation:
    """AdamW behind a clipped global gradient norm; norms and biases are not decayed."""

    def decayed(params: decoder.Parameters) -> Any:
        named = lambda path, _: not str(path[-1].key).endswith(("norm", "bias"))  # noqa: E731
        return jax.tree_util.tree_map_with_path(named, params)

    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        optax.adamw(
            learning_rate_schedule(config, total_updates),
            b1=config.b1,
            b2=config.b2,
            eps=config.epsilon,
            weight_decay=config.weight_decay,
            mask=decayed,
        ),
    )


def init_state(params: decoder.Parameters, optimizer: optax.GradientTransformation, reference: Any) -> TrainState:
    """A state before its first update."""
    return TrainState(params, optimizer.init(adapters.trained(params)), jnp.int32(0), reference)


def init_policy(
    params: decoder.Parameters, spec: ModelSpec, optimizer: optax.GradientTransformation, seed: int, kl_beta: float
) -> TrainState:
    """A policy before its first update, with the reference that a KL penalty needs.

    Args:
        params: Parameters to start from. A spec with ``lora`` freezes them and puts fresh adapters beside them.
        spec: The policy's spec.
        optimizer: Of what is trained.
        seed: The run's, for fresh adapters.
        kl_beta: Weight of the KL penalty; 0 needs no reference.

    Returns:
        The state.
    """
    if spec.lora:
        fresh = adapters.init_adapters(jax.random.key(seed), spec)
        return init_state(adapters.attached(frozen_copy(params, spec), fresh), optimizer, None)
    return init_state(params, optimizer, frozen_copy(params, spec) if kl_beta > 0 else None)


def reference_params(state: TrainState) -> decoder.Parameters | None:
    """The model that a policy started from: what its adapters stand beside, or the copy that its state holds."""
    return adapters.without_adapters(state.params) if adapters.ADAPTERS in state.params else state.reference


def frozen_copy(params: decoder.Parameters, spec: ModelSpec) -> decoder.Parameters:
    """The reference: the parameters in the compute dtype, in buffers that the policy's update does not reuse.

    What chooses experts stays in float32, as the policy computes it: rounded, some tokens would visit others.
    """

    def copy(path: Any, leaf: jax.Array) -> jax.Array:
        chooses = path[-1].key in ("router", "router_bias")
        return jnp.copy(leaf) if chooses else jnp.copy(leaf).astype(spec.compute_dtype)

    return jax.tree_util.tree_map_with_path(copy, params)


def apply_gradients(
    state: TrainState,
    gradients: decoder.Parameters,
    optimizer: optax.GradientTransformation,
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
    norm = optax.tree.norm(gradients)
    finite = jnp.isfinite(norm)

    moves = wanted & finite
    # Chosen element by element: a branch would hold both states at once.
    choose = lambda new, old: jnp.where(moves, new, old)  # noqa: E731
    trained = adapters.trained(state.params)
    changes, optimizer_state = optimizer.update(gradients, state.optimizer, trained)
    new: Any = jax.tree.map(choose, optax.apply_updates(trained, changes), trained)
    optimizer_state = jax.tree.map(choose, optimizer_state, state.optimizer)
    params = adapters.with_trained(state.params, new)
    state = state._replace(params=params, optimizer=optimizer_state, updates=state.updates + moves)
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


def init_sharded(key: jax.Array, spec: ModelSpec) -> decoder.Parameters:
    """Fresh parameters, made where they live."""
    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract_params(spec))
    return jax.jit(decoder.init_params, static_argnames="spec", out_shardings=shardings)(key, spec=spec)
