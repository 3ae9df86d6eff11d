import re
import subprocess

import grpo_jax
from grpo_jax.io import revision


def test_git_state_of_a_repository(tmp_path, monkeypatch):
    package = tmp_path / "grpo_jax"
    package.mkdir()
    source = package / "__init__.py"
    source.write_text("")
    monkeypatch.setattr(grpo_jax, "__file__", str(source))

    def git(*arguments):
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    git("init")
    assert revision.git_state() is None, "an untracked copy inside a repository has no revision"
    git("add", ".")
    git("commit", "-m", "first")
    state = revision.git_state()
    assert state is not None
    assert re.fullmatch("[0-9a-f]{40}", state["revision"])
    assert state["dirty"] is False
    source.write_text("changed = True\n")
    assert revision.git_state() == {**state, "dirty": True}


def test_absent_git_is_no_error(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert revision.git_state() is None
