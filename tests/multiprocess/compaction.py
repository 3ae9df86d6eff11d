"""One process of ``test_multiprocess_compaction``: updates in which some processes hold no row that takes part."""

import sys

import jax
import numpy as np

from grpo_jax.training import recipe
from tests.contract import updates
from tests.multiprocess import processes


def main() -> None:
    """Compares the update of each loss on the command line with that of a single device."""
    processes.join()
    jax.config.update("jax_numpy_rank_promotion", "raise")
    assert jax.process_count() == 2
    assert len(jax.devices()) == 4
    results = {}
    for name in sys.argv[1:]:
        with updates.on_mesh(data=2, fsdp=2):
            got = updates.updated(name, micro_batch=16)
        with updates.on_mesh():
            updates.assert_same_update(got, name, micro_batch=16)
            rows = int(np.sum(updates.masked(name)[-1] > 0))
        results[name] = {"rows": rows, "loss": float(got[1]["loss"]), "grad_norm": float(got[1]["grad_norm"])}
    with updates.on_mesh(data=2, fsdp=2):
        gradient, metrics = updates.updated("grpo", 16, nothing_to_learn())
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(gradient))
    results["nothing"] = {name: float(metrics[name]) for name in ("micro_batches", "skipped_update")}
    processes.report(results)


def nothing_to_learn() -> recipe.Outcome:
    """Every completion of every group is equally right."""
    outcome = updates.outcome("grpo")
    return outcome._replace(reward_BG=np.ones_like(outcome.reward_BG), part_BGK=np.ones_like(outcome.part_BGK))


if __name__ == "__main__":
    main()
