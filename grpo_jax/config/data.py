"""Configuration of the problems and of how their text becomes tokens."""

import dataclasses
import datetime
import json
from typing import Literal

from grpo_jax.config.checks import Section, fail, require

TestsFormat = Literal["none", "humaneval", "mbpp"]
"""How a row gives the tests of a program, where its column ``tests`` does not."""

_COLUMN_KEYS = ("problem_column", "answer_column", "answer_format", "tests_format")


@dataclasses.dataclass(frozen=True)
class DataConfig(Section):
    """Where problems come from and how their text becomes tokens."""

    task: Literal["addition", "countdown", "maximum", "file"] = "addition"
    path: str | None = None
    test_path: str | None = None
    problem_column: str = "problem"
    answer_column: str = "answer"
    answer_format: Literal["plain", "gsm8k", "boxed"] = "plain"
    tests_format: TestsFormat = "none"
    digits: int = 3
    countdown_numbers: int = 3
    maximum_examples: int = 2
    max_problems: int = 1_000_000
    validation_problems: int = 256
    test_problems: int = 256
    tokenizer: str = "characters"
    prompt_template: str = "{problem}"
    chat: bool = False
    system_prompt: str = ""
    chat_variables: str = "{}"
    chat_date: str = ""
    max_prompt_tokens: int = 64
    bad_rows: Literal["error", "skip"] = "error"

    def validate(self, path: str) -> None:
        """Refuses a source that is not fully named, or a path that nothing would read."""
        if self.task == "file":
            require(
                self.path is not None,
                f"{path}.path",
                self.path,
                "a .jsonl, .json, .csv or .parquet file, since data.task is 'file'",
                "Add --config.data.path=FILE.",
            )
        for name in () if self.task == "file" else ("path", "test_path", *_COLUMN_KEYS):
            value, default = getattr(self, name), getattr(DataConfig, name)
            wanted = f"{default!r}, since data.task is {self.task!r}"
            require(value == default, f"{path}.{name}", value, wanted, "Set data.task to 'file' to read it.")
        for name in ("problem_column", "answer_column"):
            require(getattr(self, name) != "", f"{path}.{name}", "", "a column's name")
        require(1 <= self.digits <= 9, f"{path}.digits", self.digits, "1 to 9")
        require(2 <= self.countdown_numbers <= 6, f"{path}.countdown_numbers", self.countdown_numbers, "2 to 6")
        examples, default = self.maximum_examples, DataConfig.maximum_examples
        require(0 <= examples <= 16, f"{path}.maximum_examples", examples, "0 to 16")
        wanted = f"{default}, its default: it is only read when data.task is 'maximum'"
        require(self.task == "maximum" or examples == default, f"{path}.maximum_examples", examples, wanted)
        self._at_least(path, 1, "max_problems", "max_prompt_tokens", "validation_problems", "test_problems")
        template = self.prompt_template
        require("{problem}" in template, f"{path}.prompt_template", template, "a text with '{problem}' in it")
        wanted = "no '{tests}', since data.tests_format is 'none'"
        require("{tests}" not in template or self.tests_format != "none", f"{path}.prompt_template", template, wanted)
        self._validate_chat(path)

    def _validate_chat(self, path: str) -> None:
        built_in = self.tokenizer in ("characters", "bytes")
        wanted = f"False, since data.tokenizer is {self.tokenizer!r}, which has no chat template"
        require(not (self.chat and built_in), f"{path}.chat", self.chat, wanted)
        for name in ("system_prompt", "chat_variables", "chat_date"):
            value, default = getattr(self, name), getattr(DataConfig, name)
            wanted = f"{default!r}, its default: it is only read when data.chat is True"
            require(self.chat or value == default, f"{path}.{name}", value, wanted)
        try:
            variables = json.loads(self.chat_variables)
        except ValueError:
            variables = None
        wanted = """a JSON object such as '{"enable_thinking": false}'"""
        require(isinstance(variables, dict), f"{path}.chat_variables", self.chat_variables, wanted)
        if self.chat_date:
            try:
                datetime.date.fromisoformat(self.chat_date)
            except ValueError:
                fail(f"{path}.chat_date", self.chat_date, "a day such as '2025-01-31'")
