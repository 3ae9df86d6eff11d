"""Every family computes what transformers computes: forward, cached decoding, gradients, and the published files."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="parity with transformers needs torch: pip install 'grpo-jax[parity]'")
pytest.importorskip("transformers", reason="parity needs transformers: pip install 'grpo-jax[parity]'")

from grpo_jax.algorithms import logprobs  # noqa: E402
from grpo_jax.models import decoder  # noqa: E402
from grpo_jax.models.huggingface import published_tensors, spec_from_huggingface  # noqa: E402
from grpo_jax.models.weights import from_huggingface  # noqa: E402
from tests.parity import families  # noqa: E402

TOLERANCE = 1e-4
ROWS, LENGTH = 3, 14
forward = jax.jit(decoder.forward, static_argnames="spec")
prefill = jax.jit(decoder.prefill, static_argnames="spec")
decode_step = jax.jit(decoder.decode_step, static_argnames="spec")


@pytest.fixture(scope="module", params=families.FAMILIES)
def family(request):
    return families.make(request.param)


def rows():
    """A whole row, a left-padded one and a right-padded one."""
    token_NS = np.random.default_rng(0).integers(1, 61, (ROWS, LENGTH))
    mask_NS = np.ones((ROWS, LENGTH), np.int32)
    mask_NS[1, :5], mask_NS[2, 9:] = 0, 0
    return token_NS, np.maximum(np.cumsum(mask_NS, axis=1) - 1, 0), mask_NS


def ours(family, token_NS, position_NS, mask_NS):
    hidden_NSD = forward(family.params, family.spec, *map(jnp.asarray, (token_NS, position_NS, mask_NS)))
    return hidden_NSD, decoder.unembedding(family.params, family.spec)


@pytest.mark.parametrize("stretch", [1, 29], ids=["near", "beyond_the_trained_context"])
def test_forward_is_that_of_transformers(family, stretch):
    token_NS, position_NS, mask_NS = rows()
    position_NS = position_NS * stretch
    wanted = families.logits(family.model, token_NS, position_NS, mask_NS)
    hidden_NSD, table_DV = ours(family, token_NS, position_NS, mask_NS)
    real = mask_NS > 0
    np.testing.assert_allclose((hidden_NSD @ table_DV)[real], wanted[real], rtol=0, atol=TOLERANCE)
    assert wanted[real].std() > 0.3
    scored = logprobs.chunked(
        hidden_NSD[:, :-1], table_DV, jnp.asarray(token_NS[:, 1:]), temperature=0.7, chunk_tokens=16
    )
    of_torch = torch.log_softmax(torch.tensor(wanted[:, :-1]) / 0.7, dim=-1)
    of_torch = torch.gather(of_torch, 2, torch.tensor(token_NS[:, 1:, None]))[..., 0].numpy()
    both = real[:, 1:] & real[:, :-1]
    np.testing.assert_allclose(scored.logprob_NT[both], of_torch[both], rtol=0, atol=TOLERANCE)


def test_decoding_with_a_cache_is_their_forward(family):
    P, G, T = 6, 2, 7
    random, length_B = np.random.default_rng(1), np.array([6, 1, 4])
    prompt_BP = random.integers(1, 61, (3, P)).astype(np.int32)
    token_BGT = random.integers(1, 61, (3, G, T)).astype(np.int32)
    hidden_BD, prompt = prefill(family.params, family.spec, jnp.asarray(prompt_BP), jnp.asarray(length_B))
    cache = decoder.empty_cache(family.spec, 3, G, T)
    hidden = [np.broadcast_to(np.asarray(hidden_BD)[:, None], (3, G, hidden_BD.shape[-1]))]
    for step in range(T):
        token_BG = jnp.asarray(token_BGT[:, :, step])
        hidden_BGD, cache = decode_step(family.params, family.spec, token_BG, jnp.int32(step), prompt, cache)
        hidden.append(np.asarray(hidden_BGD))
    logits_BGTV = np.stack(hidden, axis=2) @ np.asarray(decoder.unembedding(family.params, family.spec))
    for b, length in enumerate(length_B):
        row_GS = np.concatenate([np.tile(prompt_BP[b, :length], (G, 1)), token_BGT[b]], axis=1)
        position_GS = np.tile(np.arange(row_GS.shape[1]), (G, 1))
        wanted = families.logits(family.model, row_GS, position_GS, np.ones_like(row_GS))
        np.testing.assert_allclose(logits_BGTV[b], wanted[:, length - 1 :], rtol=0, atol=TOLERANCE)


def test_published_tensors_come_back(family):
    back = dict(published_tensors(family.params, family.spec))
    assert set(back) == set(family.tensors)
    for name, tensor in family.tensors.items():
        np.testing.assert_array_equal(back[name], tensor, err_msg=name)


def test_the_older_spelling_gives_the_same_spec(family):
    config = dict(family.config)
    rope = dict(config.pop("rope_parameters"))
    if "full_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = dict(rope["full_attention"])
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    assert spec_from_huggingface(config) == family.spec


def torch_gradients(model, token_NS):
    model.zero_grad()
    row = torch.tensor(token_NS, dtype=torch.long)
    logprob = torch.log_softmax(model(input_ids=row, use_cache=False).logits[:, :-1], dim=-1)
    loss = -torch.gather(logprob, 2, row[:, 1:, None]).mean()
    loss.backward()
    gradients = {}
    for name, parameter in model.named_parameters():
        gradient = parameter.grad.numpy().copy()
        if not name.endswith(("gate_up_proj", "down_proj")) or gradient.ndim == 2:
            gradients[name] = gradient
            continue
        # transformers 5 holds the experts of a layer together and publishes them apart.
        folder, _, part = name.rpartition(".")
        for expert, matrix in enumerate(gradient):
            pieces = {"down_proj": matrix}
            if part == "gate_up_proj":
                pieces = dict(zip(("gate_proj", "up_proj"), np.split(matrix, 2), strict=True))
            gradients |= {f"{folder}.{expert}.{piece}.weight": value for piece, value in pieces.items()}
    return loss.item(), gradients


@pytest.mark.parametrize("name", ["llama3", "qwen2", "gemma3", "qwen3_moe", "deepseek_v3"])
def test_gradients_are_those_of_transformers(name):
    family = families.make(name)
    token_NS = np.random.default_rng(2).integers(1, 61, (2, 12)).astype(np.int32)
    position_NS = np.tile(np.arange(12), (2, 1))

    def loss(params):
        whole = map(jnp.asarray, (token_NS, position_NS, np.ones_like(token_NS)))
        hidden_NSD = decoder.forward(params, family.spec, *whole)[:, :-1]
        table_DV = decoder.unembedding(params, family.spec)
        scored = logprobs.chunked(hidden_NSD, table_DV, jnp.asarray(token_NS[:, 1:]), temperature=1.0, chunk_tokens=8)
        return -jnp.mean(scored.logprob_NT)

    value, gradient = jax.jit(jax.value_and_grad(loss))(family.params)
    wanted_value, tensors = torch_gradients(family.model, token_NS)
    np.testing.assert_allclose(value, wanted_value, rtol=1e-5)
    if "dense_blocks" in gradient or name == "qwen3_moe":
        # A bias of choice alone gets no gradient, and is no parameter to torch.
        zeros = {key: np.zeros(value.shape) for key, value in family.tensors.items() if key.endswith("correction_bias")}
        tensors |= zeros
    wanted = from_huggingface(tensors, family.spec)
    for (path, leaf), other in zip(jax.tree_util.tree_leaves_with_path(gradient), jax.tree.leaves(wanted), strict=True):
        scale = max(np.abs(other).max(), 1e-3)
        np.testing.assert_allclose(leaf, other, rtol=0, atol=TOLERANCE * scale, err_msg=jax.tree_util.keystr(path))
