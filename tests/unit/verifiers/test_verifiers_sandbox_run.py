import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from grpo_jax.config.sandbox import SandboxConfig
from grpo_jax.verifiers.code.trial import CANDIDATE, PROGRAMS, SCRIPT
from grpo_jax.verifiers.sandbox.contracts import ConversationOverError, Ending, Level, SandboxError
from grpo_jax.verifiers.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox confines on Linux only")

CONFIG = SandboxConfig(memory_mebibytes=128, file_mebibytes=2, processes=8, output_kibibytes=64)


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(CONFIG, programs=PROGRAMS) as sandbox:
        yield sandbox


def shell(sandbox, script: str, wall_seconds: float = 10.0, **keywords):
    return sandbox.run(["/bin/sh", "-c", script], limits=sandbox.limits(wall_seconds), **keywords)


def test_a_command_gets_its_input_and_files_and_gives_its_output_and_files(sandbox):
    execution = shell(
        sandbox,
        "cat; cat given/file >&2; echo made > made; exit 3",
        stdin=b"input",
        files={"given/file": b"content"},
        collect=["made", "given/file", "missing"],
    )
    assert (execution.exit_code, execution.stdout, execution.stderr) == (3, b"input", b"content")
    assert execution.files == {"made": b"made\n", "given/file": b"content"}
    assert not execution.timed_out
    assert 0 < execution.seconds < 10


def test_each_command_gets_a_fresh_folder(sandbox):
    assert shell(sandbox, "echo x > left").exit_code == 0
    assert shell(sandbox, "ls -A").stdout == b""


def test_the_environment_is_the_given_one_and_a_few_defaults(sandbox, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "secret")
    lines = shell(sandbox, "env", environment={"GIVEN": "1"}).stdout.decode().splitlines()
    assert {line.partition("=")[0] for line in lines} <= {
        "GIVEN", "HOME", "LANG", "PATH", "PWD", "PYTHONHASHSEED", "SHLVL", "TMPDIR", "_",
    }  # fmt: skip
    assert "GIVEN=1" in lines


def test_a_signal_shows_in_the_exit_code(sandbox):
    assert shell(sandbox, "kill -SEGV $$").exit_code == -signal.SIGSEGV


