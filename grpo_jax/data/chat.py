"""Chat templates: from messages to exactly the text that a model was trained on."""

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import numpy as np

from grpo_jax.config import ConfigError, DataConfig
from grpo_jax.data.bounded_templates import BoundedEnvironment
from grpo_jax.data.huggingface import TokenizerFiles
from grpo_jax.data.splits import LazyProblems, Split
from grpo_jax.foreign import environments
from grpo_jax.records import Problem

Messages = Sequence[Mapping[str, str]]


class ChatTemplate:
    """A template in the dialect of published models.

    A template comes from the model's repository and is not trusted: it runs in jinja's sandbox, sees only text,
    numbers and lists of them, reads neither clock nor files, and is ended after ``bounded_templates.MAX_TURNS``.
    Without ``date``, a template that asks for the day is refused: a run that goes on tomorrow would otherwise get other
    prompts.
    """

    def __init__(self, source: str, *, tokens: Mapping[str, str], origin: str, date: datetime.date | None = None):
        """Compiles the template.

        Args:
            source: Its text.
            tokens: Special tokens by name, such as ``bos_token``; the template sees them as variables.
            origin: Where it comes from, for messages.
            date: What the template gets as the present day.

        Raises:
            ConfigError: for a text that is no template.
        """
        self._origin, self._tokens, self._date = origin, dict(tokens), date
        self._environment = BoundedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlocks, jinja2.ext.loopcontrols]
        )
        self._environment.filters["tojson"] = _to_json
        self._environment.globals |= {"raise_exception": _refuse, "strftime_now": self._formatted_date}
        try:
            self._template = self._environment.bounded(source)
        except jinja2.TemplateError as error:
            raise ConfigError(f"config.data.chat: the template of {origin} is broken: {error}.") from error

    def render(self, messages: Messages, *, add_generation_prompt: bool = True, **variables: Any) -> str:
        """Writes a conversation.

        Args:
            messages: Dicts with ``role`` and ``content``.
            add_generation_prompt: End with what comes in front of the assistant's answer.
            **variables: Further JSON values for the template, such as ``enable_thinking``.

        Returns:
            The text, special tokens written out.

        Raises:
            ConfigError: with what the template says against these messages.
        """
        values = {"tools": None, "documents": None, **self._tokens, **variables}
        values |= {"messages": [dict(one) for one in messages], "add_generation_prompt": add_generation_prompt}
        try:
            return self._environment.render(self._template, values)
        except ConfigError:
            raise
        except Exception as error:  # a template can fail as any program can
            roles = ", ".join(str(message.get("role")) for message in messages)
            raise ConfigError(
                f"config.data.chat: the template of {self._origin} cannot write a conversation of {roles}: "
                f"{type(error).__name__}: {error}. Change data.system_prompt or data.chat_variables, or set "
                "data.chat to False."
            ) from error

    def _formatted_date(self, text: str) -> str:
        if self._date is None:
            raise ConfigError(
                f"config.data.chat_date: got '', wanted a day such as '2025-01-31': the template of {self._origin} "
                "writes today's date into prompts, and a run that goes on tomorrow would get others."
            )
        return datetime.datetime.combine(self._date, datetime.time()).strftime(text)


def find_template(files: TokenizerFiles, date: datetime.date | None = None) -> ChatTemplate:
    """Compiles the chat template that comes with a tokenizer.

    ``chat_template.jinja`` goes before ``chat_template`` of ``tokenizer_config.json``; of several named templates the
    one called ``default`` is taken.

    Args:
        files: The tokenizer's files.
        date: What the template gets as the present day.

    Returns:
        The template.

    Raises:
        ConfigError: where there is none, or it is broken.
    """
    source = files.chat_template or files.sides["tokenizer_config.json"].get("chat_template")
    if isinstance(source, list):
        source = {named["name"]: named["template"] for named in source}.get("default")
    if not isinstance(source, str):
        raise ConfigError(
            f"config.data.chat: got True, but {files.source} comes without a chat template. Put chat_template.jinja "
            "beside it, or set data.chat to False and write the whole prompt into data.prompt_template."
        )
    return ChatTemplate(source, tokens=files.named_tokens(), origin=str(files.source), date=date)


def conversation(problem: Problem, system_prompt: str) -> list[dict[str, str]]:
    """The messages that put a problem.

    Args:
        problem: A problem whose prompt is what the user says; one of an environment may have messages of its own.
        system_prompt: What the conversation begins with; nothing for no such message.

    Returns:
        Dicts with ``role`` and ``content``.
    """
    own = problem.extra.get(environments.COLUMN, {}).get("prompt")
    if isinstance(own, list):
        return [{"role": message["role"], "content": message["content"]} for message in own]
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    return [*system, {"role": "user", "content": problem.prompt}]


class ChatTask:
    """A task whose prompts are put into a chat: the task's own prompt is what the user says."""

    def __init__(self, task: Any, files: TokenizerFiles, config: DataConfig):
        """Wraps a task.

        Args:
            task: Any task.
            files: The tokenizer's, with its template.
            config: Its ``system_prompt``, ``chat_variables`` and ``chat_date`` are used.

        Raises:
            ConfigError: where the tokenizer comes without a template, or it is broken.
        """
        self.name: str = task.name
        date = datetime.date.fromisoformat(config.chat_date) if config.chat_date else None
        self._task, self._template = task, find_template(files, date)
        self._system = config.system_prompt
        self._variables = json.loads(config.chat_variables)

    def problems(self, split: Split) -> Sequence[Problem]:
        """Returns the problems of a split with the text of the whole chat as their prompt."""
        problems = self._task.problems(split)
        if isinstance(problems, LazyProblems):
            rows = np.arange(len(problems))
            return LazyProblems(rows, lambda row: self._in_chat(problems[row]), problems.longest)
        return [self._in_chat(problem) for problem in problems]

    def demonstration(self, problem: Problem, generator: np.random.Generator) -> str:
        """Returns the worked example of the task inside."""
        return self._task.demonstration(problem, generator)

    def _in_chat(self, problem: Problem) -> Problem:
        prompt = self._template.render(conversation(problem, self._system), **self._variables)
        return Problem(problem.identifier, prompt, problem.answer, problem.extra)


class _GenerationBlocks(jinja2.ext.Extension):
    """``{% generation %}`` marks what an assistant wrote, for those who train on conversations; here it is plain."""

    tags = {"generation"}  # noqa: RUF012 - as jinja declares it

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja's own filter escapes for HTML.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
