"""Starts a run again where it stopped, when a process of it was lost; works around srun as well.

    python launch/supervisor.py -- python launch/local_multiprocess.py --processes 2 -- \
        python -m grpo_jax.train --config configs/quickstart.py --workdir runs/two

The command must end all its processes when one ends, and must name its --workdir, so that it goes on from the newest
checkpoint. It is started again after status 74 (stuck), 75 (a process was lost), 134 (aborted) and 137 (killed), and
never after another one: those do not go away by themselves. SIGTERM and Ctrl-C are passed on and end the supervision.
"""

import argparse
import pathlib
import signal
import subprocess
import sys
import time

RESTARTABLE = (74, 75, 134, 137)


def checkpoints(command: list[str]) -> set[pathlib.Path]:
    """What the run has saved so far."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--workdir", type=pathlib.Path)
    workdir = parser.parse_known_args([word for word in command if word != "--"])[0].workdir
    if workdir is None:
        sys.exit("launch/supervisor.py: the command names no --workdir, so each start would begin a new run")
    return {path for path in workdir.glob("checkpoints/*/*") if path.name.isdecimal()}


def main() -> int:
    """Runs the command line; see above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--restarts", type=int, default=3, help="at most so many without a new checkpoint in between")
    parser.add_argument("--pause_seconds", type=float, default=1.0, help="before each restart")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    saved, restarts, stopping = checkpoints(options.command), 0, False
    running: list[subprocess.Popen] = []

    def stop(number: int, _: object) -> None:
        nonlocal stopping
        stopping = True
        for process in running:
            process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    while True:
        # A session of its own: a Ctrl-C of the terminal comes once, through here.
        running[:] = [subprocess.Popen(options.command, start_new_session=True)]
        returned = running[0].wait()
        status = returned if returned >= 0 else 128 - returned
        now = checkpoints(options.command)
        restarts, saved = (restarts, saved) if now <= saved else (0, now)
        if status not in RESTARTABLE or stopping or restarts == options.restarts:
            return status
        restarts += 1
        print(f"supervisor: status {status}, restart {restarts} of {options.restarts}", file=sys.stderr, flush=True)
        time.sleep(options.pause_seconds)


if __name__ == "__main__":
    sys.exit(main())
