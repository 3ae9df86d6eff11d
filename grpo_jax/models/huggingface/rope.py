"""Rotary settings of a ``config.json``: ``rope_scaling`` of transformers 4 or ``rope_parameters`` of 5."""

import math
from typing import Any, NamedTuple

from grpo_jax.models.huggingface.fields import Fields
from grpo_jax.models.spec import RopeScaling


class Rope(NamedTuple):
    """Rotary settings.

    Attributes:
        theta: Base of the frequencies.
        scaling: How they are stretched, or None.
        latent_scale: (latent attention) what products of queries and keys are multiplied by besides.
    """

    theta: float
    scaling: RopeScaling | None
    latent_scale: float = 1.0


def read_rope(fields: Fields, default_theta: float = 10_000.0) -> Rope:
    """Reads the settings of a model whose layers all rotate alike.

    Args:
        fields: Those of the file.
        default_theta: Base where the file names none.

    Returns:
        The settings.

    Raises:
        ValueError: if the file asks for a stretch that the decoder does not know.
    """
    fields.expect("partial_rotary_factor", 1.0)
    theta = fields.number("rope_theta", default_theta)
    longest = fields.optional_integer("max_position_embeddings")
    return _read(fields.section("rope_scaling") or fields.section("rope_parameters"), theta, longest)


def read_two_ropes(fields: Fields, default_theta: float, window_theta: float) -> tuple[Rope, Rope]:
    """Reads the settings of a model whose layers with a window rotate differently.

    Args:
        fields: Those of the file.
        default_theta: Base where the file names none.
        window_theta: The same for layers with a window.

    Returns:
        Settings of layers that see everything, and of layers with a window.

    Raises:
        ValueError: if the file asks for a stretch that the decoder does not know.
    """
    theta, near = fields.number("rope_theta", default_theta), fields.number("rope_local_base_freq", window_theta)
    longest = fields.optional_integer("max_position_embeddings")
    both = fields.section("rope_parameters")
    if both is None:
        return _read(fields.section("rope_scaling"), theta, longest), Rope(near, None)
    wide = _read(both.section("full_attention"), theta, longest)
    narrow = _read(both.section("sliding_attention"), near, longest)
    both.finish()
    if narrow.scaling is not None:
        raise both.unsupported("sliding_attention", narrow.scaling.kind, "no stretch where there is a window")
    return wide, narrow


def _read(section: Fields | None, theta: float, longest: int | None) -> Rope:
    if section is None:
        return Rope(theta, None)
    theta = section.number("rope_theta", theta)
    section.expect("partial_rotary_factor", 1.0)
    kind = section.take("rope_type", None) or section.take("type", "default")
    section.take("type", None)  # files of both generations name the kind twice
    readers = {"default": None, "linear": _linear, "llama3": _llama3, "yarn": _yarn}
    if kind not in readers:
        raise section.unsupported("rope_type", kind, " or ".join(map(repr, readers)))
    reader = readers[kind]
    values: Any = (None, 1.0) if reader is None else reader(section, longest)
    section.finish()
    return Rope(theta, *values)


def _linear(section: Fields, _: int | None) -> tuple[RopeScaling, float]:
    return RopeScaling("linear", section.number("factor")), 1.0


def _llama3(section: Fields, _: int | None) -> tuple[RopeScaling, float]:
    scaling = RopeScaling(
        "llama3",
        section.number("factor"),
        section.number("low_freq_factor"),
        section.number("high_freq_factor"),
        section.integer("original_max_position_embeddings"),
    )
    return scaling, 1.0


def _yarn(section: Fields, longest: int | None) -> tuple[RopeScaling, float]:
    factor = section.number("factor")
    original = section.optional_integer("original_max_position_embeddings") or longest
    if original is None:
        raise section.unsupported("original_max_position_embeddings", None, "the context that was trained on")
    ours, all_dims = section.number("mscale", 0), section.number("mscale_all_dim", 0)
    grown = lambda slope: 0.1 * slope * math.log(factor) + 1 if factor > 1 else 1.0  # noqa: E731
    amplitude = grown(ours) / grown(all_dims) if ours and all_dims else grown(1)
    scaling = RopeScaling(
        "yarn",
        factor,
        original_max_positions=original,
        beta_fast=section.number("beta_fast", 32),
        beta_slow=section.number("beta_slow", 1),
        whole_pairs=section.flag("truncate", True),
        amplitude=section.number("attention_factor", amplitude),
    )
    return scaling, grown(all_dims) ** 2 if all_dims else 1.0
