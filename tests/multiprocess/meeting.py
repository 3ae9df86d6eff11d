"""One process of ``test_multiprocess_meeting``: what processes tell each other, and failures that reach all."""

import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from grpo_jax.config import RunConfig, from_nested
from grpo_jax.io.digest import tree_digests
from grpo_jax.parallel import distributed, exchange, mesh
from grpo_jax.training import setup
from grpo_jax.training.published import initial_params
from tests.multiprocess import processes


def main() -> None:
    """Reports what each function gives here."""
    processes.join()
    number = jax.process_index()
    results = {
        "processes": [number, jax.process_count(), jax.device_count(), exchange.is_first()],
        "everyone": exchange.everyone({"text": "ö" * (number + 1), "number": number / 3, "none": None}),
        "shares": [list(exchange.share(count)) for count in (0, 1, 5)],
        "joined": exchange.joined([[number, place] for place in exchange.share(5)]),
        "any": [exchange.any_process(flag) for flag in (False, number == 1)],
        "first": exchange.on_first(lambda: "told"),
        "elsewhere": outcome(lambda: exchange.together(lambda: fails_on(1))),
        "on first": outcome(lambda: exchange.on_first(lambda: fails_on(0))),
    }
    results["differing"] = outcome(lambda: exchange.require_same({"seed": number, "both": 1}))
    results["data"] = outcome(lambda: exchange.require_same(setup.facts(setup.build(run(number)))))
    results["arrays"] = arrays()
    results["published"] = published(Path(sys.argv[1]))
    if number == 1:
        time.sleep(processes.BARRIER_SECONDS + 2)
    results["barrier"] = outcome(lambda: distributed.barrier("the meeting")) if number == 0 else ""
    processes.report(results)


def outcome(action: Callable[[], object]) -> list[object]:
    """Kind, exit status and words of what an action raises."""
    try:
        action()
    except Exception as error:
        return [type(error).__name__, getattr(error, "exit_status", None), str(error)]
    return []


def fails_on(number: int) -> None:
    """Raises on one process only."""
    if jax.process_index() == number:
        raise FileNotFoundError("there is no such file")


def run(number: int) -> RunConfig:
    """A configuration in which each process has problems of its own."""
    return from_nested(RunConfig, {"data": {"digits": number + 2}})


def arrays() -> list[bool]:
    """Whether host arrays come back whole after they were cut over all devices."""
    array = np.arange(32.0).reshape(8, 4)
    with jax.set_mesh(mesh.make_mesh({"data": 2, "fsdp": 2, "tensor": 1, "context": 1, "expert": 1})):
        placed = [mesh.put(array, ("data", "fsdp")), mesh.put(array, None, "fsdp"), mesh.put(array)]
        return [np.array_equal(array, got) for got in mesh.fetch(placed)]


def published(folder: Path) -> dict[str, int]:
    """Digests of a published model that was read onto the devices of both processes."""
    config = from_nested(RunConfig, {"model": {"path": str(folder)}, "data": {"digits": 2}})
    config = dataclasses.replace(config, mesh=dataclasses.replace(config.mesh, data=1, fsdp=2, tensor=2))
    parts = setup.build(config)
    with jax.set_mesh(parts.mesh):
        return tree_digests(initial_params(parts.published, jax.random.key(0), parts.spec))


if __name__ == "__main__":
    main()
