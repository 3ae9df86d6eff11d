r"""Data sets as they are published, by name: columns, where the answer stands, prompt and verifier.

A configuration takes one with ``presets.apply(config, "gsm8k", chat=True)``; ``configs/own_problems.py:gsm8k`` (and
``:gsm8k,chat``) does so for files of your own in that format. Paths, tokenizer and lengths stay as they were. The
columns are those of the data sets' cards on the Hugging Face hub, named beside each.
"""

from collections.abc import Callable
from typing import NamedTuple

from ml_collections import ConfigDict

from configs import prompts


class Preset(NamedTuple):
    """A published format.

    Attributes:
        columns: Says where problem and answer stand.
        prompt: Beginning of a name in ``prompts.PROMPTS``.
        own_prompt: Whether its problems say themselves how to answer.
    """

    columns: Callable[[ConfigDict], None]
    prompt: str = "boxed"
    own_prompt: bool = False


def gsm8k(config: ConfigDict) -> None:
    """openai/gsm8k: question, answer (a solution with ``#### 72`` at its end)."""
    config.data.problem_column = "question"
    config.data.answer_format = "gsm8k"


def math(config: ConfigDict) -> None:
    r"""DigitalLearningGmbH/MATH-lighteval: problem, level, type, solution (with a ``\boxed{}``).

    HuggingFaceH4/MATH-500 has problem and solution, too, besides answer, subject, level and unique_id.
    """
    config.data.answer_column = "solution"
    config.data.answer_format = "boxed"


def deepscaler(config: ConfigDict) -> None:
    """agentica-org/DeepScaleR-Preview-Dataset: problem, answer, solution; one JSON file. Some rows have no answer."""
    config.data.bad_rows = "skip"


def dapo_math(config: ConfigDict) -> None:
    """BytedTsinghua-SIA/DAPO-Math-17k: data_source, prompt (messages), ability, reward_model, extra_info.

    ``reward_model`` has ground_truth and style. Its problems ask for a line ``Answer: ...``, and each is there many
    times: one of them is kept.
    """
    config.data.problem_column = "prompt.0.content"
    config.data.answer_column = "reward_model.ground_truth"
    config.data.bad_rows = "skip"
    config.verifier.math.extraction = "final"


def humaneval(config: ConfigDict) -> None:
    """openai/openai_humaneval: task_id, prompt, canonical_solution, test (a function check), entry_point."""
    config.data.problem_column = "prompt"
    config.data.answer_column = "canonical_solution"
    config.data.tests_format = "humaneval"


def mbpp(config: ConfigDict) -> None:
    """google-research-datasets/mbpp, full: task_id, text, code, test_list, test_setup_code, challenge_test_list."""
    config.data.problem_column = "text"
    config.data.answer_column = "code"
    config.data.tests_format = "mbpp"


def mbpp_sanitized(config: ConfigDict) -> None:
    """google-research-datasets/mbpp, sanitized: source_file, task_id, prompt, code, test_imports, test_list."""
    mbpp(config)
    config.data.problem_column = "prompt"


def reasoning_gym(config: ConfigDict) -> None:
    """Generated problems of the reasoning-gym library: name the tasks with data.gym_tasks."""
    config.data.task = "reasoning_gym"
    config.data.max_problems = 10_000
    config.verifier.rewards = ("reasoning_gym",)


def environment(config: ConfigDict) -> None:
    """A single-turn environment for the verifiers library: name it with data.path and verifier.environment."""
    config.data.task = "environment"
    config.verifier.rewards = ("environment",)


PRESETS = {
    "gsm8k": Preset(gsm8k),
    "math": Preset(math),
    "deepscaler": Preset(deepscaler),
    "dapo_math": Preset(dapo_math, own_prompt=True),
    "humaneval": Preset(humaneval, "code"),
    "mbpp": Preset(mbpp, "code_tests"),
    "mbpp_sanitized": Preset(mbpp_sanitized, "code_tests"),
    "reasoning_gym": Preset(reasoning_gym, "think"),
    "environment": Preset(environment, "think", own_prompt=True),
}


def apply(config: ConfigDict, name: str, *, chat: bool = False) -> None:
    """Sets the columns of a published data set, and a prompt and verifier that fit it.

    Args:
        config: The configuration to change.
        name: One of ``PRESETS``.
        chat: For a model with a chat template; otherwise prompts are whole texts for a base model.

    Raises:
        ValueError: for another name, with the choices.
    """
    if name not in PRESETS:
        raise ValueError(f"data preset: got {name!r}, wanted one of {', '.join(PRESETS)}")
    preset = PRESETS[name]
    config.data.task = "file"
    prompts.apply(config, f"{preset.prompt}_{'chat' if chat else 'plain'}")
    if preset.own_prompt:
        config.data.prompt_template, config.data.system_prompt = "{problem}", ""
    preset.columns(config)
