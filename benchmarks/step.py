"""Times one GRPO step in CPU seconds by phase, with peak memory, and prints JSON.

python benchmarks/step.py [--steps 5] [--vocab 4096] [--logprob_chunk_tokens 1024] [--remat none]

Shape: a random Llama of 4 layers (d 256, feed-forward 1024, 8 query and 4 kv heads), 4 prompts of 32 tokens,
8 completions of 128 new tokens each, beta 0.04, AdamW, float32. CPU seconds are user plus system time of the process,
since wall time on shared cores is noise; each figure is the median over the steps after the first, which compiles.
"""

import argparse
import json
import resource
import statistics
import time
from typing import Any

import jax
import numpy as np

from grpo_jax.config import AlgorithmConfig, OptimizerConfig, RolloutConfig, RunConfig
from grpo_jax.models.spec import ModelSpec
from grpo_jax.parallel import mesh
from grpo_jax.rollout.engine import SamplingParams, assemble
from grpo_jax.rollout.jax_engine import JaxEngine
from grpo_jax.training import grpo
from grpo_jax.training.recipe import Outcome, init_sharded

PROMPTS, COMPLETIONS, PROMPT_TOKENS, NEW_TOKENS = 4, 8, 32, 128


def main() -> None:
    """Runs the benchmark and prints its JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--logprob_chunk_tokens", type=int, default=1024)
    parser.add_argument("--micro_batch", type=int, default=4)
    parser.add_argument("--remat", choices=("none", "dots", "full"), default="none")
    arguments = parser.parse_args()
    spec = ModelSpec(
        vocab_size=arguments.vocab,
        num_layers=4,
        d_model=256,
        num_heads=8,
        num_kv_heads=4,
        head_dim=32,
        d_ff=1024,
        remat=arguments.remat,
        logprob_chunk_tokens=arguments.logprob_chunk_tokens,
    )
    with jax.set_mesh(mesh.make_mesh(dict.fromkeys(mesh.AXES, 1), jax.devices()[:1])):
        print(json.dumps(measure(spec, arguments.steps, arguments.micro_batch), indent=2))


def measure(spec: ModelSpec, steps: int, micro_batch: int) -> dict[str, Any]:
    """Runs ``steps`` timed steps after one that compiles."""
    config = RunConfig(
        rollout=RolloutConfig(prompts_per_step=PROMPTS, completions_per_prompt=COMPLETIONS, max_new_tokens=NEW_TOKENS),
        algorithm=AlgorithmConfig(kl_beta=0.04, micro_batch_completions=micro_batch),
        optimizer=OptimizerConfig(learning_rate=1e-5),
    )
    recipe = grpo.make_recipe(config, spec)
    # No id ends a completion early, so every step has the same number of tokens.
    engine = JaxEngine(
        spec, eos_ids=(spec.vocab_size,), pad_id=0, batch_completions=PROMPTS * COMPLETIONS, chunk_tokens=NEW_TOKENS
    )
    sampling = SamplingParams(COMPLETIONS, NEW_TOKENS)
    random = np.random.default_rng(0)
    prompts = random.integers(1, spec.vocab_size, (PROMPTS, PROMPT_TOKENS)).tolist()
    # Rewards differ within every group: nothing is skipped.
    reward_BG = np.tile(np.arange(COMPLETIONS, dtype=np.float32) % 2, (PROMPTS, 1))
    outcome = Outcome(reward_BG, reward_BG[:, :, None], np.ones_like(reward_BG, bool))
    state = jax.jit(recipe.init)(init_sharded(jax.random.key(0), spec))
    seconds: dict[str, list[float]] = {"rollout": [], "reference": [], "update": [], "step": [], "wall": []}
    for step in range(steps + 1):
        wall, marks = time.perf_counter(), [time.process_time()]
        engine.sync(state.params, step)
        groups = list(engine.generate(prompts, sampling=sampling, key=jax.random.key(step)))
        rollout = assemble(groups, prompts, pad_id=0)
        marks.append(time.process_time())
        batch, _ = recipe.prepare(state, rollout, outcome, step + 1)
        jax.block_until_ready(batch)
        marks.append(time.process_time())
        state, metrics = recipe.update(state, batch)
        jax.block_until_ready(state)
        marks.append(time.process_time())
        for name, began, ended in zip(("rollout", "reference", "update"), marks, marks[1:], strict=False):
            seconds[name].append(ended - began)
        seconds["step"].append(marks[-1] - marks[0])
        seconds["wall"].append(time.perf_counter() - wall)
    median = {name: round(statistics.median(values[1:]), 3) for name, values in seconds.items()}
    wall_seconds = median.pop("wall")
    mismatch = float(metrics["sampling/sampling_logp_difference/max"])
    return {
        "cpu_seconds": median,
        "wall_seconds": {"step": wall_seconds, "first_step": round(seconds["wall"][0], 2)},
        # New tokens over the rollout's CPU seconds, as the peers' figures count them; and over the whole step's.
        "tokens_per_cpu_second": round(PROMPTS * COMPLETIONS * NEW_TOKENS / median["rollout"]),
        "step_tokens_per_cpu_second": round(PROMPTS * COMPLETIONS * NEW_TOKENS / median["step"]),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "compile_seconds": round(seconds["step"][0] - median["step"], 2),
        "sampler_trainer_logprob_difference_max": mismatch,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(state.params)),
        "jax": jax.__version__,
    }


if __name__ == "__main__":
    main()
