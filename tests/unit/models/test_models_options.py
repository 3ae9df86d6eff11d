"""What the fields of a spec beyond the plain Llama change, one at a time."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.models import attention, decoder, layers, rotary
from grpo_jax.models.spec import LatentAttention, ModelSpec, RopeScaling

SPEC = ModelSpec(
    vocab_size=11, num_layers=1, d_model=8, num_heads=2, num_kv_heads=1, head_dim=4, d_ff=8, rope_theta=10.0
)
TOKENS = [3, 1, 4, 1, 5, 9, 2]

forward = jax.jit(decoder.forward, static_argnames="spec")


def params(spec, seed=0):
    noise = np.random.default_rng(seed)
    shapes = jax.eval_shape(lambda: decoder.init_params(jax.random.key(0), spec))
    return jax.tree.map(lambda leaf: jnp.asarray(noise.normal(size=leaf.shape), jnp.float32), shapes)


def hidden(spec, tokens, seed=0):
    row = (jnp.array([tokens]), jnp.arange(len(tokens))[None], jnp.ones((1, len(tokens)), jnp.int32))
    return np.asarray(forward(params(spec, seed), spec, *row)[0])


@pytest.mark.parametrize("windows", [(3,), (3, 3), (3, 5)], ids=str)
def test_a_window_ends_where_it_should(windows):
    spec = dataclasses.replace(SPEC, windows=windows, num_layers=len(windows))
    # Each layer carries what is seen one window further, its own position counted once.
    reach = sum(window - 1 for window in windows)
    first = len(TOKENS) - 1 - reach
    for changed in range(len(TOKENS)):
        other = [*TOKENS[:changed], 7, *TOKENS[changed + 1 :]]
        difference = np.abs(hidden(spec, TOKENS)[-1] - hidden(spec, other)[-1]).max()
        assert (difference == 0) == (changed < first), (changed, difference)


def test_a_window_of_a_layer_may_be_known_only_at_run_time():
    distance, mask = jnp.arange(6) - 1, jnp.array([False] + [True] * 5)
    for window in (0, 1, 3):
        wanted = attention.within_window(distance, mask, window)
        np.testing.assert_array_equal(attention.within_window(distance, mask, jnp.int32(window)), wanted)
    np.testing.assert_array_equal(attention.within_window(distance, mask, 3), [False, True, True, True, False, False])


def test_layers_with_a_window_may_rotate_by_their_own_base():
    alike = dataclasses.replace(SPEC, windows=(50, 50), num_layers=2, window_rope_theta=10.0)
    np.testing.assert_array_equal(
        hidden(alike, TOKENS), hidden(dataclasses.replace(alike, window_rope_theta=None), TOKENS)
    )
    narrow = dataclasses.replace(alike, window_rope_theta=77.0)
    # Where every layer has a window, the other base and its stretch are read by none.
    whatever = dataclasses.replace(narrow, rope_theta=3.0, rope_scaling=RopeScaling("linear", 2.0))
    np.testing.assert_array_equal(hidden(narrow, TOKENS), hidden(whatever, TOKENS))
    as_base = dataclasses.replace(SPEC, num_layers=2, rope_theta=77.0)
    np.testing.assert_allclose(hidden(narrow, TOKENS), hidden(as_base, TOKENS), rtol=1e-5, atol=1e-5)
    mixed = dataclasses.replace(narrow, windows=(50, 0))
    assert np.abs(hidden(mixed, TOKENS) - hidden(narrow, TOKENS)).max() > 1e-3
    assert np.abs(hidden(mixed, TOKENS) - hidden(alike, TOKENS)).max() > 1e-3


def test_yarn_keeps_fast_pairs_divides_slow_ones_and_blends_between():
    scaling = RopeScaling("yarn", 8.0, original_max_positions=256, beta_fast=16.0, beta_slow=1.0, amplitude=1.5)
    spec = dataclasses.replace(SPEC, head_dim=32, rope_theta=1e4, rope_scaling=scaling)
    plain = rotary.frequencies(dataclasses.replace(spec, rope_scaling=None))
    turns = 256 * plain / (2 * math.pi)
    ratio = rotary.frequencies(spec) / plain
    for pair in range(16):
        # The blend begins at the last whole pair that turns at least 16 times and ends at the first below one turn.
        exact = [32 * math.log(256 / (beta * 2 * math.pi)) / (2 * math.log(1e4)) for beta in (16, 1)]
        low, high = math.floor(exact[0]), math.ceil(exact[1])
        keep = 1 - min(max((pair - low) / (high - low), 0), 1)
        np.testing.assert_allclose(ratio[pair], keep + (1 - keep) / 8, rtol=1e-5)
    assert ratio[0] == 1
    assert ratio[-1] == pytest.approx(1 / 8)
    assert (turns[np.asarray(ratio) == 1] > 16).all()
    cosine, sine = rotary.angles(jnp.arange(5), spec)
    np.testing.assert_allclose(cosine**2 + sine**2, 1.5**2, rtol=1e-5)
    fractional = dataclasses.replace(spec, rope_scaling=dataclasses.replace(scaling, whole_pairs=False))
    assert np.abs(rotary.frequencies(fractional) / plain - ratio).max() > 1e-3


def test_norm_offsets_scales_and_post_norms():
    offset = dataclasses.replace(SPEC, norm_offset=1.0, post_norms=True)
    fresh = decoder.init_params(jax.random.key(0), offset)
    for name in ("attention_norm", "post_attention_norm", "mlp_norm", "post_mlp_norm"):
        np.testing.assert_array_equal(fresh["blocks"][name], 0)
    np.testing.assert_array_equal(fresh["final_norm"], 0)
    shifted = params(offset)
    moved = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf + 1 if path[-1].key.endswith("norm") else leaf, shifted
    )
    row = (jnp.array([TOKENS]), jnp.arange(7)[None], jnp.ones((1, 7), jnp.int32))
    plain = dataclasses.replace(offset, norm_offset=0.0)
    np.testing.assert_array_equal(forward(shifted, offset, *row), forward(moved, plain, *row))
    # Behind a norm whose scale is 0 nothing is added: what remains is the embedding.
    silent = jax.tree_util.tree_map_with_path(
        lambda path, leaf: 0 * leaf if path[-1].key.startswith("post") else leaf, moved
    )
    scaled = dataclasses.replace(plain, embedding_scale=3.0)
    wanted = layers.rms_norm(3 * silent["embedding"][jnp.array(TOKENS)], silent["final_norm"], plain.norm_epsilon)
    np.testing.assert_allclose(forward(silent, scaled, *row)[0], wanted, rtol=1e-6)


def test_activations_and_scales_are_read():
    for change in ({"activation": "gelu_tanh"}, {"attention_scale": 2.0}, {"embedding_scale": 3.0}):
        assert np.abs(hidden(dataclasses.replace(SPEC, **change), TOKENS) - hidden(SPEC, TOKENS)).max() > 1e-3
    exact = 0.5 * 1.5 * (1 + math.erf(1.5 / math.sqrt(2)))
    assert float(layers.gated(jnp.array([1.5]), jnp.array([2.0]), "gelu_tanh")[0]) == pytest.approx(2 * exact, abs=1e-3)
    default = dataclasses.replace(SPEC, attention_scale=SPEC.head_dim**-0.5)
    np.testing.assert_array_equal(hidden(default, TOKENS), hidden(SPEC, TOKENS))


def test_a_latent_cache_holds_one_vector_per_token():
    latent = dataclasses.replace(SPEC, num_layers=3, head_dim=6, latent=LatentAttention(0, 5, 2, 7))
    cache = decoder.empty_cache(latent, 2, 3, 4)
    assert cache.key_LBGKTC.shape == (3, 2, 3, 1, 4, 7)
    assert cache.value_LBGKTC.size == 0
    plain = decoder.empty_cache(dataclasses.replace(SPEC, compute_dtype="bfloat16"), 2, 3, 4)
    assert {array.shape for array in plain[:2]} == {(1, 2, 3, 1, 4, 4)}
    assert {array.dtype for array in plain[:2]} == {jnp.dtype("bfloat16")}
