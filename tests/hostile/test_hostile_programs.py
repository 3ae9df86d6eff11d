import os
import pathlib
import shutil
import socket
import subprocess
import sys

import pytest

from grpo_jax.verifiers.sandbox.contracts import Level
from tests.hostile.arena import Arena
from tests.hostile.escapes import ESCAPING, HOSTILE
from tests.hostile.programs import EXHAUSTING, FOOLING

ROOT = pathlib.Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox confines on Linux only")


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    arena = Arena(Level.NAMESPACES, tmp_path_factory.mktemp("arena"))
    yield arena
    arena.close()


@pytest.mark.parametrize("name", [*FOOLING, *EXHAUSTING, *ESCAPING])
def test_a_hostile_program_gets_nothing_and_leaves_nothing(arena, name):
    assert arena.faults(HOSTILE[name]) == []


def test_what_a_program_leaves_or_reaches_is_noticed(arena):
    names = arena._names
    outside = pathlib.Path(names["OUTSIDE"], "left")
    outside.write_text("x")
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", str(arena.scratch)])
    try:
        with socket.create_connection(("127.0.0.1", int(names["TCP"]))):
            found = arena.traces(patience_seconds=0.0)
    finally:
        left.kill()
        left.wait()
        outside.unlink()
    assert [fault.split()[0] for fault in found] == ["processes", "files", "a"]
    assert arena.traces() == []


@pytest.mark.parametrize("name", [name for name, hostile in ESCAPING.items() if hostile.control])
def test_the_same_attack_works_without_a_sandbox(arena, name, tmp_path):
    program = arena.text(ESCAPING[name]) + "\nprint(add(1, 2))\n"
    descriptor = os.open(os.devnull, os.O_RDONLY)
    try:
        ran = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, pass_fds=[descriptor], check=False
        )
    finally:
        os.close(descriptor)
    for trace in pathlib.Path("/dev/shm").glob(f"hostile-{arena._names['UNIQUE']}"):
        trace.unlink()
    for trace in pathlib.Path(arena._names["OUTSIDE"]).iterdir():
        trace.unlink()
    arena.traces()
    assert ran.stdout == b"3\n", ran.stderr


def ordinary_interpreter() -> str:
    """An interpreter that an ordinary user can run, and that can run itself: one in a folder of root's cannot."""
    program = (
        "import os, subprocess, sys; itself = os.path.realpath(sys.executable)\n"
        "sys.exit(sys.version_info < (3, 11) or subprocess.run([itself, '-c', 'import wave']).returncode)"
    )
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        tried = subprocess.run(
            [*as_nobody(), python, "-c", program],
            capture_output=True,
            check=False,
            cwd="/",
        )
        if tried.returncode == 0:
            return python
    pytest.skip("no interpreter that an ordinary user can run")


def as_nobody() -> list[str]:
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv") or pytest.skip("setpriv is not installed")
    return [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups"]


def faults_at(level: Level, command: list[str]) -> str:
    ran = subprocess.run(
        [*command, "-m", "tests.hostile.arena", level],
        cwd="/",
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@pytest.mark.parametrize("level", [Level.NAMESPACES, Level.LANDLOCK])
def test_an_ordinary_user_is_as_safe(level):
    python = ordinary_interpreter()
    assert faults_at(level, [*as_nobody(), python]) == "{}"


@pytest.mark.parametrize("level", [Level.LANDLOCK, Level.BUBBLEWRAP])
def test_root_is_as_safe_without_namespaces_of_its_own(level):
    if os.geteuid() != 0:
        pytest.skip("not root")
    if level == Level.BUBBLEWRAP and shutil.which("bwrap") is None:
        pytest.skip("bwrap is not installed")
    assert faults_at(level, [ordinary_interpreter()]) == "{}"
