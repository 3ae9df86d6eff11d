"""How parameters move: AdamW on the devices, or streamed through them from the host's memory."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from grpo_jax.config import OptimizerConfig
from grpo_jax.models import precision
from grpo_jax.models.parameters import STACK_NAMES, Parameters
from grpo_jax.parallel import rules


class Optimizer(NamedTuple):
    """How what is trained moves: three pure functions, and a dtype.

    Attributes:
        init: ``float32 parameters -> (parameters as training holds them, state)``.
        differentiated: From parameters as training holds them to those that are differentiated, whose dtypes gradients
            have.
        apply: ``(gradients, norm, state, parameters, moves) -> (parameters, state)``: one update, or none where
            ``moves`` is False. ``norm`` is that of the gradients.
        gradient_dtype: The narrowest that gradients are added up in.
    """

    init: Callable[[Parameters], tuple[Parameters, Any]]
    differentiated: Callable[[Parameters], Parameters]
    apply: Callable[[Parameters, Float[Array, ""], Any, Parameters, Bool[Array, ""]], tuple[Parameters, Any]]
    gradient_dtype: str


class HostState(NamedTuple):
    """State of a streamed optimizer.

    Attributes:
        masters: Float32 parameters by group, in the host's memory.
        moments: State of AdamW by group; arrays are in the host's memory but for the group ``resident``.
    """

    masters: dict[str, dict[str, jax.Array]]
    moments: dict[str, Any]


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


def make_optimizer(config: OptimizerConfig, total_updates: int, compute_dtype: Any) -> Optimizer:
    """AdamW behind a clipped global gradient norm; norms and biases are not decayed.

    Args:
        config: Its settings.
        total_updates: Updates of the whole run, for the schedule.
        compute_dtype: In which the policy is computed, and held where its masters are on the host.

    Returns:
        The optimizer.
    """
    moved = _adamw(config, total_updates)
    if config.placement == "host":
        return _streamed(moved, config, compute_dtype)
    clipped = optax.chain(optax.clip_by_global_norm(config.max_grad_norm), moved)
    narrow = config.gradient_dtype == "bfloat16"
    return Optimizer(
        init=lambda params: (params, clipped.init(params)),
        differentiated=functools.partial(precision.narrowed, dtype=jnp.bfloat16) if narrow else lambda params: params,
        apply=functools.partial(_moved, clipped),
        gradient_dtype=config.gradient_dtype,
    )


def _adamw(config: OptimizerConfig, total_updates: int) -> optax.GradientTransformation:
    def decayed(params: Parameters) -> Any:
        named = lambda path, _: not precision.name_of(path).endswith(("norm", "bias"))  # noqa: E731
        return jax.tree_util.tree_map_with_path(named, params)

    adamw = optax.adamw(
        learning_rate_schedule(config, total_updates),
        b1=config.b1,
        b2=config.b2,
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        mask=decayed,
    )
    return adamw if config.moments_dtype == "float32" else _with_narrow_moments(adamw)


def _with_narrow_moments(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Keeps an optimizer's moments in bfloat16, rounded up or down at random so that they are right on average.

    Rounded to nearest, a second moment that should shrink by less than 1/256 in an update would never shrink.
    """

    def init(params: Any) -> Any:
        return _map_moments(lambda leaf: leaf.astype(jnp.bfloat16), inner.init(params))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        wide = _map_moments(lambda leaf: leaf.astype(jnp.float32), state)
        changes, new = inner.update(updates, wide, params)
        key = jax.random.fold_in(jax.random.key(0), optax.tree.get_all_with_path(new, "count")[0][1])
        numbers = iter(range(len(jax.tree.leaves(new))))
        return changes, _map_moments(lambda leaf: _rounded_at_random(leaf, jax.random.fold_in(key, next(numbers))), new)

    return optax.GradientTransformation(init, update)


def _map_moments(change: Callable[[jax.Array], jax.Array], state: Any) -> Any:
    return jax.tree.map(lambda leaf: change(leaf) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, state)


def _rounded_at_random(x: jax.Array, key: jax.Array) -> jax.Array:
    """Float32 to one of the two nearest bfloat16 numbers, each with the chance that makes the mean right."""
    place = jax.typeof(x).sharding if rules.has_mesh() else None
    noise = jax.random.bits(key, x.shape, jnp.uint16, out_sharding=place).astype(jnp.uint32)
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32) + noise
    rounded = jax.lax.bitcast_convert_type(bits & jnp.uint32(0xFFFF0000), jnp.float32)
    return rounded.astype(jnp.bfloat16)


def _moved(
    transformation: optax.GradientTransformation,
    gradients: Any,
    norm: jax.Array,
    state: Any,
    params: Any,
    moves: jax.Array,
) -> tuple[Any, Any]:
    del norm
    # Chosen element by element: a branch would hold both states at once.
    choose = lambda new, old: jnp.where(moves, new, old)  # noqa: E731
    changes, new_state = transformation.update(_wide(gradients), state, params)
    new = optax.apply_updates(params, changes)
    return jax.tree.map(choose, new, params), jax.tree.map(choose, new_state, state)


