"""Several processes of one run on this machine, as they would be on several hosts.

    python launch/local_multiprocess.py --processes 2 --cpu_devices 2 -- python -m grpo_jax.train \
        --config configs/quickstart.py --workdir runs/two

Without --cpu_devices every process sees the accelerators that its environment shows it. Ctrl-C or SIGTERM is passed
on. When one process fails, the others get a few seconds to notice by themselves and are then killed. The exit status is
the first one for which starting again would not help, if there is any, else the first that is not 0.
"""

import argparse
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time

RESTARTABLE = (74, 75, 134, 137)


def free_port() -> int:
    """A port that nobody listens to, outside the range from which outgoing connections take theirs."""
    while True:
        port = random.randint(20_000, 32_000)
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("", port))
            return port


def start(command: list[str], processes: int, cpu_devices: int | None) -> list[subprocess.Popen]:
    """Starts the command once for each process, in sessions of their own, with the flags of grpo_jax.train added."""
    environment = dict(os.environ)
    if cpu_devices is not None:
        environment |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(cpu_devices)}
    shared = [f"--coordinator_address=localhost:{free_port()}", f"--num_processes={processes}"]
    return [
        subprocess.Popen([*command, *shared, f"--process_id={index}"], env=environment, start_new_session=True)
        for index in range(processes)
    ]


def wait(group: list[subprocess.Popen], grace_seconds: float) -> int:
    """Waits until all have ended; once one has failed, the others have ``grace_seconds`` left."""
    expires = float("inf")
    while any(process.poll() is None for process in group):
        if any(process.poll() for process in group):
            expires = min(expires, time.monotonic() + grace_seconds)
        if time.monotonic() > expires:
            break
        time.sleep(0.05)
    ended = [process.returncode for process in group if process.poll() is not None]
    for process in group:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    failed = [status if status > 0 else 128 - status for status in ended if status]
    return next((status for status in failed if status not in RESTARTABLE), failed[0] if failed else 0)


def main() -> int:
    """Runs the command line; see above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--cpu_devices", type=int, help="virtual CPU devices in each process")
    parser.add_argument("--grace_seconds", type=float, default=10)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if options.processes < 1:
        parser.error("--processes: wanted 1 or more")
    group = start(options.command, options.processes, options.cpu_devices)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: [one.send_signal(got) for one in group if one.poll() is None])
    return wait(group, options.grace_seconds)


if __name__ == "__main__":
    sys.exit(main())
