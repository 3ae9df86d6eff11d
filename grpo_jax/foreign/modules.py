"""Python files of a user, by path."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def module_of_file(path: Path, kind: str) -> ModuleType:
    """Imports a file as if it were run as a script, so that it finds its neighbours.

    Args:
        path: A Python file.
        kind: What it holds; part of the module's name.

    Returns:
        The module.

    Raises:
        FileNotFoundError: where there is no such file.
        Exception: whatever the file raises.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} in {Path.cwd()}")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(f"_{kind}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses of the file look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
