"""Adapters as they are exported are the same adapters to the PEFT library."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("peft", reason="parity with PEFT needs it: pip install 'grpo-jax[parity]'")
pytest.importorskip("torch", reason="parity with PEFT needs torch: pip install 'grpo-jax[parity]'")

import peft

from grpo_jax.config import LoRAConfig
from grpo_jax.models import adapters, decoder
from grpo_jax.models.huggingface.peft import (
    ADAPTER_CONFIG,
    ADAPTER_TENSORS,
    lora_of,
    peft_config,
    peft_tensors,
)
from grpo_jax.models.safetensors import write_tensors
from tests.parity import families

ROWS, LENGTH = 2, 9


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "gemma3"])
def test_exported_adapters_compute_the_same(tmp_path, name):
    family = families.make(name)
    lora = lora_of(family.spec, **dataclasses.asdict(LoRAConfig(rank=3, alpha=6.0, rank_stabilized=True)))
    assert len(lora.targets) == 7
    spec = dataclasses.replace(family.spec, lora=lora)
    noise = iter(jax.random.split(jax.random.key(1), 100))
    fresh = adapters.init_adapters(jax.random.key(0), spec)
    acting = jax.tree.map(lambda leaf: 0.1 * jax.random.normal(next(noise), leaf.shape), fresh)
    params = adapters.attached(family.params, acting)
    write_tensors(tmp_path / ADAPTER_TENSORS, peft_tensors(params, spec))
    (tmp_path / ADAPTER_CONFIG).write_text(json.dumps(peft_config(spec, "a base")))

    token_NS = np.random.default_rng(0).integers(1, 61, (ROWS, LENGTH))
    position_NS, mask_NS = np.tile(np.arange(LENGTH), (ROWS, 1)), np.ones((ROWS, LENGTH), np.int32)
    plain = families.logits(family.model, token_NS, position_NS, mask_NS)
    theirs = families.logits(
        peft.PeftModel.from_pretrained(family.model, str(tmp_path)), token_NS, position_NS, mask_NS
    )
    hidden_NSD = decoder.forward(params, spec, *map(jnp.asarray, (token_NS, position_NS, mask_NS)))
    np.testing.assert_allclose(hidden_NSD @ decoder.unembedding(params, spec), theirs, rtol=0, atol=1e-4)
    assert np.abs(theirs - plain).max() > 0.1
