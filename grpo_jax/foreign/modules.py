"""Python files of a user, by path."""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType


def described(text: str, modules: Iterable[ModuleType]) -> str:
    """A text on code with a digest of its files behind it, by which a change is noticed.

    Args:
        text: What people call the code.
        modules: What it lies in; modules without a file, and what they import, do not count.

    Returns:
        The text, with a digest if there is a file.
    """
    files = dict.fromkeys(file for module in modules if (file := getattr(module, "__file__", None)))
    if not files:
        return text
    return f"{text}, sha256 {hashlib.sha256(b''.join(Path(file).read_bytes() for file in files)).hexdigest()[:16]}"


def module_of(place: str, kind: str) -> ModuleType:
    """Imports a module by its name, or a file.

    Args:
        place: ``FILE.py`` or ``package.module``.
        kind: As for ``module_of_file``.

    Returns:
        The module.

    Raises:
        Exception: whatever importing it raises.
    """
    return module_of_file(Path(place), kind) if place.endswith(".py") else importlib.import_module(place)


def imported(place: str, kind: str) -> ModuleType:
    """The module that ``module_of`` gave for the same arguments before."""
    return sys.modules[_name(Path(place), kind) if place.endswith(".py") else place]


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
    spec = importlib.util.spec_from_file_location(_name(path, kind), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses of the file look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _name(path: Path, kind: str) -> str:
    return f"_{kind}_{path.stem}"
