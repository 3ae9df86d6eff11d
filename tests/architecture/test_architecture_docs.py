"""The examples in docstrings run, and the commands in README.md name things that exist."""

import doctest
import importlib
import inspect
import pathlib
import re
import shlex

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "grpo_jax").rglob("*.py"))
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


def test_the_readme_train_command_names_things_that_exist():
    words = shlex.split(readme_command("train-command").replace("\\\n", " "), comments=True)
    modules = [words[place + 1] for place, word in enumerate(words) if word == "-m"]
    assert "grpo_jax.train" in modules
    assert set(modules) <= set(MODULES)
    configs = re.findall(r"configs/[\w/]+\.py", " ".join(words))
    assert configs
    assert [name for name in configs if not (ROOT / name).is_file()] == []
