"""Configuration of the problems and of how their text becomes tokens."""

import dataclasses
import datetime
import json
from typing import Literal

from grpo_jax.config.checks import Section, fail, require

TestsFormat = Literal["none", "humaneval", "mbpp"]
"""How a row gives the tests of a program, where its column ``tests`` does not."""

_COLUMN_KEYS = ("problem_column", "answer_column", "answer_format", "tests_format")

_GYM_KEYS = ("gym_tasks", "gym_settings", "gym_seed")

MOST_GYM_PROBLEMS = 100_000


@dataclasses.dataclass(frozen=True)
class DataConfig(Section):
    """Where problems come from and how their text becomes tokens."""

    task: Literal["addition", "countdown", "maximum", "file", "reasoning_gym", "environment"] = "addition"
    path: str | None = None
    test_path: str | None = None
    problem_column: str = "problem"
    answer_column: str = "answer"
    answer_format: Literal["plain", "gsm8k", "boxed"] = "plain"
    tests_format: TestsFormat = "none"
    gym_tasks: tuple[str, ...] = ()
    gym_settings: str = "{}"
    gym_seed: int = 0
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
        self._validate_source(path)
        for name in ("problem_column", "answer_column"):
            require(getattr(self, name) != "", f"{path}.{name}", "", "a column's name")
        require(1 <= self.digits <= 9, f"{path}.digits", self.digits, "1 to 9")
        require(2 <= self.countdown_numbers <= 6, f"{path}.countdown_numbers", self.countdown_numbers, "2 to 6")
        examples, default = self.maximum_examples, DataConfig.maximum_examples
        require(0 <= examples <= 16, f"{path}.maximum_examples", examples, "0 to 16")
        wanted = f"{default}, its default: it is only read when data.task is 'maximum'"
        require(self.task == "maximum" or examples == default, f"{path}.maximum_examples", examples, wanted)
        self._of_a_row(path, "max_prompt_tokens")
        self._at_least(path, 1, "max_problems", "max_prompt_tokens", "validation_problems", "test_problems")
        template = self.prompt_template
        require("{problem}" in template, f"{path}.prompt_template", template, "a text with '{problem}' in it")
        wanted = "no '{tests}', since data.tests_format is 'none'"
        require("{tests}" not in template or self.tests_format != "none", f"{path}.prompt_template", template, wanted)
        self._validate_chat(path)

    def _validate_source(self, path: str) -> None:
        wanted = {
            "file": "a .jsonl, .json, .csv or .parquet file",
            "environment": "a module or FILE.py with load_environment()",
        }
        if self.task in wanted:
            remedy = "Add --config.data.path=NAME."
            wanted_here = f"{wanted[self.task]}, since data.task is {self.task!r}"
            require(self.path is not None, f"{path}.path", self.path, wanted_here, remedy)
        readers = dict.fromkeys(("path", "test_path", *_COLUMN_KEYS), ("file",))
        readers |= {"path": ("file", "environment")} | dict.fromkeys(_GYM_KEYS, ("reasoning_gym",))
        for name, tasks in readers.items():
            value, default = getattr(self, name), getattr(DataConfig, name)
            unread = f"{default!r}, since data.task is {self.task!r}"
            require(
                value == default or self.task in tasks,
                f"{path}.{name}",
                value,
                unread,
                f"Set data.task to {tasks[0]!r} to read it.",
            )
        if self.task == "reasoning_gym":
            self._validate_gym(path)
        template, whole = self.prompt_template, "'{problem}': the prompts of an environment are whole"
        require(self.task != "environment" or template == "{problem}", f"{path}.prompt_template", template, whole)

    def _validate_gym(self, path: str) -> None:
        tasks = self.gym_tasks
        require(0 < len(set(tasks)) == len(tasks), f"{path}.gym_tasks", tasks, "names of tasks, each once")
        try:
            settings = json.loads(self.gym_settings)
        except ValueError:
            settings = None
        known = isinstance(settings, dict) and settings.keys() <= set(tasks)
        of_tasks = list(settings.values()) if isinstance(settings, dict) else []
        known = known and all(isinstance(values, dict) for values in of_tasks)
        wanted = """a JSON object such as '{"chain_sum": {"max_terms": 3}}' for tasks of data.gym_tasks"""
        require(known, f"{path}.gym_settings", self.gym_settings, wanted)
        self._at_least(path, 0, "gym_seed")
        wanted = f"at most {MOST_GYM_PROBLEMS}, since each is made when the run starts"
        require(self.max_problems <= MOST_GYM_PROBLEMS, f"{path}.max_problems", self.max_problems, wanted)

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
