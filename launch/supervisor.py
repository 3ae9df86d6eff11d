"""Starts a run again where it stopped, when a process of it was lost; works around srun as well.

    python launch/supervisor.py --restarts 20 -- python launch/local_multiprocess.py --processes 2 -- \
        python -m grpo_jax.train --config configs/quickstart.py --workdir runs/two

The command must end all its processes when one ends, and must name its --workdir, so that it goes on from the newest
checkpoint. It is started again after status 74 (stuck), 75 (a process was lost), 134 (aborted) and 137 (killed), and
never after another one: those do not go away by themselves. SIGTERM and Ctrl-C are passed on and end the supervision.
"""

import argparse
import signal
import subprocess
import sys
import time

RESTARTABLE = (74, 75, 134, 137)


def main() -> int:
    """Runs the command line; see above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--restarts", type=int, default=20, help="at most so many, over the whole run")
    parser.add_argument("--pause_seconds", type=float, default=1.0, help="before each restart")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not any(part.startswith("--workdir") for part in command):
        parser.error("the command names no --workdir: each start would begin a new run")
    stopping: list[int] = []
    running: list[subprocess.Popen] = []

    def stop(number: int, _: object) -> None:
        stopping.append(number)
        for process in running:
            process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    for restart in range(options.restarts + 1):
        # A session of its own: a Ctrl-C of the terminal comes once, through here.
        running[:] = [subprocess.Popen(command, start_new_session=True)]
        returned = running[0].wait()
        status = returned if returned >= 0 else 128 - returned
        if status not in RESTARTABLE or stopping or restart == options.restarts:
            return status
        print(f"supervisor: status {status}, restart {restart + 1} of {options.restarts}", file=sys.stderr, flush=True)
        time.sleep(options.pause_seconds)
    return status


if __name__ == "__main__":
    sys.exit(main())
