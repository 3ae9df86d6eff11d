"""Trains the quickstart with GRPO and with PPO from one cold start, and prints what each costs as JSON.

python -m benchmarks.ppo_vs_grpo [--steps 40] [--seed 0] [--kl_beta 0.0]

Both see the same problems in the same order, with the same number of completions, micro-batches and updates, and the
same KL weight. Bytes of state are those of all its arrays; bytes of the update are XLA's for the compiled program.
CPU seconds are user plus system time of this process by phase, summed over the steps after the first, which compiles;
waiting for the verifier's process costs none.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

from configs import quickstart, quickstart_ppo
from grpo_jax.config import RunConfig, from_nested
from grpo_jax.data.loader import PromptLoader
from grpo_jax.rollout.engine import SamplingParams
from grpo_jax.rollout.jax_engine import JaxEngine
from grpo_jax.training import cold_start, collect, evaluation, setup
from grpo_jax.training.recipe import Recipe, init_sharded
from grpo_jax.training.trainer import RECIPES
from grpo_jax.verifiers.pool import VerifierPool

PHASES = ("rollout", "prepare", "update")


def main() -> None:
    """Runs the benchmark and prints its JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cold_start_steps", type=int, default=1400)
    parser.add_argument("--kl_beta", type=float, default=0.0, help="above 0, both hold a reference")
    arguments = parser.parse_args()
    configs = run_configs(arguments)
    parts = setup.build(configs["grpo"])
    verifier = parts.config.verifier
    with jax.set_mesh(parts.mesh), VerifierPool(verifier, verifier.workers, verifier.deadline_seconds) as judge:
        params = warmed_up(parts)
        result = {
            name: Contender(dataclasses.replace(parts, config=config), judge).measure(params)
            for name, config in configs.items()
        }
    print(json.dumps({**vars(arguments), **result, "ppo_over_grpo": ratios(result)}, indent=2))


def run_configs(arguments: argparse.Namespace) -> dict[str, RunConfig]:
    """The two quickstarts, with whatever concerns both made equal."""
    made = {}
    for name, config in {"grpo": quickstart.get_config(), "ppo": quickstart_ppo.get_config()}.items():
        config.steps, config.seed, config.cold_start.steps = arguments.steps, arguments.seed, arguments.cold_start_steps
        (config.algorithm if name == "grpo" else config.ppo).kl_beta = arguments.kl_beta
        made[name] = from_nested(RunConfig, config.to_dict())
        made[name].validate()
    return made


def warmed_up(parts: setup.Parts) -> Any:
    """Parameters after the supervised cold start, on the host, since each recipe gives its buffers away."""
    recipe = cold_start.make_recipe(parts.config, parts.spec)
    loader = setup.demonstrations(parts.config, parts.task, parts.tokenizer)
    state = jax.jit(recipe.init)(init_sharded(jax.random.key(parts.config.seed), parts.spec))
    for _ in range(parts.config.cold_start.steps):
        state, _ = recipe.update(state, recipe.prepare(state, next(loader))[0])
    return jax.device_get(state.params), jax.tree.map(lambda leaf: leaf.sharding, state.params)


