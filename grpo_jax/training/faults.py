"""Deliberate faults for tests of recovery, read from one environment variable.

``GRPO_JAX_FAULT=phase:step:action`` acts when the named phase of the named step is reached: ``kill`` ends the process
as ``kill -9`` does, ``stop`` asks it to end as SIGTERM does, ``hang`` does nothing for ever, ``raise`` raises, ``full``
lets no file grow any more, as a full disk does. With ``:process`` behind it, only that process of a run acts.
"""

import os
import re
import resource
import signal
import time

import jax

from grpo_jax.config import ConfigError

VARIABLE = "GRPO_JAX_FAULT"


ACTIONS = ("kill", "stop", "hang", "raise", "full")


def check() -> None:
    """Refuses a fault that could never happen, before the run begins.

    Raises:
        ConfigError: if the environment does not name a phase, a step and an action.
    """
    wanted = os.environ.get(VARIABLE)
    if wanted and not re.fullmatch(rf"[a-z_]+:\d+:({'|'.join(ACTIONS)})(:\d+)?", wanted):
        raise ConfigError(
            f"{VARIABLE}: got {wanted!r}, wanted PHASE:STEP:ACTION or PHASE:STEP:ACTION:PROCESS, ACTION one of "
            f"{', '.join(ACTIONS)}. It imitates faults in tests; unset it."
        )


def point(phase: str, step: int) -> None:
    """Does what the environment asks for at this phase of this step; usually nothing.

    Args:
        phase: ``cold_start``, ``rollout``, ``update``, ``evaluation`` or ``save``.
        step: Step of the phase, counted from 1.

    Raises:
        RuntimeError: if the action is ``raise``.
    """
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    wanted_phase, wanted_step, action, *process = wanted.split(":")
    if (phase, step) != (wanted_phase, int(wanted_step)) or process not in ([], [str(jax.process_index())]):
        return
    while action == "hang":
        time.sleep(1)
    if action == "raise":
        raise RuntimeError(f"{VARIABLE}={wanted}")
    if action == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        return
    os.kill(os.getpid(), signal.SIGKILL if action == "kill" else signal.SIGTERM)
