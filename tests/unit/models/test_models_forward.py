"""The decoder against an independent implementation in plain NumPy, one sequence and one position at a time."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpo_jax.models import decoder
from grpo_jax.models.spec import ModelSpec, RopeScaling

SPEC = ModelSpec(
    vocab_size=11,
    num_layers=2,
    d_model=10,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    d_ff=12,
    rope_theta=10.0,
)
LLAMA3 = RopeScaling("llama3", 4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_positions=32)
EVERYTHING = {"tie_embeddings": True, "qk_norm": True, "qkv_bias": True, "rope_scaling": LLAMA3, "norm_epsilon": 0.1}
OPTIONS = {
    "base": {},
    "one_kv_head": {"num_kv_heads": 1},
    "as_many_kv_heads": {"num_kv_heads": 4},
    "one_layer": {"num_layers": 1},
    "tied": {"tie_embeddings": True},
    "qk_norm": {"qk_norm": True},
    "qkv_bias": {"qkv_bias": True},
    "theta": {"rope_theta": 1e4},
    "linear": {"rope_scaling": RopeScaling("linear", 2.5)},
    "llama3": {"rope_scaling": LLAMA3},
    "epsilon": {"norm_epsilon": 0.5},
    "everything": EVERYTHING,
}

forward = jax.jit(decoder.forward, static_argnames="spec")


def random_params(spec, seed=0):
    """Parameters in which norm scales are not 1 and biases not 0: what is never used would go unnoticed."""
    noise = np.random.default_rng(seed)

    def draw(path, leaf):
        name = path[-1].key
        middle, deviation = (1, 0.2) if name.endswith("norm") else (0, 1.0 if name == "embedding" else 0.3)
        return jnp.asarray(middle + deviation * noise.normal(size=leaf.shape), jnp.float32)

    shapes = jax.eval_shape(lambda key: decoder.init_params(key, spec), jax.random.key(0))
    return jax.tree_util.tree_map_with_path(draw, shapes)


def numpy_norm(x, scale, epsilon):
    return x / np.sqrt(np.mean(x**2) + epsilon) * scale


def numpy_frequency(spec, pair):
    frequency = spec.rope_theta ** (-2 * pair / spec.head_dim)
    scaling = spec.rope_scaling
    if scaling is None:
        return frequency
    if scaling.kind == "linear":
        return frequency / scaling.factor
    wavelength = 2 * math.pi / frequency
    if wavelength < scaling.original_max_positions / scaling.high_freq_factor:
        return frequency
    if wavelength > scaling.original_max_positions / scaling.low_freq_factor:
        return frequency / scaling.factor
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth = (scaling.original_max_positions / wavelength - low) / (high - low)
    return (1 - smooth) * frequency / scaling.factor + smooth * frequency


def numpy_rotate(x, position, spec):
    half = spec.head_dim // 2
    rotated = np.empty_like(x)
    for pair in range(half):
        turn = np.exp(1j * position * numpy_frequency(spec, pair)) * (x[pair] + 1j * x[pair + half])
        rotated[pair], rotated[pair + half] = turn.real, turn.imag
    return rotated


def numpy_heads(x, weight_DC, name, block, spec, head):
    vector = x @ weight_DC
    if spec.qkv_bias:
        vector = vector + block[f"{name}_bias"].reshape(-1, spec.head_dim)[head]
    if spec.qk_norm and name != "value":
        vector = numpy_norm(vector, block[f"{name}_norm"], spec.norm_epsilon)
    return vector


def numpy_layer(x_SD, block, spec):
    heads, kv_heads, size = spec.num_heads, spec.num_kv_heads, spec.head_dim
    query = block["query"].reshape(spec.d_model, heads, size)
    out_SD = x_SD.copy()
    for s in range(len(x_SD)):
        normed = [numpy_norm(x, block["attention_norm"], spec.norm_epsilon) for x in x_SD[: s + 1]]
        for head in range(heads):
            kv_head = head * kv_heads // heads
            q = numpy_rotate(numpy_heads(normed[s], query[:, head], "query", block, spec, head), s, spec)
            score, value = [], []
            for t in range(s + 1):
                k = numpy_heads(normed[t], block["key"][:, kv_head], "key", block, spec, kv_head)
                score.append(q @ numpy_rotate(k, t, spec) / math.sqrt(size))
                value.append(numpy_heads(normed[t], block["value"][:, kv_head], "value", block, spec, kv_head))
            weight = np.exp(score) / np.sum(np.exp(score))
            out_SD[s] += weight @ np.array(value) @ block["output"].reshape(heads, size, -1)[head]
        hidden = numpy_norm(out_SD[s], block["mlp_norm"], spec.norm_epsilon)
        gate = hidden @ block["gate"]
        out_SD[s] += (gate / (1 + np.exp(-gate)) * (hidden @ block["up"])) @ block["down"]
    return out_SD


def numpy_hidden(params, spec, tokens):
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    x_SD = params["embedding"][list(tokens)]
    for layer in range(spec.num_layers):
        x_SD = numpy_layer(x_SD, {name: leaf[layer] for name, leaf in params["blocks"].items()}, spec)
    return np.array([numpy_norm(x, params["final_norm"], spec.norm_epsilon) for x in x_SD])


def numpy_logits(params, spec, tokens):
    table_DV = np.asarray(params["embedding"], np.float64).T if spec.tie_embeddings else params["unembedding"]
    return numpy_hidden(params, spec, tokens) @ np.asarray(table_DV, np.float64)


def rows(*layouts, pad=0):
    """Each row is a list of token lists and of pad counts: [2, [3, 4]] is a sequence behind two pads."""
    token, position, segment = [], [], []
    for layout in layouts:
        row = [[], [], []]
        for number, piece in enumerate(layout, start=1):
            pads = isinstance(piece, int)
            length = piece if pads else len(piece)
            row[0] += [pad] * piece if pads else piece
            row[1] += [0] * piece if pads else range(length)
            row[2] += [0 if pads else number] * length
        for array, values in zip((token, position, segment), row, strict=True):
            array.append(values)
    return tuple(jnp.array(array, jnp.int32) for array in (token, position, segment))


LONG, SHORT, SINGLE = [3, 1, 4, 1, 5, 9, 2], [6, 5, 3], [8]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_forward_is_the_numpy_decoder(options):
    spec = dataclasses.replace(SPEC, **options)
    params = random_params(spec)
    hidden_NSD = forward(params, spec, *rows([LONG]))
    np.testing.assert_allclose(hidden_NSD[0], numpy_hidden(params, spec, LONG), rtol=1e-5, atol=1e-5)
    logits_SV = hidden_NSD[0] @ decoder.unembedding(params, spec)
    np.testing.assert_allclose(logits_SV, numpy_logits(params, spec, LONG), rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize("name", sorted(set(OPTIONS) - {"base", "one_kv_head", "as_many_kv_heads", "one_layer"}))
def test_every_option_changes_the_numpy_decoder(name):
    # Otherwise the comparison above could not tell whether the decoder reads the option.
    options = OPTIONS[name]
    spec = dataclasses.replace(SPEC, **options)
    params = random_params(spec)
    for option in options:
        without = dataclasses.replace(spec, **{option: getattr(SPEC, option)})
        logits_SV = numpy_logits({"unembedding": np.ones((10, 11)), **params}, without, LONG)
        assert np.max(np.abs(logits_SV - numpy_logits(params, spec, LONG))) > 1e-3, option


def test_every_layout_of_a_row_gives_the_same_hidden_states():
    spec = dataclasses.replace(SPEC, qk_norm=True, qkv_bias=True)
    params = random_params(spec)
    wanted = {len(tokens): numpy_hidden(params, spec, tokens) for tokens in (LONG, SHORT, SINGLE)}
    layouts = (
        [LONG, 5],
        [5, LONG],
        [SHORT, 9],
        [9, SHORT],
        [LONG, SHORT, 2],
        [2, SHORT, LONG],
        [SINGLE, SHORT, LONG, SINGLE],
        [1, SHORT, 2, SINGLE, 1, SHORT, 1],
        [6, SINGLE, 5],
        [12],
    )
    hidden_NSD = np.asarray(forward(params, spec, *rows(*layouts, pad=7)))
    assert np.isfinite(hidden_NSD).all()
    for hidden_SD, layout in zip(hidden_NSD, layouts, strict=True):
        start = 0
        for piece in layout:
            length = piece if isinstance(piece, int) else len(piece)
            if not isinstance(piece, int):
                np.testing.assert_allclose(hidden_SD[start : start + length], wanted[length], rtol=1e-5, atol=1e-5)
            start += length


def test_pads_take_no_part_in_hidden_states_or_gradients():
    params = random_params(SPEC)
    layouts = [[2, LONG, 1], [SHORT, 2, SHORT, 2]]
    token_NS, position_NS, segment_NS = rows(*layouts)
    real_NS1 = (segment_NS > 0)[:, :, None]

    @jax.jit
    def loss(params, token_NS, position_NS):
        hidden_NSD = jnp.where(real_NS1, decoder.forward(params, SPEC, token_NS, position_NS, segment_NS), 0)
        return jnp.sum(jnp.sin(hidden_NSD)), hidden_NSD

    differentiate = jax.jit(jax.grad(loss, has_aux=True))
    clean_gradient, clean_NSD = differentiate(params, token_NS, position_NS)
    garbage_NS = np.where(segment_NS > 0, token_NS, np.resize([10, 7, 10, 0], token_NS.shape))
    garbage_position_NS = np.where(segment_NS > 0, position_NS, 1000)
    gradient, hidden_NSD = differentiate(params, jnp.asarray(garbage_NS), jnp.asarray(garbage_position_NS))
    np.testing.assert_array_equal(hidden_NSD, clean_NSD)
    for leaf, clean in zip(jax.tree.leaves(gradient), jax.tree.leaves(clean_gradient), strict=True):
        np.testing.assert_array_equal(leaf, clean)
    np.testing.assert_array_equal(gradient["embedding"][jnp.array([0, 7, 10])], 0)
    assert np.all(np.abs(gradient["embedding"][jnp.array(SHORT)]).max(axis=1) > 0)


def test_a_token_sees_nothing_of_what_follows():
    params = random_params(SPEC)
    whole = forward(params, SPEC, *rows([LONG]))
    changed = forward(params, SPEC, *rows([[*LONG[:4], 10, 10, 10]]))
    np.testing.assert_array_equal(whole[0, :4], changed[0, :4])
    assert np.abs(whole[0, 4:] - changed[0, 4:]).max() > 0.1
