"""Sandbox program that parses a text and checks rules on its syntax tree; nothing of the text is run.

Parsing a hostile text can take the interpreter's memory or stack, so it happens where that hurts nobody.
"""

import ast
from collections.abc import Iterator
from typing import Any

from grpo_jax.verifiers.code import loading
from grpo_jax.verifiers.code.lines import Lines

KEPT = "rules kept"
NOT_PARSED, NOT_COMPILED = "syntax error", "does not compile"
FORBIDDEN_IMPORT, FORBIDDEN_NAME = "forbidden import", "forbidden call"
NO_FUNCTION, OTHER_SIGNATURE = "required function missing", "other arguments than required"


def main() -> int:
    """Answers one request: the rules, and the text."""
    lines = Lines()
    asked = lines.receive()
    if asked is not None:
        lines.send({"reason": check(asked["source"], asked["rules"])})
    return 0


def check(source: str, rules: dict[str, Any]) -> str:
    """Checks a text against rules.

    Args:
        source: The text.
        rules: ``forbidden_imports``, ``forbidden_calls``, ``required_function``, ``required_arguments`` and
            ``compile_program``, as ``LintConfig`` tells.

    Returns:
        ``KEPT``, or the first rule that is broken.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return NOT_PARSED
    if rules["compile_program"]:
        try:
            loading.check_syntax(source)
        except loading.SyntaxFault:
            return NOT_COMPILED
    imported = dict(_imports(tree))
    if any(_is_inside(name, rules["forbidden_imports"]) for name in imported.values()):
        return FORBIDDEN_IMPORT
    if any(_is_inside(name, rules["forbidden_calls"]) for name in _names(tree, imported)):
        return FORBIDDEN_NAME
    return _signature_fault(tree, rules) or KEPT


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Every import as (name that it binds, what that stands for)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield alias.asname or top, alias.name if alias.asname else top
                # Bound to nothing, but imported all the same.
                yield f"import {alias.name}", alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module or ''}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            # __import__("os") and importlib.import_module("os").
            name = _dotted(node.func) or ""
            if name.rpartition(".")[2] in ("__import__", "import_module"):
                yield f"import {node.args[0].value}", str(node.args[0].value)


def _names(tree: ast.Module, imported: dict[str, str]) -> Iterator[str]:
    """Every name that is read, called or not, with what an import made of it."""
    for node in ast.walk(tree):
        name = _dotted(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
        if name is not None:
            first, dot, rest = name.partition(".")
            yield (imported.get(first, first) + dot + rest).removeprefix("builtins.").removeprefix("__builtins__.")


def _dotted(node: ast.AST) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _is_inside(name: str, forbidden: list[str]) -> bool:
    return any(name == other or name.startswith(f"{other}.") for other in forbidden)


def _signature_fault(tree: ast.Module, rules: dict[str, Any]) -> str:
    wanted = rules["required_function"]
    if not wanted:
        return ""
    # The last definition is the one that counts.
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == wanted]
    if not found:
        return NO_FUNCTION
    names = [argument.arg for argument in (*found[-1].args.posonlyargs, *found[-1].args.args)]
    required = rules["required_arguments"]
    return OTHER_SIGNATURE if required and names != required else ""
