"""A small, single-threaded process that is forked for every job, so that none waits for an interpreter to start.

It is a fresh interpreter that never imports jax, started by a verifier's worker process and ended with it.
"""

import contextlib
import gc
import importlib
import importlib.util
import json
import os
import re
import resource
import signal
import site
import socket
import sys

from grpo_jax.verifiers import messages
from grpo_jax.verifiers.sandbox import confine, root, seccomp, supervisor, system
from grpo_jax.verifiers.sandbox.contracts import Level
from grpo_jax.verifiers.sandbox.supervisor import Place

JOB_DESCRIPTORS = (4, 6)
"""A job's socket and its three standard streams, and with a conversation its two ends."""

# Modules that programs use often, or whose shared libraries lie outside Python's folder: imported once, before forks.
# Not threading, nor what imports it: its work at every fork costs more than an import now and then.
_PRELOADED = """
bisect collections copy dataclasses datetime decimal fractions functools heapq io itertools math operator random re
string typing bz2 ctypes hashlib lzma zlib
""".split()  # noqa: SIM905


def main() -> None:
    """Serves jobs until the worker's end of the control socket closes."""
    settings = json.loads(sys.argv[2])
    control = socket.socket(fileno=settings["control"])
    control.set_inheritable(False)
    if system.IS_LINUX:
        system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        place = _settle(settings)
    except Exception as error:
        messages.send(control.fileno(), messages.encode({"failure": f"{type(error).__name__}: {error}"}))
        return
    messages.send(control.fileno(), messages.encode({"ready": True}))
    # Nobody waits for supervisors.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1, JOB_DESCRIPTORS[-1])
        if not data:
            return
        if len(descriptors) in JOB_DESCRIPTORS:
            _fork(place, control, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _settle(settings: dict) -> Place:
    # The worker's own limit is for the judge; each job gets its own. Only root may raise it, and not in every
    # container: else no job gets more than the worker has.
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    highest = min(confine.HIGHEST_DESCRIPTOR, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for name in (*_PRELOADED, *settings["programs"]):
        # A Python that was built without one of the preloaded modules lacks it for programs too.
        if name in settings["programs"] or importlib.util.find_spec(name):
            try:
                importlib.import_module(name)
            except ImportError:
                if name in settings["programs"]:
                    raise
    sys.path.remove(settings["package_root"])
    # Scripts end with exit() or quit(), which the interpreter lacks when it starts without site.
    site.setquit()
    level = Level(settings["level"])
    python = _python_paths()
    read_paths = tuple(settings["read_paths"])
    if level == Level.NAMESPACES:
        root.enter_private_root([*read_paths, *python])
    if level == Level.NAMESPACES:
        # Built before the forks, which share it.
        seccomp.program(system.MACHINE, True, 0)
    # What is here now is not looked at by any collection, which would copy it in every fork.
    gc.collect()
    gc.freeze()
    gc.disable()
    return Place(level, python, read_paths, settings["temporary"], settings["package_root"])


def _python_paths() -> tuple[str, ...]:
    """The standard library, and the folders of the shared libraries that this process has mapped."""
    paths = {os.path.realpath(os.path.dirname(os.__file__)): None}
    if system.IS_LINUX:
        with open("/proc/self/maps", encoding="utf-8") as file:
            for library in re.findall(r" (/\S+\.so\S*)$", file.read(), re.MULTILINE):
                paths[os.path.dirname(library)] = None
    return (*paths, "/etc/ld.so.cache")


def _fork(place: Place, control: socket.socket, descriptors: list[int]) -> None:
    if os.fork() != 0:
        return
    try:
        control.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        job, *streams = descriptors
        supervisor.supervise(place, job, streams)
    finally:
        os._exit(0)