class Contender:
    """One recipe on the quickstart."""

    def __init__(self, parts: setup.Parts, judge: VerifierPool) -> None:
        """Makes an engine of its own.

        Args:
            parts: The run.
            judge: Judges completions.
        """
        self._parts, self._config, self._judge = parts, parts.config, judge
        rollout, tokenizer = parts.config.rollout, parts.tokenizer
        self._engine = JaxEngine(
            parts.spec,
            eos_ids=tokenizer.eos_ids,
            pad_id=tokenizer.pad_id,
            batch_completions=rollout.prompts_per_step * rollout.completions_per_prompt,
            chunk_tokens=rollout.decode_chunk_tokens,
        )

    def measure(self, params: Any) -> dict[str, Any]:
        """Trains from these parameters.

        Args:
            params: Host arrays and their shardings.

        Returns:
            Bytes, CPU seconds, tokens and pass rates.
        """
        recipe: Recipe = RECIPES[self._config.recipe](self._config, self._parts.spec)
        state: Any = jax.jit(recipe.init)(jax.device_put(*params))
        state_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
        before = self._pass_rate(state)
        loader = PromptLoader(
            self._parts.task.problems("train"), self._config.rollout.prompts_per_step, self._config.seed
        )
        seconds, tokens, update_bytes = dict.fromkeys(PHASES, 0.0), {"sampled": 0, "trained": 0}, {}
        for step in range(1, self._config.steps + 1):
            marks = [time.process_time()]
            self._engine.sync(state.params, step)
            collected = self._collect(next(loader), jax.random.key(step))
            marks.append(time.process_time())
            batch, prepared = recipe.prepare(state, collected.rollout, self._outcome(collected), step)
            jax.block_until_ready(batch)
            marks.append(time.process_time())
            state, _ = recipe.update(state, batch)
            jax.block_until_ready(state)
            marks.append(time.process_time())
            tokens["sampled"] += int(collected.rollout.length_BG.sum())
            tokens["trained"] += int(prepared["trained_tokens"])
            if step == 1:
                update_bytes = compiled_bytes(recipe, state, batch)
                continue
            for name, began, ended in zip(PHASES, marks, marks[1:], strict=False):
                seconds[name] += ended - began
        return {
            "state_bytes": state_bytes,
            "update_bytes": update_bytes,
            "cpu_seconds": {name: round(value, 2) for name, value in seconds.items()},
            "tokens": tokens,
            "held_out_pass_at_1": {"before": round(before, 4), "after": round(self._pass_rate(state), 4)},
        }

    def _collect(self, problems: Any, key: jax.Array, samples: int | None = None) -> collect.Collected:
        rollout = self._config.rollout
        sampling = SamplingParams(
            samples or rollout.completions_per_prompt, rollout.max_new_tokens, rollout.temperature
        )
        return collect.collect(self._engine, self._judge, self._parts.tokenizer, problems, sampling=sampling, key=key)

    def _outcome(self, collected: collect.Collected) -> Any:
        return collected.outcome(self._config.verifier.rewards)

    def _pass_rate(self, state: Any) -> float:
        """Share of right answers to the test problems."""
        self._engine.sync(state.params, 0)
        samples = self._config.evaluation.test_samples_per_problem
        collected = self._collect(self._parts.task.problems("test"), jax.random.key(self._config.seed), samples)
        return evaluation.pass_at_k(collected.correct_BG, collected.valid_BG, 1)


def compiled_bytes(recipe: Recipe, state: Any, batch: Any) -> dict[str, int]:
    """What XLA sets aside for one update."""
    update: Any = recipe.update
    memory = update.func.lower(state, batch, **update.keywords).compile().memory_analysis()
    return {
        "arguments": memory.argument_size_in_bytes,
        "temporary": memory.temp_size_in_bytes,
        "outputs": memory.output_size_in_bytes,
        "reused": memory.alias_size_in_bytes,
    }


def ratios(result: Mapping[str, Any]) -> dict[str, float | None]:
    """What PPO costs in units of what GRPO costs; None where GRPO had nothing to update on."""

    def ratio(cost: Callable[[Mapping[str, Any]], float]) -> float | None:
        ppo, grpo = cost(result["ppo"]), cost(result["grpo"])
        return round(ppo / grpo, 3) if grpo else None

    return {
        "state_bytes": ratio(lambda one: one["state_bytes"]),
        "update_temporary_bytes": ratio(lambda one: one["update_bytes"]["temporary"]),
        "update_cpu_seconds": ratio(lambda one: one["cpu_seconds"]["update"]),
        "update_cpu_seconds_per_trained_token": ratio(
            lambda one: one["cpu_seconds"]["update"] / max(one["tokens"]["trained"], 1)
        ),
        "cpu_seconds_per_sampled_token": ratio(
            lambda one: sum(one["cpu_seconds"].values()) / max(one["tokens"]["sampled"], 1)
        ),
    }


if __name__ == "__main__":
    main()
