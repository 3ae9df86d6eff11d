"""Finds what tests in code use that a judge outside the program's process cannot give, before any program runs."""

import ast
import itertools
from collections.abc import Iterator
from typing import Any

from grpo_jax.verifiers.code import pytest_part
from grpo_jax.verifiers.code.names import FUNCTIONS, inside, own_names

_UNSUPPORTED = ("setup_class", "teardown_class", "setup_module", "teardown_module", "setup_function")
_UNSUPPORTED += ("teardown_function", "load_tests", "pytest_generate_tests", "pytestmark", "usefixtures")
# The program prints elsewhere, and what it raises of these ends no loop of the tests.
_UNSUPPORTED += ("redirect_stdout", "redirect_stderr", "StopIteration", "StopAsyncIteration")
_OPTIONS = {
    "fixture": {"autouse", "scope"},
    "parametrize": {"argnames", "argvalues", "ids"},
    "param": {"id"},
    "xfail": {"reason", "raises", "run", "condition"},
}
"""What pytest's functions and marks may be called with."""
_SYNCHRONOUS = "IsolatedAsyncioTestCase"


def find(tree: ast.Module, module: str, entry: str) -> str:
    """Looks through tests.

    Args:
        tree: The tests.
        module: What they import the program as.
        entry: The function's name, if there is one.

    Returns:
        What they use that is not supported, or nothing.
    """
    scan = _Scan(tree, module, entry)
    return next(itertools.chain(scan.tests(), *map(scan.uses, ast.walk(tree))), "")


