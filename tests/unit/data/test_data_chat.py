import datetime
import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from grpo_jax.config import ColdStartConfig, ConfigError, DataConfig
from grpo_jax.data.addition import AdditionTask
from grpo_jax.data.chat import ChatTask, ChatTemplate, find_template
from grpo_jax.data.files import FileTask
from grpo_jax.data.huggingface import SIDE_FILES, TokenizerFiles
from grpo_jax.data.splits import SPLITS, LazyProblems

PLAIN = (
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}{{ mood }}"
)
USER = [{"role": "user", "content": "1+1"}]


def template(source, date=None):
    return ChatTemplate(source, tokens={"bos_token": "<s>"}, origin="model/tokenizer.json", date=date)


def files(config=None, jinja=None):
    sides = {name: {} for name in SIDE_FILES} | {"tokenizer_config.json": config or {}}
    return TokenizerFiles(Path("model/tokenizer.json"), tokenizers.Tokenizer(tokenizers.models.BPE()), sides, jinja)


def test_special_tokens_and_variables_are_seen():
    assert template(PLAIN).render(USER, mood="!") == "<s>[user]1+1[assistant]!"
    assert template(PLAIN).render(USER, add_generation_prompt=False) == "<s>[user]1+1"


def test_text_in_messages_is_not_a_template():
    assert (
        template("{{ messages[0]['content'] }}").render([{"role": "user", "content": "{{ 6 * 7 }}"}]) == "{{ 6 * 7 }}"
    )


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{% include '/etc/hostname' %}",
        "{{ open('/etc/hostname') }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ range(10 ** 9) | list }}",
        "{{ strftime_now.__self__._tokens }}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(source):
    with pytest.raises(ConfigError, match=r"the template of model/tokenizer\.json cannot write a conversation of user"):
        template(source).render(USER)


def test_a_template_that_goes_on_for_long_is_ended():
    source = "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}"
    wanted = r"template of model/tokenizer\.json cannot write a conversation of user: TemplateNeverEnds: its loops "
    with pytest.raises(ConfigError, match=wanted):
        template(source).render(USER)


def test_a_template_can_refuse_a_conversation():
    source = "{% if messages[0].role == 'system' %}{{ raise_exception('no system messages') }}{% endif %}"
    chat = [{"role": "system", "content": "Be brief."}, *USER]
    with pytest.raises(
        ConfigError,
        match=r"conversation of system, user: TemplateError: no system messages\. Change data\.system_prompt",
    ):
        template(source).render(chat)


def test_the_day_comes_from_the_configuration():
    source = "{{ strftime_now('%d %b %Y') }}"
    assert template(source, datetime.date(2025, 1, 31)).render(USER) == "31 Jan 2025"
    with pytest.raises(ConfigError, match=r"config\.data\.chat_date: got '', wanted a day such as '2025-01-31'"):
        template(source).render(USER)


def test_a_broken_template_is_named():
    with pytest.raises(
        ConfigError, match=r"config\.data\.chat: the template of model/tokenizer\.json is broken: Expected"
    ):
        template("{% for %}")


@pytest.mark.parametrize(
    ("config", "jinja", "expected"),
    [
        ({"chat_template": "one"}, None, "one"),
        ({"chat_template": "one"}, "two", "two"),
        ({"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "y"}]}, None, "y"),
        ({"chat_template": "{{ eos_token }}", "eos_token": {"content": "<end>"}}, None, "<end>"),
    ],
)
def test_which_template_is_taken(config, jinja, expected):
    assert find_template(files(config, jinja)).render(USER) == expected


@pytest.mark.parametrize("config", [{}, {"chat_template": [{"name": "tool_use", "template": "x"}]}])
def test_a_tokenizer_without_a_template_is_refused(config):
    with pytest.raises(ConfigError, match=r"model/tokenizer\.json comes without a chat template\. Put chat_template"):
        find_template(files(config))


CHAT = DataConfig(
    tokenizer="model",
    digits=2,
    prompt_template="Add {problem}.",
    validation_problems=4,
    test_problems=4,
    chat=True,
    system_prompt="Think.",
    chat_variables='{"mood": "?"}',
)


def test_prompts_are_the_whole_text_of_the_chat():
    inner = AdditionTask(CHAT, ColdStartConfig())
    task = ChatTask(inner, files({"bos_token": "<s>"}, PLAIN), CHAT)
    for split in SPLITS:
        bare, wrapped = inner.problems(split), task.problems(split)
        assert isinstance(wrapped, LazyProblems), "a million prompts are not written in advance"
        assert (len(wrapped), wrapped.longest) == (len(bare), bare.longest)
        for position in (0, len(bare) // 2, -1):
            assert wrapped[position].prompt == f"<s>[system]Think.[user]{bare[position].prompt}[assistant]?"
            assert wrapped[position].identifier == bare[position].identifier
            assert wrapped[position].answer == bare[position].answer
            assert wrapped[position].extra == bare[position].extra
    problem, generator = task.problems("train")[0], np.random.default_rng
    assert task.demonstration(problem, generator(0)) == inner.demonstration(problem, generator(0))
    assert task.name == "addition"


def test_problems_of_a_file_too(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"problem": f"p{n}", "answer": n, "split": SPLITS[n % 3], "hint": "h"} for n in range(6)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = DataConfig(task="file", path=str(path), tokenizer="model", chat=True)
    task = ChatTask(FileTask(config), files({}, PLAIN), config)
    assert [problem.prompt for problem in task.problems("train")] == ["[user]p0[assistant]", "[user]p3[assistant]"]
    assert task.problems("train")[0].extra == {"split": "train", "hint": "h"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chat": True}, r"config\.data\.chat: got True, wanted False, since data\.tokenizer is 'characters'"),
        ({"system_prompt": "x"}, r"config\.data\.system_prompt: got 'x', wanted '', its default"),
        ({"chat_date": "2025-01-31"}, r"config\.data\.chat_date: .* only read when data\.chat is True"),
        ({"chat_variables": '{"a": 1}'}, r"config\.data\.chat_variables: .* wanted '\{\}', its default"),
        (
            {"chat": True, "tokenizer": "m", "chat_variables": "[1]"},
            r"chat_variables: got '\[1\]', wanted a JSON object",
        ),
        ({"chat": True, "tokenizer": "m", "chat_variables": "{"}, r"chat_variables: got '\{', wanted a JSON object"),
        ({"chat": True, "tokenizer": "m", "chat_date": "31.1."}, r"chat_date: got '31\.1\.', wanted a day such as"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        DataConfig(**changes).validate("data")


def test_a_chat_is_a_valid_setting():
    DataConfig(chat=True, tokenizer="m", system_prompt="x", chat_date="2025-01-31").validate("data")
