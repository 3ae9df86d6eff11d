"""A tiny policy of DeepSeek-V3's kind through the command line: replayed routes, moving biases, loads."""

import json
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from grpo_jax import train
from grpo_jax.data.publication import published_files, write_files
from grpo_jax.data.tokenizer import build_tokenizer
from grpo_jax.io.metrics import read_metrics
from grpo_jax.models.huggingface import published_tensors, spec_from_huggingface
from grpo_jax.models.parameters import init_params
from grpo_jax.models.safetensors import write_folder
from grpo_jax.training.trainer import Trainer

SPEED = 0.03125
MODEL = {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "vocab_size": build_tokenizer("characters").vocab_size,
    "hidden_size": 16,
    "intermediate_size": 16,
    "moe_intermediate_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "q_lora_rank": None,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "rope_interleave": True,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
SETTINGS = {
    "steps": "3",
    "data.digits": "2",
    "data.prompt_template": "{problem}=",
    "data.validation_problems": "8",
    "data.test_problems": "8",
    "rollout.prompts_per_step": "8",
    "rollout.completions_per_prompt": "2",
    "rollout.max_new_tokens": "8",
    "algorithm.micro_batch_completions": "8",
    "algorithm.length_penalty": "0.1",
    "algorithm.length_budget_tokens": "1",
    "algorithm.router_replay": "True",
    "algorithm.router_bias_update": str(SPEED),
    "optimizer.learning_rate": "1e-3",
    "evaluation.every_steps": "3",
    "evaluation.test_samples_per_problem": "1",
    "mesh.data": "4",
    "mesh.expert": "2",
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    spec = spec_from_huggingface(MODEL)
    assert spec.experts is not None
    assert (spec.experts.score, spec.experts.choice_bias, spec.experts.first_dense_layers) == ("sigmoid", True, 1)
    params = jax.device_get(jax.jit(init_params, static_argnames="spec")(jax.random.key(7), spec=spec))
    # Wide enough that a token's experts depend on the token.
    params["blocks"]["router"] = 20 * params["blocks"]["router"]
    folder = tmp_path / "model"
    folder.mkdir()
    write_folder(folder, published_tensors(params, spec), "float32")
    (folder / "config.json").write_text(json.dumps(MODEL))
    write_files(published_files("characters"), folder)
    return folder


@pytest.mark.slow
def test_a_policy_with_experts_trains_through_the_command_line(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "own.py"
    config.write_text("from ml_collections import ConfigDict\n\n\ndef get_config():\n    return ConfigDict({})\n")
    settings = [f"--config.{key}={value}" for key, value in {**SETTINGS, "model.path": str(model)}.items()]
    arguments = ["train", "--config", str(config), f"--workdir={tmp_path / 'run'}", *settings]
    monkeypatch.setattr(sys, "argv", arguments)
    states, once = [], Trainer.train

    def kept(self: Trainer) -> object:
        states.append(once(self))
        return states[-1]

    monkeypatch.setattr(Trainer, "train", kept)
    assert train.main() == 0
    rows = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if row["kind"] == "train"]
    assert [row["step"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert row["skipped_update"] == row["nonfinite_update"] == 0
        assert 1 <= row["experts/load_max"] <= 2
        assert 0 < row["experts/load_entropy"] <= 1
        assert row["experts/idle_share"] < 1
        # The trainer goes along the sampler's routes, so the two agree to rounding.
        assert row["sampling/sampling_logp_difference/max"] < 1e-4
    [state] = states
    moved = np.asarray(state.params["blocks"]["router_bias"])
    # From 0, three steps up or down; no step where the load was even.
    np.testing.assert_allclose(moved / SPEED, np.round(moved / SPEED), atol=1e-5)
    assert 1 <= np.abs(moved / SPEED).max() <= 3.001
    np.testing.assert_array_equal(state.reference["blocks"]["router_bias"], 0)
