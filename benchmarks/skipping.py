"""Times the update against the share of groups without variance, and prints JSON.

python benchmarks/skipping.py [--repeats 5]

A random Llama (4 layers, d 256) and 8 groups of 8 completions, of which 0, 2, 4 or 6 groups have equal rewards. The CPU
seconds of reference scoring and update should fall with the active share, plus a constant for the optimizer.
"""

import argparse
import json
import statistics
import time

import jax
import numpy as np

from grpo_jax.config import AlgorithmConfig, OptimizerConfig, RolloutConfig, RunConfig
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import mesh
from grpo_jax.rollout.engine import Rollout
from grpo_jax.training import grpo
from grpo_jax.training.recipe import Outcome, init_sharded

GROUPS, COMPLETIONS, PROMPT_TOKENS, NEW_TOKENS, VOCABULARY = 8, 8, 32, 96, 4096
COLLAPSED_SHARES = (0.0, 0.25, 0.5, 0.75)


def main() -> None:
    """Runs the benchmark and prints its JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    spec = ModelSpec(
        vocab_size=VOCABULARY, num_layers=4, d_model=256, num_heads=8, num_kv_heads=4, head_dim=32, d_ff=1024
    )
    config = RunConfig(
        rollout=RolloutConfig(prompts_per_step=GROUPS, completions_per_prompt=COMPLETIONS, max_new_tokens=NEW_TOKENS),
        algorithm=AlgorithmConfig(kl_beta=0.04, micro_batch_completions=4),
        optimizer=OptimizerConfig(learning_rate=1e-6),
    )
    with jax.set_mesh(mesh.make_mesh(dict.fromkeys(mesh.AXES, 1), jax.devices()[:1])):
        recipe = grpo.make_recipe(config, spec)
        state = jax.jit(recipe.init)(init_sharded(jax.random.key(0), spec))
        rollout = random_rollout()
        seconds: dict[float, list[float]] = {share: [] for share in COLLAPSED_SHARES}
        # Shares take turns, so that whatever else the machine does falls on all of them alike.
        for _ in range(repeats + 1):
            for share in COLLAPSED_SHARES:
                began = time.process_time()
                batch, _ = recipe.prepare(state, rollout, outcome(share), 1)
                state, _ = recipe.update(state, batch)
                jax.block_until_ready(state)
                seconds[share].append(time.process_time() - began)
    median = {share: statistics.median(values[1:]) for share, values in seconds.items()}
    active, cost = np.array([1 - share for share in median]), np.array(list(median.values()))
    slope, constant = np.polyfit(active, cost, 1)
    print(
        json.dumps(
            {
                "cpu_seconds": {str(share): round(value, 3) for share, value in median.items()},
                "ratio_to_full": {str(share): round(value / median[0.0], 3) for share, value in median.items()},
                "fit": {"constant_seconds": round(constant, 3), "seconds_for_all_groups": round(slope, 3)},
                "largest_deviation_from_fit": round(float(np.max(np.abs(slope * active + constant - cost) / cost)), 3),
            },
            indent=2,
        )
    )


def random_rollout() -> Rollout:
    """Completions of full length."""
    random = np.random.default_rng(0)
    shape = (GROUPS, COMPLETIONS, NEW_TOKENS)
    return Rollout(
        prompt_BP=random.integers(1, VOCABULARY, (GROUPS, PROMPT_TOKENS)).astype(np.int32),
        prompt_length_B=np.full(GROUPS, PROMPT_TOKENS, np.int32),
        token_BGT=random.integers(1, VOCABULARY, shape).astype(np.int32),
        logprob_BGT=np.full(shape, -np.log(VOCABULARY), np.float32),
        length_BG=np.full(shape[:2], NEW_TOKENS, np.int32),
        finish_BG=np.ones(shape[:2], np.int32),
        policy_version=0,
    )


def outcome(collapsed_share: float) -> Outcome:
    """Rewards that are equal within the first groups and differ within the others."""
    reward_BG = np.tile(np.arange(COMPLETIONS, dtype=np.float32) % 2, (GROUPS, 1))
    reward_BG[: round(collapsed_share * GROUPS)] = 1
    return Outcome(reward_BG, reward_BG[:, :, None], np.ones_like(reward_BG, bool))


if __name__ == "__main__":
    main()
