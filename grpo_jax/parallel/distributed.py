"""A run of several processes: how they find each other, where they meet, and how all end when one is lost.

The processes run one program on one mesh. Each holds the devices of its host; whatever the host decides is decided from
values that all of them have.
"""

import contextlib
import itertools
import os
import re
import sys
import traceback
import typing
from collections.abc import Callable, Iterator

import jax

# The coordination service's barrier says who is missing; the public barrier, a collective, does not.
from jax._src.distributed import global_state

from grpo_jax.config import ConfigError, WatchdogConfig

PEER_LOST = 75
"""Exit status of a process that ends because another one of its run is gone."""

_LOST_WORDS = ("UNAVAILABLE", "ABORTED", "CANCELLED", "DEADLINE_EXCEEDED", "gloo", "nccl", "connection", "coordination")
"""What collectives and the coordination service say when a process is gone."""

_COLLECTIVE_FAILED = re.compile(r"[A-Z_]+: .*\b(?:Gloo|NCCL|nccl)")
"""A collective that fails while its program is being started raises ValueError."""

_barrier_number = itertools.count()
_barrier_seconds = 0
_last_words: list[Callable[[], object]] = []


class PeerLost(RuntimeError):  # noqa: N818
    """Another process of this run is gone, or did not come where all have to meet."""

    exit_status = PEER_LOST


def start(
    config: WatchdogConfig,
    *,
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    detect: bool = False,
) -> None:
    """Makes this process one of a run of several, if the command line says so; nothing of JAX may have run before.

    Args:
        config: How long to wait for the others.
        coordinator_address: ``host:port`` of process 0, with the next two arguments or none of them.
        num_processes: Processes of the run.
        process_id: Which of them this one is, counted from 0.
        detect: Ask the environment instead: Slurm, Open MPI, a TPU pod, Kubernetes.

    Raises:
        ConfigError: if the arguments do not go together, or there is nothing to detect.
        PeerLost: if the others do not come in time.
    """
    address = (coordinator_address, num_processes, process_id)
    given = [value is not None for value in address]
    if any(given) and (not all(given) or detect):
        raise ConfigError(
            f"--coordinator_address, --num_processes, --process_id: got {address}, wanted all three, and no "
            "--distributed beside them."
        )
    if coordinator_address is not None and not re.fullmatch(r"(\[[^]]+\]|[^:]+):\d{1,5}", coordinator_address):
        raise ConfigError(f"--coordinator_address: got {coordinator_address!r}, wanted HOST:PORT of process 0.")
    if num_processes is not None and process_id is not None and not 0 <= process_id < num_processes:
        raise ConfigError(
            f"--process_id: got {process_id} of --num_processes {num_processes}, wanted 0 to one less than that number."
        )
    if not any(given) and not detect:
        return
    global _barrier_seconds  # noqa: PLW0603
    _barrier_seconds = config.barrier_seconds
    if "JAX_CPU_COLLECTIVES_IMPLEMENTATION" not in os.environ:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # The run turns SIGTERM into a step that all agree on by itself.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            *address,
            cluster_detection_method=None if detect else "deactivate",
            initialization_timeout=config.connect_seconds,
            heartbeat_timeout_seconds=config.heartbeat_seconds,
            shutdown_timeout_seconds=config.heartbeat_seconds,
        )
    except ValueError as error:
        raise ConfigError(
            f"--distributed: {error} No Slurm, Open MPI, TPU pod or Kubernetes job was found around this process, or "
            "the address is none. Give --coordinator_address, --num_processes and --process_id."
        ) from error
    except RuntimeError as error:
        raise PeerLost(f"the {num_processes or ''} processes did not find each other: {error}") from error


def barrier(name: str) -> None:
    """Waits until every process is here; all of them pass the same barriers in the same order.

    Args:
        name: Where this is, for the message.

    Raises:
        PeerLost: naming the processes that did not come within ``watchdog.barrier_seconds``.
    """
    if jax.process_count() == 1:
        return
    assert global_state.client is not None, "several processes have a coordination service"
    try:
        global_state.client.wait_at_barrier(f"{name} ({next(_barrier_number)})", _barrier_seconds * 1000)
    except jax.errors.JaxRuntimeError as error:
        missing = re.search(r"timed out task names:\s*(\d[\d\s]*)", str(error))
        who = f"process {', '.join(missing[1].split())} did not come" if missing else str(error)
        raise PeerLost(
            f"process {jax.process_index()} waited for the others at '{name}' for {_barrier_seconds} seconds "
            f"(config.watchdog.barrier_seconds): {who}"
        ) from error


@contextlib.contextmanager
def before_leaving(action: Callable[[], object]) -> Iterator[None]:
    """Has something done before ``leaving_at_once`` ends this process inside the context.

    Args:
        action: Needs neither devices nor other processes: some may be gone. What it raises is shown.
    """
    _last_words.append(action)
    try:
        yield
    finally:
        _last_words.remove(action)


@contextlib.contextmanager
def leaving_at_once() -> Iterator[None]:
    """Ends this process when something is raised that the others do not know of.

    An exception with an ``exit_status`` is raised by all of them, unless it says that it is ``only_here``. Such a one,
    one without a status, or the loss of a process would leave this one waiting for the others, or them for it: it is
    shown, and the process ends without a farewell.
    """
    try:
        yield
    except BaseException as error:
        status = getattr(error, "exit_status", 1)
        agreed = hasattr(error, "exit_status") and status != PEER_LOST and not _is_only_here(error)
        if jax.process_count() == 1 or agreed or isinstance(error, SystemExit):
            raise
        lost = is_loss(error)
        _show(error)
        if lost:
            print(f"error: process {jax.process_index()} lost another process of the run", file=sys.stderr)
        for action in reversed(_last_words):
            try:
                action()
            except Exception as another:
                if another is not error:
                    _show(another)
        leave(PEER_LOST if lost else 130 if isinstance(error, KeyboardInterrupt) else status)


def _is_only_here(error: BaseException) -> bool:
    return getattr(error, "only_here", False)


def _show(error: BaseException) -> None:
    if _is_only_here(error):
        print(f"error: process {jax.process_index()}: {error}", file=sys.stderr)
    else:
        traceback.print_exception(error)


def is_loss(error: BaseException) -> bool:
    """Whether an exception, or what caused it, says that another process is gone."""
    at: BaseException | None = error
    while at is not None:
        words = str(at).lower()
        if isinstance(at, PeerLost):
            return True
        if isinstance(at, jax.errors.JaxRuntimeError) and any(word.lower() in words for word in _LOST_WORDS):
            return True
        if isinstance(at, ValueError) and _COLLECTIVE_FAILED.match(str(at)):
            return True
        at = at.__cause__ or at.__context__
    return False


def leave(status: int) -> typing.NoReturn:
    """Ends the process now; in a run of several the usual end would wait for all of them."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