def test_the_wall_deadline_ends_it_with_all_that_it_started(sandbox):
    began = time.monotonic()
    execution = shell(sandbox, "sleep 7654.5 & sleep 7654.5", wall_seconds=0.3)
    assert (execution.timed_out, execution.exit_code) == (True, None)
    assert time.monotonic() - began < 5
    commands = [path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")]
    assert not any(b"7654.5" in command for command in commands)


def test_a_process_left_behind_neither_lives_on_nor_holds_up(sandbox):
    execution = shell(sandbox, "setsid sleep 7655.5 & echo done")
    assert (execution.exit_code, execution.stdout) == (0, b"done\n")
    assert execution.seconds < 5


def test_output_past_the_limit_ends_it(sandbox):
    execution = shell(sandbox, "yes")
    assert (execution.output_truncated, execution.exit_code) == (True, None)
    assert len(execution.stdout) == 64 * 1024


def test_a_large_input_is_taken_and_one_that_nobody_reads_does_no_harm(sandbox):
    assert shell(sandbox, "wc -c", stdin=bytes(10**6)).stdout.strip() == b"1000000"
    assert shell(sandbox, "exit 0", stdin=bytes(10**6)).exit_code == 0


def test_files_past_the_limits_are_not_written_or_not_collected(sandbox):
    script = "head -c 9000000 /dev/zero > written; wc -c < written"
    assert int(shell(sandbox, script).stdout) <= 2 * 2**20
    script = "head -c 70000 /dev/zero > large; head -c 60000 /dev/zero > small"
    assert shell(sandbox, script, collect=["large", "small"]).files == {"small": bytes(60000)}


def test_memory_of_all_processes_together_is_limited(sandbox):
    program = (
        "import os, time\nfor _ in range(4):\n  if os.fork() == 0:\n    x = b'x' * (50 << 20)\n    time.sleep(60)\n"
        "time.sleep(60)\n"
    )
    execution = sandbox.run_python(SCRIPT, limits=sandbox.limits(20.0), files={"solution.py": program.encode()})
    assert (execution.out_of_memory, execution.exit_code) == (True, None)


def test_cpu_time_is_limited_apart_from_wall_time(sandbox):
    limits = sandbox.limits(20.0, cpu_seconds=0.5)
    execution = sandbox.run(["/bin/sh", "-c", "while :; do :; done"], limits=limits)
    assert execution.exit_code == -signal.SIGXCPU
    assert execution.seconds < 15


def test_a_missing_program_is_the_judge_s_fault(sandbox):
    with pytest.raises(SandboxError, match=r"cannot start: FileNotFoundError"):
        sandbox.run(["no-such-program"], limits=sandbox.limits(5.0))


def test_more_memory_than_the_worker_has_is_given_by_root_or_refused():
    program = (
        "import resource\nfrom grpo_jax.config.sandbox import SandboxConfig\n"
        "from grpo_jax.verifiers.sandbox.contracts import SandboxError\n"
        "from grpo_jax.verifiers.sandbox.sandbox import Sandbox\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "with Sandbox(SandboxConfig()) as sandbox:\n"
        "  try: print(sandbox.run(['/bin/true'], limits=sandbox.limits(5.0, memory_bytes=2 << 30)).exit_code)\n"
        "  except SandboxError as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "0" or "a job may use 2147483648 bytes of memory, but its worker" in ran.stdout


def test_names_of_files_are_checked(sandbox):
    with pytest.raises(ValueError, match=r"got file name '\.\./x'"):
        shell(sandbox, "true", files={"../x": b""})
    with pytest.raises(ValueError, match="got file name '/etc/passwd'"):
        shell(sandbox, "true", collect=["/etc/passwd"])


def test_a_conversation_says_why_it_is_over(sandbox):
    endings = {}
    for name, source, seconds in (
        ("crash", "import os; os.abort()", 5.0),
        ("time", "while True: pass", 0.3),
        ("output", "import os\nwhile True: os.write(4, b'x' * 1000)", 5.0),
        ("protocol", "import os, time; os.write(4, b']\\n'); time.sleep(60)", 5.0),
        ("closed", "x = 1", 5.0),
    ):
        with sandbox.converse(CANDIDATE, limits=sandbox.limits(10.0)) as program:
            if name == "closed":
                program.close()
            with pytest.raises(ConversationOverError) as over:
                program.ask({"source": source}, seconds)
            with pytest.raises(ConversationOverError):
                program.ask({}, seconds)
            endings[name] = over.value.ending
    assert endings == {
        "crash": Ending.CRASHED,
        "time": Ending.TIME,
        "output": Ending.OUTPUT,
        "protocol": Ending.PROTOCOL,
        "closed": Ending.CLOSED,
    }


def test_two_conversations_at_a_time_do_not_mix(sandbox):
    limits = sandbox.limits(10.0)
    with sandbox.converse(CANDIDATE, limits=limits) as one, sandbox.converse(CANDIDATE, limits=limits) as other:
        for number, program in enumerate((one, other)):
            program.ask({"source": f"x = {number}"}, 5.0)
        replies = [program.ask({"name": "x"}, 5.0) for program in (one, other)]
    assert replies == [{"value": 0}, {"value": 1}]


def test_a_dead_zygote_is_replaced():
    with Sandbox(CONFIG) as sandbox:
        os.kill(sandbox._zygote._process.pid, signal.SIGKILL)
        sandbox._zygote._process.wait()
        assert shell(sandbox, "echo again").stdout == b"again\n"
        assert sandbox.statistics().restarts == 1


def test_a_stopped_zygote_is_an_error_and_is_replaced(monkeypatch):
    monkeypatch.setattr("grpo_jax.verifiers.sandbox.job.END_SECONDS", 0.3)
    with Sandbox(CONFIG) as sandbox:
        os.kill(sandbox._zygote._process.pid, signal.SIGSTOP)
        with pytest.raises(SandboxError, match="processes of a job are left"):
            shell(sandbox, "true", wall_seconds=0.2)
        assert shell(sandbox, "echo again").stdout == b"again\n"


def test_everything_ends_with_a_worker_that_is_killed(tmp_path):
    program = (
        "from grpo_jax.config.sandbox import SandboxConfig\n"
        "from grpo_jax.verifiers.sandbox.sandbox import Sandbox\n"
        "sandbox = Sandbox(SandboxConfig())\n"
        "print('ready', flush=True)\n"
        "sandbox.run(['/bin/sh', '-c', 'setsid sleep 7656.5 & sleep 7656.5'], limits=sandbox.limits(60.0))\n"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"ready\n"

    def left() -> list[bytes]:
        commands = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                commands.append(path.read_bytes())
            except OSError:
                continue
        return [command for command in commands if b"7656.5" in command or str(tmp_path).encode() in command]

    patience = time.monotonic() + 20
    while not any(b"7656.5" in command for command in left()) and time.monotonic() < patience:
        time.sleep(0.02)
    assert any(b"7656.5" in command for command in left())
    worker.kill()
    worker.wait()
    worker.stdout.close()
    while left() and time.monotonic() < patience:
        time.sleep(0.02)
    assert left() == []


def test_statistics_count_executions_and_timeouts():
    with Sandbox(CONFIG) as sandbox:
        shell(sandbox, "true")
        shell(sandbox, "sleep 60", wall_seconds=0.2)
        assert (sandbox.statistics().executions, sandbox.statistics().timeouts) == (2, 1)
        assert sandbox.level in list(Level)