def gradient_norm(gradients: Parameters) -> Float[Array, ""]:
    """The global norm of gradients, added up in float32 or better whatever they are held in."""
    return optax.tree.norm(_wide(gradients))


def _wide(gradients: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), gradients)


_RESIDENT = "resident"
"""The group of small parameters, which are float32 and stay on the device with their moments."""


def _grouped(tree: Any) -> dict[str, dict[str, Any]]:
    """Parameters by what is streamed together: each stack of layers, each embedding, and what is not streamed."""
    groups: dict[str, dict[str, Any]] = {}
    for path, leaf in jax.tree.leaves_with_path(tree):
        keys = [part.key for part in path]
        stack = next((number for number, key in enumerate(keys) if key in STACK_NAMES), None)
        if keys[-1].endswith(precision.WIDE):
            group = _RESIDENT
        elif stack is not None:
            group = "/".join(keys[: stack + 1])
        else:
            group = "/".join(keys) if keys[-1] in ("embedding", "unembedding") else _RESIDENT
        groups.setdefault(group, {})["/".join(keys)] = leaf
    return groups


def _ungrouped(groups: dict[str, dict[str, Any]], like: Any) -> Any:
    leaves = {name: leaf for group in groups.values() for name, leaf in group.items()}
    return jax.tree_util.tree_map_with_path(lambda path, _: leaves["/".join(part.key for part in path)], like)


def _streamed(transformation: optax.GradientTransformation, config: OptimizerConfig, compute_dtype: Any) -> Optimizer:
    """Masters and moments in the host's memory; an update brings in one layer after the other."""

    def init(params: Parameters) -> tuple[Parameters, HostState]:
        groups = _grouped(params)
        moments = {name: transformation.init(group) for name, group in groups.items()}
        resident = groups.pop(_RESIDENT)
        held = {name: precision.narrowed(group, compute_dtype) for name, group in groups.items()}
        moments = {name: one if name == _RESIDENT else _arrays(rules.on_host, one) for name, one in moments.items()}
        return _ungrouped(held | {_RESIDENT: resident}, params), HostState(rules.on_host(groups), moments)

    def apply(
        gradients: Parameters, norm: jax.Array, state: HostState, params: Parameters, moves: jax.Array
    ) -> tuple[Parameters, HostState]:
        # As optax.clip_by_global_norm does it, whose norm would be that of one layer.
        scale = jnp.where(norm < config.max_grad_norm, 1.0, config.max_grad_norm / norm)
        gradients_of, params_of = _grouped(gradients), _grouped(params)
        masters, moments = dict(state.masters), dict(state.moments)

        def moved(gradient: Any, moments: Any, master: Any) -> tuple[Any, Any]:
            gradient = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) * scale, gradient)
            return _moved(transformation, gradient, norm, moments, master, moves)

        for name, gradient in gradients_of.items():
            if name == _RESIDENT:
                params_of[name], moments[name] = moved(gradient, moments[name], params_of[name])
            else:
                stream = _by_layer if name.endswith(STACK_NAMES) else _whole
                held = (masters[name], moments[name])
                params_of[name], (masters[name], moments[name]) = stream(moved, gradient, held, params_of[name])
        return _ungrouped(params_of, params), HostState(masters, moments)

    return Optimizer(init, lambda params: params, apply, config.gradient_dtype)


def _arrays(change: Callable[[Any], Any], tree: Any) -> Any:
    """Changes what has axes; counters stay where they are."""
    return jax.tree.map(lambda leaf: change(leaf) if leaf.ndim else leaf, tree)


def _whole(moved: Callable[..., tuple[Any, Any]], gradient: Any, held: Any, params: Any) -> tuple[Any, Any]:
    master, moments = rules.on_device(held)
    master, moments = moved(gradient, moments, master)
    params = jax.tree.map(lambda new, old: new.astype(old.dtype), master, params)
    return params, (rules.on_host(master), _arrays(rules.on_host, moments))


def _by_layer(moved: Callable[..., tuple[Any, Any]], gradient: Any, held: Any, params: Any) -> tuple[Any, Any]:
    """Updates a stack in place, one layer after the other, so that the device holds the masters of one layer only."""
    layers = len(jax.tree.leaves(params)[0])
    counters = [leaf for leaf in jax.tree.leaves(held) if not leaf.ndim]

    def body(layer: jax.Array, carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        params, held, _ = carry
        take = lambda array: jax.lax.dynamic_index_in_dim(array, layer, keepdims=False)  # noqa: E731
        put = lambda array, new: jax.lax.dynamic_update_index_in_dim(array, new, layer, axis=0)  # noqa: E731
        new_params, new_held = _whole(
            moved, jax.tree.map(take, gradient), _arrays(take, held), jax.tree.map(take, params)
        )
        # Counters are the same for every layer, and count once.
        advanced = [leaf for leaf in jax.tree.leaves(new_held) if not leaf.ndim]
        held = jax.tree.map(lambda array, new: put(array, new) if array.ndim else array, held, new_held)
        return jax.tree.map(put, params, new_params), held, advanced

    params, held, advanced = jax.lax.fori_loop(0, layers, body, (params, held, counters))
    counts = iter(advanced)
    return params, jax.tree.map(lambda leaf: leaf if leaf.ndim else next(counts), held)
