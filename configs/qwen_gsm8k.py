"""GSM8K with Qwen models from 0.5 to 1.7 B parameters.

Command: python -m grpo_jax.train --config configs/qwen_gsm8k.py:qwen2.5-0.5b
Variants: qwen2.5-0.5b, qwen2.5-1.5b (instruct models), qwen3-0.6b, qwen3-1.7b (without their long thinking); each with
`,lora` behind it trains adapters alone.

Before it, once (`pip install -e ".[cuda13,parquet]" huggingface_hub`; the names of other variants are in MODELS):

    hf download Qwen/Qwen2.5-0.5B-Instruct --local-dir models/Qwen2.5-0.5B-Instruct
    hf download openai/gsm8k --repo-type dataset --local-dir data/gsm8k

With `pip install -e ".[datasets]"` the rows can come from the hub instead:

    --config.data.path=hf:openai/gsm8k/main:train --config.data.test_path=hf:openai/gsm8k/main:test

Hardware: one accelerator or a node of them. docs/memory.md has the bytes per device of parameters, optimizer, reference
and caches on 8 devices, `python -m grpo_jax.memory` those on other numbers; activations come on top. On one device of
24 GB: --config.rollout.prompts_per_step=32 --config.algorithm.micro_batch_completions=8. Time and peak have not been
measured.
Mesh: the 0.5 B and 0.6 B models are whole on each device (data), the larger ones shared (fsdp); --config.mesh.data and
--config.mesh.fsdp change that.

Expected: not measured here. Published for Qwen2.5-0.5B-Instruct on the 1,319 test problems (verl's documentation): 49.6
before training, 56.7 with PPO, 54.3 with GRPO and LoRA. The test here samples at temperature 1, which costs accuracy
against greedy decoding. For the others no figure at these settings is known to us.

Settings: learning rate 1e-6, k3 penalty of 0.001, prompts up to 512 and completions up to 1,024 tokens, 15 passes over
the data, as verl's GRPO example for GSM8K. That has 1,024 problems of 5 completions in a batch and 4 updates on it;
here a batch has 128 problems of 8 completions and one update. With adapters: rank 64, alpha 32, learning rate 3e-6, as
its example for LoRA.
"""

from typing import NamedTuple

from ml_collections import ConfigDict

from configs import base
from configs.data import presets


class Model(NamedTuple):
    """A model and how it fits on devices."""

    name: str
    shared: bool
    remat: str


MODELS = {
    "qwen2.5-0.5b": Model("Qwen2.5-0.5B-Instruct", shared=False, remat="dots"),
    "qwen2.5-1.5b": Model("Qwen2.5-1.5B-Instruct", shared=True, remat="full"),
    "qwen3-0.6b": Model("Qwen3-0.6B", shared=False, remat="full"),
    "qwen3-1.7b": Model("Qwen3-1.7B", shared=True, remat="full"),
}
VARIANTS = (*MODELS, "qwen2.5-0.5b,lora")


def get_config(variant: str = "qwen2.5-0.5b") -> ConfigDict:
    """The base configuration with a model and GSM8K.

    Args:
        variant: One of ``MODELS``, and ``,lora`` for adapters.

    Returns:
        The configuration.

    Raises:
        ValueError: for another variant, with the choices.
    """
    name, comma, adapters = variant.partition(",")
    if name not in MODELS or (comma and adapters != "lora"):
        raise ValueError(
            f"configs/qwen_gsm8k.py:{variant}: wanted one of {', '.join(MODELS)} after the colon, and ',lora' or not"
        )
    model = MODELS[name]
    config = base.get_config()
    config.steps = 870  # 15 passes over about 7,100 training problems

    config.model.path = f"models/{model.name}"
    config.model.compute_dtype = "bfloat16"
    config.model.remat = model.remat

    config.data.path = "data/gsm8k/main/train-00000-of-00001.parquet"
    config.data.test_path = "data/gsm8k/main/test-00000-of-00001.parquet"
    config.data.test_problems = 1319  # all of them
    config.data.tokenizer = config.model.path
    config.data.max_prompt_tokens = 512
    config.data.bad_rows = "skip"
    presets.apply(config, "gsm8k", chat=True)
    if name.startswith("qwen3"):
        config.data.chat_variables = '{"enable_thinking": false}'  # thinking would not end within 1,024 tokens

    config.verifier.workers = 8
    config.rollout.prompts_per_step = 128
    config.rollout.max_new_tokens = 1024
    config.algorithm.kl_beta = 0.001
    config.algorithm.micro_batch_completions = 32
    config.optimizer.learning_rate = 1e-6
    config.evaluation.test_samples_per_problem = 1
    if adapters:
        config.model.lora.rank = 64
        config.model.lora.alpha = 32.0
        config.optimizer.learning_rate = 3e-6
    if model.shared:
        config.mesh.data, config.mesh.fsdp = 1, -1
    return config
