"""The ready configurations take published models and problems as they are downloaded; tiny stand-ins here."""

import functools
import json
from pathlib import Path

import jax
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from configs import base, prompts, qwen_gsm8k, qwen_math
from grpo_jax.config import RunConfig, from_nested
from grpo_jax.data.publication import published_files, write_files
from grpo_jax.data.splits import SPLITS
from grpo_jax.data.tokenizer import build_tokenizer
from grpo_jax.models.architecture import published_config
from grpo_jax.models.huggingface import published_tensors
from grpo_jax.models.parameters import init_params
from grpo_jax.models.safetensors import write_folder
from grpo_jax.models.spec import ModelSpec
from grpo_jax.records import Completion, FinishReason
from grpo_jax.training import setup
from grpo_jax.verifiers.composite import build as build_verifier

SPEC = ModelSpec(
    vocab_size=build_tokenizer("bytes").vocab_size,
    num_layers=1,
    d_model=8,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    d_ff=8,
    qkv_bias=True,
)
CHAT = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}"
    "<assistant>{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
)
LAYOUT = {
    "data/gsm8k/main/train-00000-of-00001.parquet": [
        {"question": f"What is {i} and {i}?", "answer": f"<<{i}+{i}={2 * i}>>\n#### {2 * i:,}"} for i in range(200)
    ],
    "data/gsm8k/main/test-00000-of-00001.parquet": [{"question": "What is a dozen?", "answer": "Easy.\n#### 12"}],
    "data/MATH/data/train-00000-of-00001.parquet": [
        {
            "problem": f"Halve ${i}$.",
            "level": "Level 1",
            "type": "Algebra",
            "solution": rf"It is $\boxed{{\frac{{{i}}}2}}$.",
        }
        for i in range(200)
    ],
    "data/MATH-500/test.jsonl": [
        {"problem": "Halve $x$.", "solution": r"So $\boxed{\frac{x}{2}}$.", "answer": "x/2", "unique_id": "test/1"}
    ],
}


@pytest.fixture
def downloads(tmp_path, monkeypatch):
    """A folder with problems and models where the configurations look for them."""
    monkeypatch.chdir(tmp_path)
    for name, rows in LAYOUT.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shapes = jax.eval_shape(functools.partial(init_params, spec=SPEC), jax.random.key(0))
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    for model in (*qwen_gsm8k.MODELS.values(), *qwen_math.MODELS.values()):
        folder = Path("models", model.name)
        folder.mkdir(parents=True)
        write_folder(folder, published_tensors(params, SPEC), "float32")
        (folder / "config.json").write_text(json.dumps(published_config(SPEC, 4096)))
        write_files(published_files("bytes"), folder)
        (folder / "chat_template.jinja").write_text(CHAT)


def built(config):
    return setup.build(from_nested(RunConfig, config.to_dict()))


def verdict(parts, answer_text):
    completion = Completion(answer_text, 1, FinishReason.STOP)
    return build_verifier(parts.config.verifier)(parts.task.problems("test")[0], completion)


@pytest.mark.parametrize("variant", ["qwen2.5-0.5b,lora", "qwen3-0.6b"])
def test_gsm8k_is_ready(downloads, variant):
    parts = built(qwen_gsm8k.get_config(variant))
    sizes = {split: len(parts.task.problems(split)) for split in SPLITS}
    assert sizes["train"] + sizes["validation"] == 200
    assert sizes["test"] == 1
    prompt = parts.task.problems("test")[0].prompt
    assert prompt.startswith("<user>What is a dozen?\n\nWork it out step by step.")
    assert prompt.endswith("<assistant><think></think>" if variant.startswith("qwen3") else "<assistant>")
    assert verdict(parts, r"10 + 2, so \boxed{12}.").correct
    assert not verdict(parts, r"\boxed{12}? No: \boxed{13}").correct


@pytest.mark.parametrize("variant", ["qwen2.5-math-7b,dapo", "qwen3-4b"])
def test_math_is_ready(downloads, variant):
    parts = built(qwen_math.get_config(variant))
    assert len(parts.task.problems("test")) == 1
    assert "Halve $x$." in parts.task.problems("test")[0].prompt
    assert verdict(parts, r"\boxed{0.5x}").correct
    assert not verdict(parts, r"\boxed{x}").correct
    assert parts.config.algorithm.aggregation == ("token_mean" if variant.endswith(",dapo") else "constant_length")


@pytest.mark.parametrize("name", [name for name in prompts.PROMPTS if not name.startswith("code")])
def test_every_prompt_and_its_verifier_go_together(downloads, name):
    config = base.get_config()
    config.data.task = "file"
    config.data.path = "data/MATH/data/train-00000-of-00001.parquet"
    config.data.test_path = "data/MATH-500/test.jsonl"
    config.data.answer_column, config.data.answer_format = "solution", "boxed"
    config.data.tokenizer = "models/Qwen2.5-7B"
    config.data.max_prompt_tokens = 512
    prompts.apply(config, name)
    parts = built(config)
    text = r"<think>Half.</think><answer>x/2</answer>" if "think" in name else r"Half: \boxed{x/2}"
    assert verdict(parts, text).correct
    assert not verdict(parts, text.replace("/2", "/3")).correct
    prompt = parts.task.problems("test")[0].prompt
    assert "Halve $x$." in prompt
    assert prompt.endswith("<assistant>") == name.endswith("chat")


@pytest.mark.parametrize("name", [name for name in prompts.PROMPTS if name.startswith("code")])
def test_prompts_for_programs_take_problems_with_tests(downloads, name):
    tests = lambda i: {"test_list": [f"assert half{i}(4) == 2"], "test_imports": []}  # noqa: E731
    rows = [{"problem": f"Write half{i}(x).", "answer": "x / 2", **tests(i)} for i in range(99)]
    Path("programs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = base.get_config()
    config.data.task, config.data.path, config.data.tests_format = "file", "programs.jsonl", "mbpp"
    config.data.tokenizer = "models/Qwen2.5-7B"
    config.data.max_prompt_tokens = 512
    prompts.apply(config, name)
    problem = built(config).task.problems("train")[0]
    assert "Write half" in problem.prompt
    assert problem.prompt.endswith("<assistant>") == name.endswith("chat")
    assert ("(4) == 2" in problem.prompt) == ("tests" in name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: qwen_gsm8k.get_config("qwen2.5-7b"), r"qwen_gsm8k\.py:qwen2\.5-7b: wanted one of qwen2\.5-0\.5b, "),
        (
            lambda: qwen_gsm8k.get_config("qwen3-0.6b,dapo"),
            r"qwen3-0\.6b,dapo: wanted one of .* and ',lora' or not",
        ),
        (lambda: qwen_math.get_config("dapo"), r"qwen_math\.py:dapo: wanted one of qwen2\.5-math-1\.5b, "),
        (lambda: qwen_math.get_config("qwen2.5-7b,ppo"), r"preset: got 'ppo', wanted one of grpo, "),
        (lambda: prompts.apply(base.get_config(), "boxed"), r"prompt: got 'boxed', wanted one of boxed_chat, "),
    ],
)
def test_another_variant_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
