"""Budgets, docstrings and banned constructs, checked on the syntax tree of every module of the package."""

import ast
import pathlib
import re
import subprocess
import textwrap
import tomllib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "grpo_jax").rglob("*.py"))}

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 60
MAX_COMPLEXITY = 10
LONG_FILES: dict[str, int] = {}
"""Files that may be longer, each with the reason beside it."""

BANNED_STEMS = {"utils", "util", "helpers", "helper", "common", "misc"}
# Each of these turns text into a running program somewhere; text here may come from a model.
BANNED_NAMES = {"eval", "exec", "sympify", "parse_expr", "parse_latex"}
UNPICKLERS = {"pickle", "dill", "cloudpickle", "marshal"}
UNPICKLING = {"load", "loads", "Unpickler"}

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)

every_file = pytest.mark.parametrize("path", FILES.values(), ids=FILES.keys())


def parsed(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def complexity(function: ast.AST) -> int:
    return 1 + sum(isinstance(node, BRANCHES) for node in ast.walk(function))


def undocumented(tree: ast.AST, prefix: str = "") -> list[str]:
    """Public functions, classes and methods without a docstring; overloads and overrides are documented elsewhere."""
    found = []
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)) or node.name.startswith("_"):
            continue
        marks = {ast.unparse(mark).rpartition(".")[2] for mark in node.decorator_list}
        if not ast.get_docstring(node) and not marks & {"overload", "override", "setter"}:
            found.append(prefix + node.name)
        if isinstance(node, ast.ClassDef):
            found += undocumented(node, f"{prefix}{node.name}.")
    return found


def is_dangerous(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name):
            return name in BANNED_NAMES
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in UNPICKLERS:
            return name in UNPICKLING
        case ast.Attribute(value=owner, attr=name):
            # A model has an eval method; only the built-in one reads text.
            return name in BANNED_NAMES and (name not in {"eval", "exec"} or ast.unparse(owner) == "builtins")
        case ast.ImportFrom(module=module, names=aliases):
            banned = BANNED_NAMES | (UNPICKLING if module in UNPICKLERS else set())
            return any(alias.name in banned for alias in aliases)
        case ast.keyword(arg="allow_pickle", value=value):
            return ast.unparse(value) != "False"
        case ast.Call(func=function):
            return ast.unparse(function) in {"S", "sympy.S"}
    return False


def dangerous(tree: ast.AST) -> list[str]:
    """Every way in the tree to evaluate text or to load a pickle."""
    return [ast.unparse(node) for node in ast.walk(tree) if is_dangerous(node)]


@every_file
def test_the_file_fits_its_budget(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LONG_FILES.get(path.relative_to(ROOT).as_posix(), MAX_FILE_LINES)


@every_file
def test_functions_fit_their_budgets(path):
    functions = [node for node in ast.walk(parsed(path)) if isinstance(node, FUNCTIONS)]
    too_long = {f.name: f.end_lineno - f.lineno + 1 for f in functions if f.end_lineno - f.lineno >= MAX_FUNCTION_LINES}
    too_complex = {f.name: complexity(f) for f in functions if complexity(f) > MAX_COMPLEXITY}
    assert (too_long, too_complex) == ({}, {})


@every_file
def test_public_names_have_docstrings(path):
    tree = parsed(path)
    assert ast.get_docstring(tree), "the module has no docstring"
    assert undocumented(tree) == []


@every_file
def test_annotations_are_not_postponed(path):
    future = [
        node for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom) and node.module == "__future__"
    ]
    assert [ast.unparse(node) for node in future if any(alias.name == "annotations" for alias in node.names)] == []


@every_file
def test_the_module_is_named_after_what_it_does(path):
    assert not BANNED_STEMS & set(path.relative_to(ROOT).with_suffix("").as_posix().replace("_", "/").split("/"))


@every_file
def test_no_text_is_evaluated(path):
    assert dangerous(parsed(path)) == []


def test_exceptions_are_still_needed():
    for name, budget in LONG_FILES.items():
        assert MAX_FILE_LINES < len(FILES[name].read_text(encoding="utf-8").splitlines()) <= budget


def test_ruff_counts_complexity_with_the_same_budget():
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    assert "C90" in lint["select"]
    assert lint["mccabe"]["max-complexity"] == MAX_COMPLEXITY


@pytest.mark.parametrize(
    "source",
    [
        "eval(text)",
        "run = exec",
        "import builtins\nbuiltins.eval(text)",
        "from sympy import sympify as s",
        "sympy.parsing.sympy_parser.parse_expr(text)",
        "sympy.S(text)",
        "pickle.loads(data)",
        "from pickle import load",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_dangerous_calls_are_found(source):
    assert dangerous(ast.parse(source))


def test_harmless_calls_are_not_found():
    assert dangerous(ast.parse("model.eval()\nnp.load(path, allow_pickle=False)\njson.loads(text)")) == []


def test_missing_docstrings_are_found():
    source = """
    class Shown:
        def method(self): ...
        def _hidden(self): ...
    def shown():
        'Documented.'
        def inner(): ...
    """
    assert undocumented(ast.parse(textwrap.dedent(source))) == ["Shown", "Shown.method"]


def test_complexity_counts_branches():
    source = """
    def f(x):
        for item in x:
            if item:
                pass
            elif x:
                pass
        try:
            pass
        except ValueError:
            pass
    """
    assert complexity(ast.parse(textwrap.dedent(source))) == 5


# "Session" alone is a word of POSIX, pytest and notebooks; these are notes about how a change was made.
MACHINE_WORDS = re.compile(
    r"(?<![\w.~])/(?:work|root)/"
    r"|\b(?:this|that|last|next|previous|earlier|later|current|other|another|new|my|our|your|agent|coding) sessions?\b",
    re.IGNORECASE,
)


def shipped_text_files() -> list[pathlib.Path]:
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout, so nothing says which files belong to the project")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:8192]]


def test_the_project_names_no_machine():
    here = pathlib.Path(__file__).resolve()
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in shipped_text_files()
        if path != here
        for match in MACHINE_WORDS.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize("text", ["see /" + "work/notes", "HOME=/" + "root/x", "in this session,"])
def test_machine_words_are_found(text):
    assert MACHINE_WORDS.search(text)


@pytest.mark.parametrize("text", ["framework/models", "a session of its own", "~/" + "work/x", 'scope="session"'])
def test_ordinary_text_is_not_found(text):
    assert not MACHINE_WORDS.search(text)
