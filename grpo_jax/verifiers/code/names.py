"""Which names in tests are the tests' own, and which the program's."""

import ast
import builtins
from collections.abc import Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def own_names(tree: ast.Module, module: str) -> set[str]:
    """Names that mean something to the tests already: a program must not put its own ``all`` or ``isclose`` there.

    Args:
        tree: The tests.
        module: What they import the program as.

    Returns:
        Built-in names, and those that the tests define or import from elsewhere; not those imported by a star.
    """
    return {*dir(builtins), "pytest"}.union(*(_bound(node, module) for node in ast.walk(tree)))


def _bound(node: ast.AST, module: str) -> set[str]:
    if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module != module):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return {node.name}
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return {node.id}
    if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        return {node.name}
    return set()


def starred_modules(tree: ast.Module, module: str) -> Iterator[str]:
    """The modules, but for the program's, of which the tests import every name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module != module and node.names[0].name == "*":
            yield node.module


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what lies in it, but for what functions and classes hold."""
    yield node
    if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from inside(child)
