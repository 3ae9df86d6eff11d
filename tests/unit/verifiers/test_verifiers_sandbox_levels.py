import dataclasses
import logging
import subprocess
import sys

import pytest

from grpo_jax.config import ConfigError, from_nested
from grpo_jax.config.sandbox import CodeConfig, LintConfig, SandboxConfig
from grpo_jax.verifiers.sandbox import canary, confine, landlock, system
from grpo_jax.verifiers.sandbox import sandbox as sandbox_module
from grpo_jax.verifiers.sandbox.contracts import Level
from grpo_jax.verifiers.sandbox.launcher import Zygote, ZygoteError
from grpo_jax.verifiers.sandbox.sandbox import Sandbox

linux = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox confines on Linux only")
UNSAFE = SandboxConfig(minimum_level="limits", allow_unsafe=True)


@pytest.fixture
def nothing_works(monkeypatch):
    def refuse(*_):
        raise ZygoteError("not here")

    monkeypatch.setattr(sandbox_module, "Zygote", refuse)


def test_levels_are_ordered_by_strength():
    assert Level.NAMESPACES.is_at_least(Level.LANDLOCK)
    assert Level.LANDLOCK.is_at_least(Level.LANDLOCK)
    assert not Level.LIMITS.is_at_least(Level.LANDLOCK)


@linux
def test_the_strongest_level_that_works_is_taken():
    with Sandbox(SandboxConfig()) as sandbox:
        assert sandbox.level.is_at_least(Level.LANDLOCK)
        assert list(sandbox.refusals) == list(Level)[: list(Level).index(sandbox.level)]


def test_a_machine_without_a_level_that_is_asked_for_is_refused(nothing_works):
    wanted = r"config\.verifier\.sandbox\.minimum_level: got 'bubblewrap', wanted a level that works on this machine"
    with pytest.raises(ConfigError, match=wanted + r"\. namespaces: not here; bubblewrap: not here\. Allow user name"):
        Sandbox(SandboxConfig(minimum_level="bubblewrap"))


@linux
def test_a_canary_that_gets_out_refuses_the_level(monkeypatch):
    monkeypatch.setattr(canary, "wanted", lambda level: {"write scratch": False})
    with pytest.raises(ConfigError, match="the canary can write scratch"):
        Sandbox(SandboxConfig())


def test_landlock_alone_needs_a_kernel_that_refuses_to_truncate(monkeypatch):
    monkeypatch.setattr(landlock, "version", lambda: 2)
    wanted = r"landlock: the kernel offers version 2, wanted 3 or later \(Linux 6\.2\)"
    with pytest.raises(OSError, match=wanted):
        landlock.require_alone()
    monkeypatch.setattr(landlock, "version", lambda: 3)
    landlock.require_alone()


def test_limits_alone_are_taken_when_asked_for_and_warned_of(monkeypatch, caplog):
    real = sandbox_module.Zygote

    def limits_only(level, *arguments) -> Zygote:
        if level != Level.LIMITS:
            raise ZygoteError("not here")
        return real(level, *arguments)

    monkeypatch.setattr(sandbox_module, "Zygote", limits_only)
    # Where Python lies in a folder of root's alone, the job's own user cannot import; this is not the point here.
    monkeypatch.setattr(canary, "wanted", lambda level: {"write scratch": True})
    with caplog.at_level(logging.WARNING), Sandbox(UNSAFE) as sandbox:
        assert sandbox.level == Level.LIMITS
        assert set(sandbox.refusals) == {Level.NAMESPACES, Level.BUBBLEWRAP, Level.LANDLOCK}
        assert sandbox.run(["/bin/sh", "-c", "echo x"], limits=sandbox.limits(10.0)).stdout == b"x\n"
    assert "WITHOUT confinement" in caplog.text


def test_another_system_than_linux_has_no_confinement():
    program = (
        "import sys\nsys.platform = 'darwin'\n"
        "from grpo_jax.config import ConfigError\nfrom grpo_jax.config.sandbox import SandboxConfig\n"
        "from grpo_jax.verifiers.sandbox.sandbox import Sandbox\n"
        "try: Sandbox(SandboxConfig())\nexcept ConfigError as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "landlock: confinement needs Linux" in ran.stdout


@pytest.mark.parametrize(
    ("maps", "user"),
    [
        ([(0, 2**32 - 1)], 0x60000000 + 77),
        ([(0, 65536)], 61000 + 77),
        ([(0, 1)], None),
        ([(0, 1), (1, 65536)], 61000 + 77),
    ],
)
def test_root_gives_each_job_a_user_that_exists(monkeypatch, maps, user):
    monkeypatch.setattr(confine.os, "geteuid", lambda: 0)
    monkeypatch.setattr(system, "IS_LINUX", True)
    monkeypatch.setattr(system, "identity_maps", lambda: maps)
    assert confine.job_user(77) == user


def test_an_ordinary_user_stays_one(monkeypatch):
    monkeypatch.setattr(confine.os, "geteuid", lambda: 1000)
    assert confine.job_user(77) is None


@pytest.mark.parametrize(
    ("section", "changes", "message"),
    [
        (SandboxConfig(), {"allow_unsafe": True}, r"x\.allow_unsafe: got True, wanted True exactly if minimum_level"),
        (SandboxConfig(), {"minimum_level": "limits"}, r"x\.allow_unsafe: got False"),
        (SandboxConfig(), {"memory_mebibytes": 8}, r"x\.memory_mebibytes: got 8, wanted 64 or more"),
        (SandboxConfig(), {"processes": 0}, r"x\.processes: got 0"),
        (SandboxConfig(), {"start_seconds": 0.0}, r"x\.start_seconds: got 0\.0"),
        (CodeConfig(), {"case_seconds": 9.0}, r"x\.case_seconds: got 9\.0, wanted at most total_seconds \(4\.0\)"),
        (CodeConfig(), {"float_tolerance": -1.0}, r"x\.float_tolerance: got -1\.0"),
        (CodeConfig(), {"max_code_characters": 0}, r"x\.max_code_characters: got 0"),
        (LintConfig(), {"seconds": 0.0}, r"x\.seconds: got 0\.0"),
        (LintConfig(), {"required_arguments": ("a",)}, r"x\.required_arguments: got \('a',\), wanted \(\)"),
        (LintConfig(), {"language": "c", "forbidden_calls": ("gets",)}, r"x\.forbidden_calls: .* language is 'c'"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(section, changes, message):
    section.validate("x")
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(section, **changes).validate("x")


def test_unknown_levels_are_refused():
    with pytest.raises(ConfigError, match="got 'docker', wanted one of 'namespaces', 'bubblewrap'"):
        from_nested(SandboxConfig, {"minimum_level": "docker"}, "x")
