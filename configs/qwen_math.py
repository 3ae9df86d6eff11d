r"""MATH (Hendrycks et al.) with Qwen models from 1.5 to 8 B parameters, tested on MATH-500.

Command: python -m grpo_jax.train --config configs/qwen_math.py:qwen2.5-math-7b
Another objective: --config configs/qwen_math.py:qwen2.5-math-7b,dapo (any of configs/algorithms/presets.py).
Variants: qwen2.5-math-1.5b, qwen2.5-math-7b, qwen2.5-7b, qwen3-8b (base models), qwen3-4b (without its long thinking).

Before it, once (`pip install -e ".[cuda13,parquet]" huggingface_hub`; the names of other variants are in MODELS):

    hf download Qwen/Qwen2.5-Math-7B --local-dir models/Qwen2.5-Math-7B
    hf download DigitalLearningGmbH/MATH-lighteval --repo-type dataset --local-dir data/MATH
    hf download HuggingFaceH4/MATH-500 --repo-type dataset --local-dir data/MATH-500

Other problems in the place of MATH, such as DeepScaleR's or DAPO-Math's, with a test file of the same columns:

    --config.data.path=hf:agentica-org/DeepScaleR-Preview-Dataset:train --config.data.answer_column=answer \
      --config.data.answer_format=plain
    --config.data.path=dapo-math-17k.parquet --config.data.problem_column=prompt.0.content \
      --config.data.answer_column=reward_model.ground_truth --config.data.answer_format=plain \
      --config.data.prompt_template={problem} --config.verifier.math.extraction=final

DAPO-Math's problems ask for a line "Answer: ..." themselves, and each is there many times; data.bad_rows is "skip",
which keeps one.

Hardware: a node of 8 devices with 80 GB. Parameters, optimizer and reference are shared by all of them (fsdp);
docs/memory.md has their bytes and those of the caches, activations come on top. Attention is not fused yet: the scores
of a device's rows of a micro-batch (8 rows in all) exist at once, layer by layer. Time and peak have not been measured.
Mesh: fsdp over all devices. With more than 8, let data take the rest: --config.mesh.data=-1 --config.mesh.fsdp=8.

Expected: not measured here. Published for Qwen2.5-Math-7B with Dr. GRPO on the harder problems of MATH (levels 3 to 5):
43.3 on AIME 2024, which is not the test here.

Settings: those of Dr. GRPO: learning rate 1e-6, no penalty, batches of 128 problems with 8 completions of up to 3,000
tokens, advantages and lengths not normalised. qwen3-4b writes up to 4,096 tokens, in batches of 64 problems.
"""

from typing import NamedTuple

from ml_collections import ConfigDict

from configs import base
from configs.algorithms import presets
from configs.data import presets as data_presets


class Model(NamedTuple):
    """A model, whether it has a chat template that it was trained on, and what it writes."""

    name: str
    chat: bool = False
    prompts_per_step: int = 128
    max_new_tokens: int = 3000


MODELS = {
    "qwen2.5-math-1.5b": Model("Qwen2.5-Math-1.5B"),
    "qwen2.5-math-7b": Model("Qwen2.5-Math-7B"),
    "qwen2.5-7b": Model("Qwen2.5-7B"),
    "qwen3-8b": Model("Qwen3-8B-Base", prompts_per_step=64),
    "qwen3-4b": Model("Qwen3-4B", chat=True, prompts_per_step=64, max_new_tokens=4096),
}
VARIANTS = (*MODELS, "qwen2.5-math-7b,dapo")


def get_config(variant: str = "qwen2.5-math-7b") -> ConfigDict:
    """The base configuration with a model and MATH.

    Args:
        variant: One of ``MODELS``, and after a comma published settings of the objective.

    Returns:
        The configuration.

    Raises:
        ValueError: for another variant, with the choices.
    """
    name, _, objective = variant.partition(",")
    if name not in MODELS:
        raise ValueError(f"configs/qwen_math.py:{variant}: wanted one of {', '.join(MODELS)} after the colon")
    model = MODELS[name]
    config = base.get_config()
    config.steps = 500

    config.model.path = f"models/{model.name}"
    config.model.compute_dtype = "bfloat16"
    config.model.remat = "full"

    config.data.path = "data/MATH/data/train-00000-of-00001.parquet"
    config.data.test_path = "data/MATH-500/test.jsonl"
    config.data.test_problems = 500  # all of them
    config.data.tokenizer = config.model.path
    config.data.max_prompt_tokens = 1024
    config.data.bad_rows = "skip"
    data_presets.apply(config, "math", chat=model.chat)
    if name == "qwen3-4b":
        config.data.chat_variables = '{"enable_thinking": false}'

    config.verifier.workers = 8
    config.rollout.prompts_per_step = model.prompts_per_step
    config.rollout.max_new_tokens = model.max_new_tokens
    config.algorithm.micro_batch_completions = 8
    config.optimizer.learning_rate = 1e-6
    config.evaluation.test_samples_per_problem = 1
    config.mesh.data, config.mesh.fsdp = 1, -1
    presets.apply(config, objective or "dr_grpo")
    return config
