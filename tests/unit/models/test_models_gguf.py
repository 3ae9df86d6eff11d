import dataclasses

import jax
import numpy as np
import pytest

from grpo_jax.data.gguf_tokenizer import open_gguf
from grpo_jax.models import parameters
from grpo_jax.models.gguf import GGUFTensors, config_of
from grpo_jax.models.huggingface import published_tensors, spec_from_huggingface
from grpo_jax.models.spec import ModelSpec, RopeScaling
from grpo_jax.models.weights import load_params
from tests.unit.data import gguf_files

gguf = pytest.importorskip("gguf")

LLAMA = ModelSpec(40, 2, 32, 4, 2, 8, 64, rope_theta=1e5, tie_embeddings=True)
SPECS = {
    "llama": LLAMA,
    "qwen2": dataclasses.replace(LLAMA, tie_embeddings=False, qkv_bias=True),
    "qwen3": dataclasses.replace(LLAMA, tie_embeddings=False, qk_norm=True, head_dim=12),
}
OURS = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def abstract(spec):
    return jax.eval_shape(lambda: parameters.init_params(jax.random.key(0), spec))


def random_params(spec):
    leaves, structure = jax.tree.flatten(abstract(spec))
    generator = np.random.default_rng(0)
    return jax.tree.unflatten(structure, [generator.normal(size=leaf.shape).astype(np.float32) for leaf in leaves])


def gguf_name(name):
    stem, kind = name.rsplit(".", 1)
    if not stem.startswith("model.layers."):
        return f"{OURS[stem]}.{kind}"
    layer, rest = stem.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{OURS[rest]}.{kind}"


def in_pairs(matrix, heads):
    """What writers of GGUF do to the rotated rows of Llama: first and second halves of a head take turns."""
    rows = matrix.reshape(heads, 2, -1, matrix.shape[1])
    return np.stack([rows[:, 0], rows[:, 1]], axis=2).reshape(matrix.shape)


def write(folder, family="llama", *, quantized=None, extra=None, without=(), metadata=None, tokenizer=False):
    spec, path = SPECS[family], folder / "model.gguf"
    params = random_params(spec)
    writer = gguf.GGUFWriter(path, family)
    values = {
        "block_count": spec.num_layers,
        "context_length": 512,
        "embedding_length": spec.d_model,
        "feed_forward_length": spec.d_ff,
        "attention.head_count": spec.num_heads,
        "attention.head_count_kv": spec.num_kv_heads,
        "attention.key_length": spec.head_dim,
        "rope.freq_base": spec.rope_theta,
        "attention.layer_norm_rms_epsilon": spec.norm_epsilon,
    } | (metadata or {})
    for name, value in values.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}.get(type(value))
        if add is not None:
            add(f"{family}.{name}", value)
    tensors = {}
    for name, array in published_tensors(params, spec):
        rotated = {".q_proj": spec.num_heads, ".k_proj": spec.num_kv_heads} if family == "llama" else {}
        heads = next((count for part, count in rotated.items() if part in name), None)
        stored = array if heads is None else in_pairs(array, heads)
        matrix = array.ndim == 2 and quantized is not None
        tensors[gguf_name(name)] = (stored, quantized) if matrix else stored
    tensors = {name: value for name, value in tensors.items() if name not in without} | (extra or {})
    if tokenizer:
        gguf_files.add_tokenizer(writer)
    gguf_files.finish(writer, tensors)
    return open_gguf(path), params


@pytest.mark.parametrize("family", SPECS)
def test_architecture_and_float32_tensors_come_back_bit_for_bit(tmp_path, family):
    reader, params = write(tmp_path, family)
    spec = spec_from_huggingface(config_of(reader))
    assert spec == SPECS[family]
    loaded = load_params(GGUFTensors(reader), spec, abstract(spec))
    jax.tree.map(np.testing.assert_array_equal, loaded, params)


