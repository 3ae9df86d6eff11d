r"""How a problem is put to a model, and where the verifier then looks for the answer.

A configuration takes one by name: ``prompts.apply(config, "boxed_chat")``. The ``chat`` ones are for models with a chat
template (``data.tokenizer`` is then a published tokenizer); the ``plain`` ones are whole prompts for base models. Every
one judges by the value of the answer alone; with the ``think`` ones a small reward for the form may be added:
``--config.verifier.rewards="('math', 'format')" --config.verifier.weights="(1.0, 0.1)"``.
"""

from collections.abc import Callable

from ml_collections import ConfigDict

THINK_THEN_ANSWER = (
    "You first think a problem through between <think> and </think>, then give the final answer alone between <answer> "
    "and </answer>, with nothing after it."
)


def boxed_chat(config: ConfigDict) -> None:
    r"""A question with a request for a ``\boxed{}``, which instruct models have seen in training."""
    config.data.chat = True
    config.data.prompt_template = "{problem}\n\nWork it out step by step. Put the final answer into \\boxed{}."
    _answer_in_box(config)


def boxed_plain(config: ConfigDict) -> None:
    """The same as one text, for base models that have no chat template."""
    config.data.prompt_template = (
        "Problem:\n{problem}\n\nWork it out step by step. Put the final answer into \\boxed{}.\n\nSolution:\n"
    )
    _answer_in_box(config)


def think_chat(config: ConfigDict) -> None:
    """A system prompt that asks for a think block and an answer block."""
    config.data.chat = True
    config.data.system_prompt = THINK_THEN_ANSWER
    _answer_in_block(config)


def think_plain(config: ConfigDict) -> None:
    """The same for base models: the prompt explains the blocks and the completion begins with ``<think>``."""
    config.data.prompt_template = (
        "A user asks an assistant. The assistant first thinks the problem through between <think> and </think>, then "
        "gives the final answer alone between <answer> and </answer>.\nUser: {problem}\nAssistant:"
    )
    _answer_in_block(config)


def code_chat(config: ConfigDict) -> None:
    """A program in a fenced block, with a chat."""
    config.data.chat = True
    config.data.prompt_template = f"{{problem}}\n\n{_PROGRAM}"
    _program_in_block(config)


def code_plain(config: ConfigDict) -> None:
    """The same as one text; the base model goes on behind the problem."""
    config.data.prompt_template = f"Problem:\n{{problem}}\n\n{_PROGRAM}\n\nSolution:\n"
    _program_in_block(config)


def code_tests_chat(config: ConfigDict) -> None:
    """A program that is shown its tests, which name the function, with a chat."""
    code_chat(config)
    config.data.prompt_template = config.data.prompt_template.replace("{problem}", _WITH_TESTS)


def code_tests_plain(config: ConfigDict) -> None:
    """The same as one text."""
    code_plain(config)
    config.data.prompt_template = config.data.prompt_template.replace("{problem}", _WITH_TESTS)


_PROGRAM = "Write the whole Python program, with every import it needs, into one block between ```python and ```."
_WITH_TESTS = "{problem}\n\nIt has to pass these tests:\n{tests}"


def _program_in_block(config: ConfigDict) -> None:
    config.verifier.rewards = ("code",)
    config.verifier.code.extraction = "fenced"


def _answer_in_box(config: ConfigDict) -> None:
    config.verifier.rewards = ("math",)
    config.verifier.math.extraction = "boxed"
    config.verifier.math.last_box = True  # published scores take the last one too


def _answer_in_block(config: ConfigDict) -> None:
    config.verifier.rewards = ("math",)
    config.verifier.math.extraction = "answer_block"


PROMPTS: dict[str, Callable[[ConfigDict], None]] = {
    style.__name__: style
    for style in (
        boxed_chat,
        boxed_plain,
        think_chat,
        think_plain,
        code_chat,
        code_plain,
        code_tests_chat,
        code_tests_plain,
    )
}


def apply(config: ConfigDict, name: str) -> None:
    """Sets prompt template, system prompt, chat and the verifier's extraction.

    Args:
        config: The configuration to change.
        name: One of ``PROMPTS``.

    Raises:
        ValueError: for another name, with the choices.
    """
    if name not in PROMPTS:
        raise ValueError(f"prompt: got {name!r}, wanted one of {', '.join(PROMPTS)}")
    PROMPTS[name](config)
