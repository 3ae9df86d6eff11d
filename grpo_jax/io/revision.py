"""Which revision of the package runs."""

import subprocess
from pathlib import Path
from typing import Any

import grpo_jax


def git_state() -> dict[str, Any] | None:
    """The revision of the package's source and whether files differ from it, or None without git or a checkout."""
    package = Path(grpo_jax.__file__).parent
    # An installed copy may lie inside somebody else's repository, whose revision says nothing about us.
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    revision = _git(package, "rev-parse", "HEAD")
    changed = _git(package, "status", "--porcelain", "--untracked-files=no")
    return None if revision is None else {"revision": revision, "dirty": bool(changed)}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
