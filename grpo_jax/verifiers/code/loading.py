"""Turns a program's text into a running module. This happens inside the sandbox and nowhere else."""

import ast
import importlib.abc
import linecache
import os
import sys
import types

FILE_NAME = "solution.py"


class SyntaxFault(Exception):  # noqa: N818
    """The text is no program."""


class _TextLoader(importlib.abc.ExecutionLoader):
    """Loads one module from a text that is not in a file."""

    def __init__(self, source: str) -> None:
        self._source = source

    def get_source(self, fullname: str) -> str:  # noqa: ARG002
        return self._source

    def get_filename(self, fullname: str) -> str:  # noqa: ARG002
        return FILE_NAME


def clear_traces() -> None:
    """Takes this package out of the interpreter's sight, so that a program finds a usual one."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "grpo_jax"]:
        del sys.modules[name]
    sys.argv = [FILE_NAME]
    sys.path.insert(0, os.getcwd())


def load(source: str, name: str) -> types.ModuleType:
    """Runs a program's text as a module.

    Args:
        source: The text.
        name: The module's name; ``__main__`` runs it as a script.

    Returns:
        The module.

    Raises:
        SyntaxFault: if the text does not compile.
        BaseException: whatever the program raises.
    """
    check_syntax(source)
    module, loader = types.ModuleType(name), _TextLoader(source)
    module.__loader__, module.__file__ = loader, FILE_NAME
    sys.modules[name] = module
    # For tracebacks and inspect.getsource.
    linecache.cache[FILE_NAME] = (len(source), None, source.splitlines(keepends=True), FILE_NAME)
    loader.exec_module(module)
    return module


def check_syntax(source: str) -> ast.Module:
    """Compiles a text without running it.

    Args:
        source: The text.

    Returns:
        Its syntax tree.

    Raises:
        SyntaxFault: if it does not compile.
    """
    try:
        compile(source, FILE_NAME, "exec", dont_inherit=True)
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise SyntaxFault(str(error)) from error
