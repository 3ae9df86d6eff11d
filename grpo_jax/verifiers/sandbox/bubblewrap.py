"""The command line of ``bwrap`` for one job, and the process that it starts inside."""

import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from grpo_jax.verifiers.sandbox import program, root
from grpo_jax.verifiers.sandbox.confine import REPLIES, Confinement
from grpo_jax.verifiers.sandbox.contracts import Level, Limits

OWN_PROCESSES = 4
"""Processes of bwrap itself, which count towards the program's limit."""
PACKAGE_ROOT = "/package"
"""Where this package is seen inside, wherever it lies outside: also below what the scratch folder covers."""
BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from grpo_jax.verifiers.sandbox import {0}; {0}.main()"
"""Program text that starts a module of this package in an interpreter without any path to it."""


def python_command(module: str, package_root: str, *arguments: str) -> list[str]:
    """Command of a fresh interpreter that runs ``main`` of a module of this package, without site packages."""
    # Not -I, which would ignore PYTHONHASHSEED; the rest of what it does, these options and the environment do.
    python = os.path.realpath(sys.executable)
    return [python, "-P", "-s", "-S", "-c", BOOT.format(module), package_root, *arguments]


def command(
    spec: dict[str, Any], confinement: Confinement, folder: str, paths: Sequence[str], package_root: str
) -> list[str]:
    """Builds the command line.

    Args:
        spec: The job; its files are left out.
        confinement: What the process inside takes on before it becomes the program.
        folder: The job's scratch folder on the host.
        paths: What to show inside besides the system's folders.
        package_root: Folder that holds this package.

    Returns:
        The command.

    Raises:
        FileNotFoundError: if there is no ``bwrap``.
    """
    bwrap = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")
    if bwrap is None:
        raise FileNotFoundError("bwrap is not installed")
    options = ["--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--clearenv"]
    # Links such as /bin keep their form; anything else is a view.
    for path in dict.fromkeys((*root.SYSTEM_FOLDERS, *paths)):
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            options += ["--ro-bind", path, path]
    options += ["--ro-bind", os.path.join(package_root, "grpo_jax"), f"{PACKAGE_ROOT}/grpo_jax"]
    options += ["--proc", "/proc", "--dev", "/dev", "--bind", folder, root.SCRATCH, "--chdir", root.SCRATCH]
    # The user was changed before; in the new namespace only bwrap's own processes count besides the program's.
    inside = dataclasses.replace(confinement, user=None, other_processes=OWN_PROCESSES)
    text = json.dumps({**spec, "files": {}, "confinement": dataclasses.asdict(inside)})
    return [bwrap, *options, "--remount-ro", "/", "--", *python_command("bubblewrap", PACKAGE_ROOT, text)]


def main() -> None:
    """Becomes the program that the command line tells of, inside bubblewrap."""
    spec = json.loads(sys.argv[2])
    values = spec["confinement"]
    confinement = Confinement(
        level=Level(values["level"]),
        scratch=values["scratch"],
        grants=tuple((path, rights) for path, rights in values["grants"]),
        limits=Limits(**values["limits"]),
        user=None,
        other_processes=values["other_processes"],
    )
    # Its pipe stands behind the program's streams.
    trouble = REPLIES + 1 if spec["converses"] else 3
    os.set_inheritable(trouble, False)
    try:
        program.run(spec, confinement, trouble)
    except BaseException as error:
        program.tell(trouble, error)
        os._exit(127)
