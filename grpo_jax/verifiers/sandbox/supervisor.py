"""The processes around one program: a supervisor that ends it with its lease, and with namespaces an init.

Each job is a fork of the zygote. The supervisor reads what to run from the job's socket. The same socket is the
job's lease: once the other side closes its half, everything is killed. It closes when the last process is gone.
"""

import base64
import dataclasses
import os
import signal
import tempfile
from typing import Any

from grpo_jax.verifiers import messages
from grpo_jax.verifiers.sandbox import bubblewrap, confine, landlock, program, root, scratch, system
from grpo_jax.verifiers.sandbox.confine import Confinement
from grpo_jax.verifiers.sandbox.contracts import Level, Limits

_PR_SET_CHILD_SUBREAPER = 36
_PROC_FLAGS = system.MS_NOSUID | system.MS_NODEV | system.MS_NOEXEC
_WATCH_SECONDS, _HOST_WATCH_SECONDS = 0.05, 0.25


@dataclasses.dataclass(frozen=True)
class Place:
    """What all jobs of one zygote have in common.

    Attributes:
        level: How they are confined.
        python_paths: What a Python program may read.
        read_paths: What an external program may read and run besides the system's folders.
        temporary: Folder of the host for scratch folders (not used with namespaces).
        package_root: Folder that holds this package.
    """

    level: Level
    python_paths: tuple[str, ...]
    read_paths: tuple[str, ...]
    temporary: str
    package_root: str


def supervise(place: Place, job: int, streams: list[int]) -> None:
    """Runs one job in this process, a fresh fork of the zygote, and reports on the job's socket.

    Args:
        place: The zygote's settings.
        job: The job's socket.
        streams: Standard input, output and error of the program, then the two ends of its conversation if it has one.
    """
    os.setsid()
    spec = messages.receive(job)
    if spec is None:
        return
    try:
        if place.level == Level.NAMESPACES:
            _run_in_namespaces(place, spec, job, streams)
        else:
            _run_on_host(place, spec, job, streams)
    except Exception as error:
        # Whatever it is, the worker must hear of it: it makes the verdict an error.
        _report(job, {"failure": f"{type(error).__name__}: {error}"})


def _run_in_namespaces(place: Place, spec: dict[str, Any], job: int, streams: list[int]) -> None:
    limits = Limits(**spec["limits"])
    user = confine.job_user(os.getpid())
    if user is not None:
        confine.change_user(user)
    system.new_user_namespace(system.CLONE_NEWNS | system.CLONE_NEWPID | system.CLONE_NEWIPC | system.CLONE_NEWUTS)
    options = f"mode=700,size={limits.file_bytes},nr_inodes=4096"
    system.mount("tmpfs", root.SCRATCH, "tmpfs", system.MS_NOSUID | system.MS_NODEV, options)
    init = os.fork()
    if init == 0:
        try:
            _serve_as_init(place, spec, limits, job, streams)
        except BaseException as error:
            _report(job, {"failure": f"{type(error).__name__}: {error}"})
        finally:
            os._exit(0)
    _close(streams)
    program.attend(init, job, _HOST_WATCH_SECONDS, lambda: False)
    os.kill(init, signal.SIGKILL)
    # The kernel ends this wait only after all processes of the namespace are gone.
    os.waitpid(init, 0)


