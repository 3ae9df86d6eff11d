import os
import signal
import subprocess
import sys
import time

import pytest

from grpo_jax.verifiers.keeper import Keeper, kill_group


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    kill_group(process.pid)
    process.wait()


def test_what_is_in_care_ends_with_the_keeper(sleeper):
    keeper = Keeper()
    keeper.add(sleeper.pid)
    keeper.close()
    assert sleeper.wait(30) == -signal.SIGKILL


def test_what_was_let_go_lives_on(sleeper):
    keeper = Keeper()
    keeper.add(sleeper.pid)
    keeper.remove(sleeper.pid)
    keeper.close()
    time.sleep(0.1)
    assert sleeper.poll() is None


def test_a_killed_keeper_is_replaced_with_all_it_knew(sleeper):
    keeper = Keeper()
    keeper.add(sleeper.pid)
    first = keeper._process
    first.kill()
    first.wait()
    keeper.remove(os.getpid() + 10**6)
    assert keeper._process is not first
    keeper.close()
    assert sleeper.wait(30) == -signal.SIGKILL


def test_a_killed_parent_takes_the_group_along():
    script = (
        "import subprocess, sys, time\n"
        "from grpo_jax.verifiers.keeper import Keeper\n"
        "group = subprocess.Popen(['sh', '-c', 'sleep 600 & echo $!; wait'], stdout=sys.stdout,"
        " start_new_session=True)\n"
        "Keeper().add(group.pid)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        words = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
        child = int((words - {"ready"}).pop())
        os.kill(child, 0)
        parent.kill()
        # Its end of the pipe closes with the last process that holds it: the grandchild.
        assert parent.stdout.read() == ""
