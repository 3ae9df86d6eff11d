"""Examples in docstrings run, commands on pages can be parsed, and generated pages are those of the code."""

import doctest
import importlib
import inspect
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from absl import flags

from docs.scripts import configuration
from grpo_jax import cli
from grpo_jax.config import RunConfig, dotted, to_nested

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "grpo_jax").rglob("*.py"))
}
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
}
WITH_EXAMPLES = [name for name, path in MODULES.items() if ">>> " in path.read_text(encoding="utf-8")]


def examples_of(module) -> list[doctest.DocTest]:
    """Examples of everything that the module defines. Type-checking decorators hide functions from doctest itself."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    globals_ = dict(vars(module))
    owned = [
        (name, value)
        for name, value in globals_.items()
        if (inspect.isclass(value) or inspect.isroutine(value)) and value.__module__ == module.__name__
    ]
    module_text = doctest.DocTestParser().get_doctest(module.__doc__ or "", globals_, module.__name__, None, 0)
    found = [test for name, value in owned for test in finder.find(value, name, module=False, globs=globals_)]
    return [test for test in [module_text, *found] if test.examples]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_docstring_examples_run(name):
    tests = examples_of(importlib.import_module(name))
    written = MODULES[name].read_text(encoding="utf-8").count(">>> ")
    assert sum(len(test.examples) for test in tests) == written, "some examples are out of doctest's sight"
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    report: list[str] = []
    for test in tests:
        runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def readme_command(marker: str) -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(rf"<!-- {marker} -->\s*```\w*\n(.*?)```", text, re.DOTALL)
    assert block, f"README.md has no fenced block after <!-- {marker} -->"
    return block.group(1).strip()


def test_the_readme_test_command_is_the_one_of_ci():
    assert readme_command("test-command") == 'pip install -e ".[test]" && pytest'


BLOCK = re.compile(
    r"(?P<marks>(?:^<!--[^\n]*-->\n+)*)^```(?P<language>bash|python)\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE
)
NEEDS, RUN = "<!-- needs: ", "<!-- run"
"""What a block needs; and that tests/integration/test_integration_docs.py runs it."""


def commands(text: str) -> list[list[str]]:
    """A block's commands, as words without the variables that are set in front of them."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        for command in re.split(r"&&|;", line):
            words = shlex.split(command, comments=True)
            while words and re.match(r"[A-Z_]+=", words[0]):
                del words[0]
            if words:
                found.append(words)
    return found


BLOCKS = [
    pytest.param(match["marks"], match["text"], id=f"{page}:{text.count(chr(10), 0, match.start('text'))}")
    for page, text in PAGES.items()
    for match in BLOCK.finditer(text)
    if match["language"] == "bash"
]


class Parsed(Exception):  # noqa: N818
    """A command line went through."""


def parse(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the module of ``python -m MODULE ...`` read its command line, and stops it there."""
    module = importlib.import_module(words[2])
    parse_all, parse_flags = cli.parse, flags.FlagValues.__call__

    def parse_and_stop(*arguments, **options):
        with monkeypatch.context() as whole:
            whole.setattr(flags.FlagValues, "__call__", parse_flags)
            raise Parsed(parse_all(*arguments, **options))

    def parse_flags_and_stop(*arguments):
        raise Parsed(parse_flags(*arguments))

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", words[2:])
    monkeypatch.setattr(cli, "parse", parse_and_stop)
    monkeypatch.setattr(flags.FlagValues, "__call__", parse_flags_and_stop)
    with pytest.raises(Parsed) as parsed:
        module.main()
    [result] = parsed.value.args
    if words[2] in ("grpo_jax.train", "grpo_jax.memory"):
        result.config.validate()


@pytest.mark.parametrize(("marks", "text"), BLOCKS)
def test_commands_on_pages_can_be_parsed_or_say_what_they_need(marks, text, monkeypatch):
    for words in [] if RUN in marks else commands(text):
        if words[:2] == ["python", "-m"] and words[2].startswith("grpo_jax."):
            with monkeypatch.context() as patched:
                parse(words, patched)
        elif words[:2] == ["python", "-m"] and words[2].startswith(("benchmarks.", "docs.scripts.", "launch.")):
            assert (ROOT / f"{words[2].replace('.', '/')}.py").is_file()
        else:
            wanted = f"a line {NEEDS}WHAT --> in front of the block, or {RUN} -->"
            assert NEEDS in marks, f"{shlex.join(words)}: wanted {wanted}"


def test_a_wrong_command_would_be_found(monkeypatch):
    with pytest.raises(cli.ConfigError, match=r"no such key\. Did you mean 'seed'"):
        parse(shlex.split("python -m grpo_jax.train --config configs/quickstart.py --config.sed=1"), monkeypatch)


def test_modules_that_pages_name_exist():
    named = {name for text in PAGES.values() for name in re.findall(r"python -m ((?:grpo_jax|benchmarks)\.\w+)", text)}
    assert {name for name in named if not (ROOT / f"{name.replace('.', '/')}.py").is_file()} == set()


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r": (\w+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed - {"index.md"} == {path.name for path in (ROOT / "docs").glob("*.md")}


def test_the_configuration_page_is_that_of_the_code():
    assert configuration.PAGE.read_text(encoding="utf-8") == configuration.page(), (
        "run python -m docs.scripts.configuration"
    )


def test_every_key_is_explained_in_base():
    comments = configuration.comments_of(configuration.BASE.read_text(encoding="utf-8"))
    keys = list(configuration.keys(RunConfig(), comments))
    assert {key.path: key.default for key in keys} == dotted(to_nested(RunConfig()))
    assert len(keys) > 200
    assert [key.path for key in keys if not key.comment] == [], "wanted a comment beside each in configs/base.py"


def test_the_site_builds_without_a_warning(tmp_path):
    for module in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(module, reason="the extra docs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "grpo_loss" in (tmp_path / "reference" / "algorithms" / "index.html").read_text(encoding="utf-8")
