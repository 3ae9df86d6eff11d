"""Rotary position embeddings and the ways in which published models stretch them."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from grpo_jax.models.spec import ModelSpec, RopeScaling


def frequencies(spec: ModelSpec) -> Float[Array, "half"]:
    """Radians per position of each pair of a head's coordinates, after the spec's scaling.

    Source: Su et al. 2021; the ``llama3`` stretch is that of Llama 3.1 (Grattafiori et al. 2024); ``yarn`` is
    Peng et al. 2023, section 3.2.
    """
    frequency = _unscaled(spec.rope_theta, spec.rotary_dim)
    scaling = spec.rope_scaling
    if scaling is None:
        return frequency
    if scaling.kind == "linear":
        return frequency / scaling.factor
    if scaling.kind == "yarn":
        keep = _yarn_kept(spec.rope_theta, spec.rotary_dim, scaling)
    else:
        turns = scaling.original_max_positions * frequency / (2 * math.pi)
        keep = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
        keep = jnp.clip(keep, 0, 1)
    return keep * frequency + (1 - keep) * frequency / scaling.factor


def _unscaled(theta: float, size: int) -> Float[Array, "half"]:
    exponent = jnp.arange(0, size, 2, dtype=jnp.float32) / size
    return 1.0 / theta**exponent


def _yarn_kept(theta: float, size: int, scaling: RopeScaling) -> Float[Array, "half"]:
    def pair_that_turns(turns: float) -> float:
        """The (fractional) pair that makes so many turns within the original context."""
        return size * math.log(scaling.original_max_positions / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = pair_that_turns(scaling.beta_fast), pair_that_turns(scaling.beta_slow)
    if scaling.whole_pairs:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    # A blend of no width would divide by zero: it is a step then.
    width = max(last - first, 1e-3)
    return 1 - jnp.clip((jnp.arange(size // 2, dtype=jnp.float32) - first) / width, 0, 1)


def angles(position: Int[Array, "..."], spec: ModelSpec) -> tuple[Float[Array, "... half"], Float[Array, "... half"]]:
    """Cosine and sine of each position's rotation, float32, times the scaling's amplitude."""
    cosine, sine = _turned(position, frequencies(spec))
    if spec.rope_scaling is None or spec.rope_scaling.amplitude == 1:
        return cosine, sine
    return cosine * spec.rope_scaling.amplitude, sine * spec.rope_scaling.amplitude


def window_angles(
    position: Int[Array, "..."], spec: ModelSpec
) -> tuple[Float[Array, "... half"], Float[Array, "... half"]]:
    """The same for layers with a window, in a spec that gives them their own base."""
    assert spec.window_rope_theta is not None
    return _turned(position, _unscaled(spec.window_rope_theta, spec.rotary_dim))


def _turned(position: jax.Array, frequency: jax.Array) -> tuple[jax.Array, jax.Array]:
    angle = position[..., None].astype(jnp.float32) * frequency.reshape((1,) * position.ndim + (-1,))
    return jnp.cos(angle), jnp.sin(angle)


def rotate(
    x: Float[Array, "*rows heads C"], cosine: Float[Array, "*#rows half"], sine: Float[Array, "*#rows half"]
) -> Float[Array, "*rows heads C"]:
    """Applies rotary embeddings; coordinate i is paired with i + C/2."""
    first, second = jnp.split(x, 2, axis=-1)
    cosine, sine = cosine[..., None, :].astype(x.dtype), sine[..., None, :].astype(x.dtype)
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