class _Scan:
    def __init__(self, tree: ast.Module, module: str, entry: str) -> None:
        self._tree, self._module, self._entry = tree, module, entry
        self._own = own_names(tree, module)
        self._functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
        self._fixtures = {node.name for node in self._functions if any(map(_is_fixture, node.decorator_list))}
        arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        self._handed = {node.name for node in self._functions} - self._fixtures - arguments

    def tests(self) -> Iterator[str]:
        """What is wrong with the tests themselves."""
        yield from self._of_functions(self._tree.body, is_asynchronous=False)
        classes = {node.name: node for node in ast.walk(self._tree) if isinstance(node, ast.ClassDef)}
        for node in classes.values():
            lineage = _lineage(node, classes)
            yield from self._of_functions(node.body, is_asynchronous=_SYNCHRONOUS in lineage)
            if node.name.startswith("Test") and not any(name.endswith("TestCase") for name in lineage):
                yield from self._of_arguments(node.body, is_method=True, further=node.decorator_list)
        yield from self._of_arguments(self._tree.body, is_method=False, further=[])
        read = {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)}
        checks = [node for node in self._tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
        if "check" not in read and not all(self._entry and _takes_one(node.args) for node in checks):
            yield "a function check, which nothing calls"
        elsewhere, own = (_imported(self._tree.body, self._module, is_program) for is_program in (False, True))
        if self._entry and self._entry in elsewhere - own:
            yield f"another {self._entry} than the program's"

    def _of_functions(self, body: list[ast.stmt], is_asynchronous: bool) -> Iterator[str]:
        for node in body:
            if not isinstance(node, FUNCTIONS) or not node.name.startswith("test") or node.name in self._fixtures:
                continue
            if isinstance(node, ast.AsyncFunctionDef) and not is_asynchronous:
                yield f"the coroutine function {node.name} as a test"
            parts = itertools.chain.from_iterable(map(inside, node.body))
            if any(isinstance(part, (ast.Yield, ast.YieldFrom)) for part in parts):
                yield f"the generator function {node.name} as a test"

    def _of_arguments(self, body: list[ast.stmt], is_method: bool, further: list[ast.expr]) -> Iterator[str]:
        for node in body:
            if not isinstance(node, FUNCTIONS):
                continue
            is_fixture = node.name in self._fixtures
            if not is_fixture and not node.name.startswith("test"):
                continue
            given = _parameters([*node.decorator_list, *further])
            if given is None:
                continue
            arguments = [*node.args.posonlyargs, *node.args.args]
            free = [argument.arg for argument in arguments[: len(arguments) - len(node.args.defaults)]]
            for name in free[is_method and not _is_static(node) :]:
                if name not in given | self._fixtures:
                    yield f"the fixture {name!r}"

    def uses(self, node: ast.AST) -> Iterator[str]:
        """What is wrong with one node."""
        match node:
            case ast.Attribute(ast.Name("pytest"), name) if name not in pytest_part.NAMES:
                yield f"pytest.{name}"
            case ast.Attribute(ast.Name("sys"), "stdout" | "stdin" | "stderr", ast.Store()):
                yield f"sys.{node.attr}"
            case ast.Attribute() | ast.Name() | ast.FunctionDef() if _name_of(node) in _UNSUPPORTED:
                yield _name_of(node)
            case ast.Import() | ast.ImportFrom():
                yield from _of_import(node)
            case ast.Compare(left, [ast.Eq() | ast.NotEq(), *_], comparators):
                yield from self._objects([left, *comparators])
            case ast.Call(function):
                yield from self._of_call(_name_of(function), function, node)

    def _of_call(self, name: str, function: ast.expr, call: ast.Call) -> Iterator[str]:
        options = {keyword.arg for keyword in call.keywords if keyword.arg}
        if name in _OPTIONS and (isinstance(function, ast.Attribute) or name in self._own):
            yield from (f"{option!r} of pytest's {name}" for option in sorted(options - _OPTIONS[name]))
        if name in ("assertEqual", "assertNotEqual", "assertEquals"):
            yield from self._objects(call.args)
        if isinstance(function, ast.Name) and name not in self._own:
            for value in [*call.args, *(keyword.value for keyword in call.keywords)]:
                if isinstance(value, ast.Lambda) or (isinstance(value, ast.Name) and value.id in self._handed):
                    yield f"a function as an argument of the program's {name}"

    def _objects(self, compared: list[ast.expr]) -> Iterator[str]:
        """Only the program could say whether its objects are equal, and it is not believed."""
        for value in compared:
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
                name = value.func.id
                if name[:1].isupper() and not name.isupper() and name not in self._own and name != self._entry:
                    yield f"a comparison with an object of the program's class {name}"


def _of_import(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    names = [alias.name for alias in node.names]
    module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    if module == "pytest":
        yield from (f"pytest.{name}" for name in names if name not in (*pytest_part.NAMES, "*"))
    whole = {module, *(f"{module}.{name}" if module else name for name in names)}
    if whole & {"mock", "unittest.mock"}:
        yield "unittest.mock"


def _name_of(node: Any) -> str:
    return getattr(node, "id", "") or getattr(node, "attr", "") or getattr(node, "name", "")


def _is_fixture(decorator: ast.expr) -> bool:
    return _name_of(decorator.func if isinstance(decorator, ast.Call) else decorator) == "fixture"


def _is_static(node: Any) -> bool:
    return any(_name_of(decorator) == "staticmethod" for decorator in node.decorator_list)


def _lineage(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> set[str]:
    """Names of a class's bases, and of theirs."""
    found, left = set[str](), [node]
    while left:
        names = {_name_of(base) for base in left.pop().bases} - found
        found |= names
        left += [classes[name] for name in names if name in classes]
    return found


def _takes_one(arguments: ast.arguments) -> bool:
    most = len(arguments.posonlyargs) + len(arguments.args)
    return most - len(arguments.defaults) <= 1 <= most


def _imported(body: list[ast.stmt], module: str, is_program: bool) -> set[str]:
    """Names that statements import one by one, from the program or from elsewhere."""
    imports = [node for node in body if isinstance(node, ast.ImportFrom) and (node.module == module) == is_program]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def _parameters(decorators: list[ast.expr]) -> set[str] | None:
    """Names that decorators give values to; ``None`` if that cannot be told."""
    found = set[str]()
    for decorator in decorators:
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        if _name_of(call) in ("fixture", "skip", "skipif", "xfail", "staticmethod"):
            continue
        if not isinstance(decorator, ast.Call) or _name_of(call) != "parametrize" or not decorator.args:
            return None
        names = decorator.args[0]
        constants = names.elts if isinstance(names, (ast.List, ast.Tuple)) else [names]
        if not all(isinstance(constant, ast.Constant) for constant in constants):
            return None
        texts = [str(constant.value) for constant in constants if isinstance(constant, ast.Constant)]
        found |= {name.strip() for text in texts for name in text.split(",")}
    return found