def _serve_as_init(place: Place, spec: dict[str, Any], limits: Limits, job: int, streams: list[int]) -> None:
    system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL)
    system.prctl(system.PR_SET_DUMPABLE, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        system.mount("proc", "/proc", "proc", _PROC_FLAGS, "subset=pid")
        adds_up = True
    except PermissionError:
        # A container that hides parts of /proc lets nobody mount a new one: then there is none.
        system.mount("tmpfs", "/proc", "tmpfs", system.MS_RDONLY, "size=4k,mode=555")
        adds_up = False
    scratch.write_files(root.SCRATCH, _decoded(spec["files"]), None)
    spec = _at_home(spec, root.SCRATCH)
    # The supervisor and this process share the program's user and namespace, so they count towards its limit.
    confinement = Confinement(place.level, root.SCRATCH, _grants(place, spec, root.SCRATCH), limits, None, 2)
    child, trouble = program.start(spec, confinement, streams, None)
    _close(streams)
    ending = program.attend(
        child, None, _WATCH_SECONDS, lambda: adds_up and program.memory_bytes(None) > limits.memory_bytes
    )
    code = program.end(child, everyone=True)
    _report(job, _report_of(ending, code, program.heard(trouble), root.SCRATCH, spec, limits))


def _run_on_host(place: Place, spec: dict[str, Any], job: int, streams: list[int]) -> None:
    limits = Limits(**spec["limits"])
    user = confine.job_user(os.getpid())
    folder = tempfile.mkdtemp(prefix="grpo-sandbox-", dir=place.temporary)
    try:
        scratch.write_files(folder, _decoded(spec["files"]), user)
        others = 0
        if system.IS_LINUX:
            # Orphans of the program come to this process, which reaps them.
            system.prctl(_PR_SET_CHILD_SUBREAPER, 1)
            others = confine.tasks_of_user(os.getuid()) if user is None else 0
        wraps = place.level == Level.BUBBLEWRAP
        others += bubblewrap.OWN_PROCESSES if wraps else 0
        inside = root.SCRATCH if wraps else folder
        spec = _at_home(spec, inside)
        confinement = Confinement(place.level, inside, _grants(place, spec, inside), limits, user, others)
        paths = place.read_paths + place.python_paths
        wrap = bubblewrap.command(spec, confinement, folder, paths, place.package_root) if wraps else None
        child, trouble = program.start(spec, confinement, streams, wrap)
        _close(streams)
        adds_up = system.IS_LINUX and not wraps
        ending = program.attend(
            child, job, _HOST_WATCH_SECONDS, lambda: adds_up and program.memory_bytes(child) > limits.memory_bytes
        )
        code = program.end(child, everyone=False)
        _report(job, _report_of(ending, code, program.heard(trouble), folder, spec, limits))
        # Nothing runs any more, and nobody must wait for the removal of what a program has piled up.
        os.close(job)
    finally:
        scratch.remove(folder)


def _at_home(spec: dict[str, Any], folder: str) -> dict[str, Any]:
    return {**spec, "environment": {"HOME": folder, "TMPDIR": folder, **spec["environment"]}}


def _grants(place: Place, spec: dict[str, Any], folder: str) -> tuple[tuple[str, int], ...]:
    devices = [(path, landlock.WRITE_FILE) for path in root.DEVICES]
    if "program" in spec:
        return (*((path, landlock.READ) for path in place.python_paths), *devices, (folder, landlock.WRITE))
    readable = [*root.SYSTEM_FOLDERS, *place.read_paths]
    if place.level != Level.LANDLOCK:
        # The program's own namespace; on the host it would show other processes.
        readable.append("/proc")
    return (*((path, landlock.EXECUTE) for path in readable), *devices, (folder, landlock.WRITE | landlock.EXECUTE))


def _report_of(
    ending: program.Ending, code: int, trouble: str | None, folder: str, spec: dict[str, Any], limits: Limits
) -> dict[str, Any]:
    files = scratch.read_files(folder, spec["collect"], limits.output_bytes)
    return {
        "failure": trouble,
        "exit_code": code if ending == "ended" else None,
        "out_of_memory": ending == "memory",
        "files": {name: base64.b64encode(content).decode("ascii") for name, content in files.items()},
    }


def _report(job: int, report: dict[str, Any]) -> None:
    try:
        messages.send(job, messages.encode(report))
    except (BrokenPipeError, ConnectionResetError):
        # Nobody waits for it any more.
        return


def _decoded(files: dict[str, str]) -> dict[str, bytes]:
    return {name: base64.b64decode(content) for name, content in files.items()}


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
