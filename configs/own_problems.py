"""Your own problems from a file, with a small policy that starts from random weights.

Command: python -m grpo_jax.train --config configs/own_problems.py --config.data.path=problems.jsonl
Hardware: any; the size of the model decides.
Expected: nothing to be proud of. A policy that never gives a right answer gets no reward to learn from, and random
weights never do on real problems. It shows the way your data takes; for learning, either the task has worked examples
for a cold start (as the quickstart's has) or the policy has been trained before.

A row has `problem` and `answer`, and may have `split` (train, validation or test, then all rows need it) and any other
columns, which verifiers see; data.problem_column, data.answer_column and data.answer_format read other formats
(docs/recipes.md). The reward is 1 for a completion that ends with `<answer>...</answer>` around the right number.
Files in a published format need no keys: `configs/own_problems.py:gsm8k` (or math, deepscaler, dapo_math, humaneval,
mbpp, mbpp_sanitized; `,chat` behind it for models with a chat template) has columns, prompt and verifier of the format.
Without `split`, each row goes to validation or test with 5% each, by a hash of its text: a few hundred rows at least.
"""

from ml_collections import ConfigDict

from configs import base
from configs.data import presets


def get_config(variant: str = "") -> ConfigDict:
    """The base configuration for a file of problems.

    Args:
        variant: One of ``presets.PRESETS``, and ``,chat`` for a model with a chat template; or nothing.

    Returns:
        The configuration.

    Raises:
        ValueError: for another variant, with the choices.
    """
    name, comma, chat = variant.partition(",")
    if comma and (chat != "chat" or not name):
        raise ValueError(f"configs/own_problems.py:{variant}: wanted ',chat' or nothing behind the name")
    config = base.get_config()
    config.steps = 100
    config.data.task = "file"
    config.data.tokenizer = "bytes"  # or a path to a tokenizer.json
    config.data.prompt_template = "{problem}\nAnswer with <answer>number</answer>.\n"
    config.data.max_prompt_tokens = 512
    config.data.validation_problems = 64  # at most: as many as the file has
    config.data.test_problems = 64
    config.model.rope_theta = 10_000.0
    config.rollout.max_new_tokens = 128
    config.algorithm.kl_beta = 0.0
    config.optimizer.learning_rate = 1e-4
    if name:
        presets.apply(config, name, chat=bool(chat))
    return config
