"""One process on each node of a Ray cluster, with all GPUs or TPU chips of the node.

    ray job submit --working-dir . -- python launch/ray_job.py --nodes 4 --gpus 8 -- \
        python -m grpo_jax.train --config configs/qwen_math.py --workdir /shared/runs/math --config.mesh.fsdp=8

Ray waits for as many nodes and starts the processes, which then talk to each other directly. --workdir lies on a file
system that all share. Once one is lost all end, and start again after 74, 75, 134 or 137. `ray job stop` saves nothing.
Where the cluster asks for a token, RAY_AUTH_MODE=token before `ray job submit` sends that of ~/.ray/auth_token.
"""

import argparse
import socket
import subprocess
import sys

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

RESTARTABLE = (74, 75, 134, 137)


def free_address() -> str:
    """An address of this node that nobody listens to."""
    with socket.socket() as free:
        free.bind(("", 0))
        return f"{ray.util.get_node_ip_address()}:{free.getsockname()[1]}"


def train(command: list[str]) -> int:
    """One process of the run, until it ends."""
    status = subprocess.run(command, check=False).returncode
    return status if status >= 0 else 128 - status


def _status(ended: ray.ObjectRef) -> int:
    try:
        return ray.get(ended)
    except ray.exceptions.RayError as error:
        print(f"launch/ray_job.py: {error}", file=sys.stderr)
        return 137  # The node went away.


def start(command: list[str], on_nodes: list[dict]) -> int:
    """One process on each node; returns the first status for which no restart helps, if any, else the first but 0."""
    address = ray.get(ray.remote(free_address).options(**on_nodes[0]).remote())
    shared = [f"--coordinator_address={address}", f"--num_processes={len(on_nodes)}"]
    numbered = [[*command, *shared, f"--process_id={index}"] for index in range(len(on_nodes))]
    waiting = [ray.remote(train).options(**on_nodes[index]).remote(words) for index, words in enumerate(numbered)]
    failed, ended = [], waiting
    while waiting and ended:
        ended, waiting = ray.wait(waiting, timeout=120 if failed else None)  # They end by themselves when one is lost.
        failed += [status for status in map(_status, ended) if status]
    return next((status for status in failed if status not in RESTARTABLE), failed[0] if failed else 0)


def main() -> int:
    """Runs the command line; see above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--gpus", type=int, default=0, help="of each node")
    parser.add_argument("--cpus", type=int, default=1, help="of each node")
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    needs = {"num_cpus": options.cpus, "num_gpus": options.gpus, "max_retries": 0}
    bundle = {"CPU": options.cpus} | ({"GPU": options.gpus} if options.gpus else {})
    for restart in range(options.restarts + 1):
        group = ray.util.placement_group([bundle] * options.nodes, strategy="STRICT_SPREAD")
        ray.get(group.ready())
        places = [PlacementGroupSchedulingStrategy(group, i) for i in range(options.nodes)]
        status = start(options.command, [needs | {"scheduling_strategy": place} for place in places])
        ray.util.remove_placement_group(group)
        if status not in RESTARTABLE or restart == options.restarts:
            return status
        print(f"launch/ray_job.py: status {status}, restart {restart + 1}", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
