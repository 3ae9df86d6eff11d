"""Starting workers: what they are told first, and what they must answer before they get work."""

from collections.abc import Callable, Mapping
from typing import Any

from grpo_jax.config import VerifierConfig, to_nested
from grpo_jax.verifiers import messages
from grpo_jax.verifiers.base import UnusableVerifierError
from grpo_jax.verifiers.keeper import Keeper
from grpo_jax.verifiers.process import Worker, WorkerDiedError

START_LIMIT_SECONDS = 60.0
START_ATTEMPTS = 3


class WorkerStartError(RuntimeError):
    """Workers end, hang or talk nonsense before they are ready."""


StartWorker = Callable[[Keeper], Worker]


class Starter:
    """Starts workers for one verifier."""

    def __init__(self, verifier: VerifierConfig | str, start_worker: StartWorker, keeper: Keeper) -> None:
        """Remembers what a worker is told.

        Args:
            verifier: A configuration for ``composite.build``, or the name of a function for
                ``function.load_function``.
            start_worker: Makes a worker that has not been told anything yet.
            keeper: Ends workers should this process be killed.
        """
        config = verifier if isinstance(verifier, VerifierConfig) else VerifierConfig()
        asked = {"config": to_nested(verifier)} if isinstance(verifier, VerifierConfig) else {"function": verifier}
        self._frame = messages.encode(asked | {"memory_bytes": config.worker_memory_mebibytes * 2**20})
        self._start_worker = start_worker
        self._keeper = keeper

    def start(self) -> tuple[Worker, Mapping[str, str]]:
        """Starts a worker and waits until it is ready.

        Returns:
            The worker, and what its verifiers say of themselves.

        Raises:
            UnusableVerifierError: if the verifier says that it cannot work here.
            WorkerStartError: if that fails ``START_ATTEMPTS`` times for another reason.
        """
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                worker = self._start_worker(self._keeper)
            except OSError as error:
                failure = str(error)
            else:
                try:
                    return worker, _facts(worker.exchange(self._frame, START_LIMIT_SECONDS))
                except UnusableVerifierError:
                    worker.kill()
                    raise
                except (TimeoutError, ValueError, WorkerDiedError) as error:
                    exit_code = worker.kill()
                    failure = (
                        f"{error} (exit code {exit_code}). Check the verifier's import. The worker's last words:\n"
                        f"{worker.stderr_tail()}"
                    )
            if attempt == START_ATTEMPTS:
                raise WorkerStartError(failure)
        raise AssertionError("the last attempt returns or raises")


def _facts(reply: Any) -> Mapping[str, str]:
    if type(reply) is dict and type(reply.get("unusable")) is str:
        raise UnusableVerifierError(reply["unusable"])
    facts = reply.get("ready") if type(reply) is dict else None
    if type(facts) is not dict or any(type(fact) is not str for fact in facts.values()):
        raise ValueError(f"got {reply!r}, wanted that it is ready")
    return facts