# Half a step of a block's grid: values reach 4, and 4 bits cut a block's range into 15.
@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [("F16", 2e-3), ("BF16", 2e-2), ("Q8_0", 2e-2), ("Q5_1", 0.15), ("Q4_1", 0.3), ("Q4_0", 0.35)],
)
def test_quantized_tensors_come_back_nearly(tmp_path, kind, tolerance):
    reader, params = write(tmp_path, quantized=gguf.GGMLQuantizationType[kind])
    assert {tensor.tensor_type.name for tensor in reader.tensors} == {"F32", kind}
    loaded = load_params(GGUFTensors(reader), LLAMA, abstract(LLAMA))
    for ours, meant in zip(jax.tree.leaves(loaded), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(ours, meant, atol=tolerance)
    difference = np.abs(np.asarray(loaded["blocks"]["query"]) - params["blocks"]["query"]).max()
    assert difference > tolerance / 100, "the file was not quantized at all"


def test_a_part_of_a_tensor_is_that_part(tmp_path):
    tensors = GGUFTensors(write(tmp_path)[0])
    name = "model.layers.1.self_attn.q_proj.weight"
    whole = tensors.read(name, (slice(0, 32), slice(0, 32)))
    np.testing.assert_array_equal(tensors.read(name, (slice(8, 16), slice(3, 9))), whole[8:16, 3:9])


def test_numbers_of_the_metadata_are_those_that_were_meant(tmp_path):
    config = config_of(write(tmp_path, metadata={"attention.layer_norm_rms_epsilon": 1e-6})[0])
    assert config["rms_norm_eps"] == 1e-6, "a float32 in the file"
    assert (config["rope_theta"], config["tie_word_embeddings"], config["vocab_size"]) == (1e5, True, 40)


def test_defaults_of_metadata_that_may_be_missing(tmp_path):
    reader, _ = write(tmp_path, metadata={"attention.key_length": None, "rope.freq_base": None})
    spec = spec_from_huggingface(config_of(reader))
    assert (spec.head_dim, spec.rope_theta) == (8, 10_000.0)


def test_stretched_rotations(tmp_path):
    linear = write(tmp_path, metadata={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0})[0]
    assert spec_from_huggingface(config_of(linear)).rope_scaling == RopeScaling("linear", 4.0)
    # Wavelengths of base 1e5 over a head of 8: 6, 112, 1987 and 35333 positions; 8192 / 4 and 8192 / 1 bound the blend.
    divisors = np.array([1.0, 1.0, 1.0, 32.0], np.float32)
    reader = write(tmp_path, extra={"rope_freqs.weight": divisors})[0]
    spec = spec_from_huggingface(config_of(reader))
    assert spec.rope_scaling == RopeScaling("llama3", 32.0, 1.0, 4.0, 8192)
    assert "rope_freqs.weight" not in GGUFTensors(reader).shapes
    with pytest.raises(ValueError, match=r"rope_freqs\.weight: got frequencies other than those of Llama 3\.1 with a"):
        config_of(write(tmp_path, extra={"rope_freqs.weight": divisors[::-1].copy()})[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metadata": {"rope.scaling.type": "yarn"}}, r"rope\.scaling\.type: got 'yarn', wanted 'none' or 'linear'"),
        ({"metadata": {"context_length": None}}, r"GGUF: the file lacks llama\.context_length"),
        ({"without": ("token_embd.weight",)}, r"GGUF: the file lacks the tensor token_embd\.weight"),
        ({"extra": {"blk.0.ssm.weight": np.ones(3, np.float32)}}, r"got 1 unknown tensors, blk\.0\.ssm\.weight"),
        ({"without": ("blk.1.ffn_up.weight",)}, r"the model lacks 1 tensors: model\.layers\.1\.mlp\.up_proj\.weight"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        load_params(GGUFTensors(write(tmp_path, **changes)[0]), LLAMA, abstract(LLAMA))


def test_an_unknown_architecture_is_refused(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "mamba")
    gguf_files.finish(writer)
    with pytest.raises(ValueError, match=r"general\.architecture: got 'mamba', wanted one of llama, qwen2, qwen3"):
        config_of(open_gguf(tmp_path / "model.gguf"))
