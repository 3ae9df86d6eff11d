"""What a run does: a cold start, GRPO (or PPO) with evaluations on the way, and a test on problems not seen before."""

import math
import time
from collections.abc import Mapping
from typing import Any, cast

import jax
import numpy as np

from grpo_jax.data.curriculum import CurriculumLoader
from grpo_jax.data.loader import PromptLoader
from grpo_jax.data.splits import Split
from grpo_jax.io.display import Display
from grpo_jax.io.resources import memory_metrics
from grpo_jax.io.run_folder import RunFolder
from grpo_jax.models.decoder import Parameters
from grpo_jax.parallel import distributed
from grpo_jax.records import Problem
from grpo_jax.rollout.engine import Engine, SamplingParams, sampling_params
from grpo_jax.rollout.prefixes import prefix_metrics
from grpo_jax.rollout.repetition import repetition_metrics
from grpo_jax.training import cold_start, evaluation, faults, grpo, limits, ppo, setup
from grpo_jax.training import collect as collect_lib
from grpo_jax.training.loop import Phase, Run
from grpo_jax.training.published import initial_params
from grpo_jax.training.recipe import Recipe, State
from grpo_jax.training.watchdog import Watchdog, WatchedEngine, WatchedJudge

RECIPES = {"grpo": grpo.make_recipe, "ppo": ppo.make_recipe}

LONGEST_LOOP_PERIOD_TOKENS = 64
"""Repetitions of longer blocks are not looked for."""


class Trainer:
    """One run on the mesh in use."""

    def __init__(
        self,
        parts: setup.Parts,
        folder: RunFolder,
        engine: Engine,
        judge: collect_lib.Judge,
        display: Display,
        watchdog: Watchdog,
    ) -> None:
        """Opens the run's records.

        Args:
            parts: The run.
            folder: Where its records go.
            engine: Samples.
            judge: Judges completions in the background.
            display: Shows progress.
            watchdog: Expects it.
        """
        self.parts, self.config = parts, parts.config
        self.run = Run(folder, display, watchdog, parts.spec, parts.config)
        self._engine, self._judge = WatchedEngine(engine, watchdog), WatchedJudge(judge, watchdog)
        self._display, self._watchdog = display, watchdog
        self._init_key, self._rollout_key = evaluation.run_keys(self.config.seed)[:2]

    def train(self) -> State:
        """Does what is not done yet of the run.

        Returns:
            The final state; results are in ``run.progress.results``.

        Raises:
            NonFiniteTraining: after ``algorithm.max_nonfinite_steps`` refused updates in a row.
            NothingJudged: after ``limits.UNJUDGED_STEPS`` steps in a row without a verdict.
            Stopped: after SIGTERM or Ctrl-C, with the state saved at a step boundary.
        """
        with self.run.stopping_on_signals():
            state = self.run.run(self.recipe_phase())
        self._test(state, "after")
        return state

    def sampling(self, completions_per_prompt: int) -> SamplingParams:
        """How this run draws, for training and evaluation alike."""
        return sampling_params(self.config.rollout, completions_per_prompt)

    def _cold_start_phase(self) -> Phase:
        recipe = cold_start.make_recipe(self.config, self.parts.spec)
        return Phase(
            name="cold_start",
            recipe=recipe,
            loader=setup.demonstrations(self.config, self.parts.task, self.parts.tokenizer),
            steps=self.config.cold_start.steps,
            save_every_steps=self.config.cold_start.checkpoint_every_steps,
            steps_key="cold_start.steps",
            begin=lambda: jax.jit(recipe.init)(self._fresh_params()),
            step=self._cold_start_step,
        )

    def recipe_phase(self) -> Phase:
        """The steps of the recipe: where a run begins them, and how it does one."""
        recipe = RECIPES[self.config.recipe](self.config, self.parts.spec)
        stream = (self.parts.task.problems("train"), self.config.rollout.prompts_per_step, self.config.seed)
        curriculum = self.config.curriculum
        return Phase(
            name=self.config.recipe,
            recipe=recipe,
            loader=CurriculumLoader(*stream, curriculum) if curriculum.enabled else PromptLoader(*stream),
            steps=self.config.steps,
            save_every_steps=self.config.checkpoint.every_steps,
            steps_key="steps",
            begin=lambda: self._begin(recipe),
            step=self._step,
        )

    def _begin(self, recipe: Recipe) -> State:
        if self.config.cold_start.steps > 0:
            params: Parameters = self.run.run(self._cold_start_phase()).params
        else:
            params = self._fresh_params()
        state = jax.jit(recipe.init)(params)
        self._test(state, "before")
        self._validate(state, 0)
        return state

    def _fresh_params(self) -> Parameters:
        self.run.discard_unsaved_rows()
        return initial_params(self.parts.published, self._init_key, self.parts.spec)

    def _cold_start_step(self, phase: Phase, state: State, step: int) -> State:
        faults.point("cold_start", step)
        started = time.perf_counter()
        self._watchdog.beat("update")
        batch, metrics = phase.recipe.prepare(state, next(phase.loader))
        state, updated = phase.recipe.update(state, batch)
        row = _floats(metrics | updated) | {"step_time": time.perf_counter() - started}
        self.run.metrics.write("cold_start", step, row)
        self._display.step(step, row)
        limits.watch_updates(self.run, row, self.config.algorithm.max_nonfinite_steps)
        return state

    def _step(self, phase: Phase, state: State, step: int) -> State:
        self._watchdog.beat("rollout")
        started = time.perf_counter()
        self._engine.sync(state.params, step - 1)
        faults.point("rollout", step)
        loader = cast("PromptLoader | CurriculumLoader", phase.loader)
        rollout_key = jax.random.fold_in(self._rollout_key, step)
        collected, drawn, batches = collect_lib.collect_active(
            lambda index: self._collect(next(loader), jax.random.fold_in(rollout_key, index)),
            self.config.rollout.prompts_per_step,
            self.config.algorithm.dynamic_sampling_max_batches,
            self.parts.tokenizer.pad_id,
        )
        if isinstance(loader, CurriculumLoader):
            loader.record(drawn.problems, drawn.correct_BG, drawn.valid_BG, step=step)
        self._watchdog.beat("update")
        begun = time.perf_counter()
        outcome = collected.outcome(self.config.verifier.rewards)
        batch, metrics = phase.recipe.prepare(state, collected.rollout, outcome, step)
        jax.block_until_ready(batch)
        prepared = time.perf_counter()
        for _ in range(self.config.algorithm.passes_per_batch):
            self._watchdog.beat("update")
            state, updated = phase.recipe.update(state, batch)
            metrics |= updated
        row: dict[str, Any] = (
            self._rollout_metrics(drawn, loader) | {"drawn_batches": float(batches)} | _computed(_floats(metrics))
        )
        faults.point("update", step)
        finished = time.perf_counter()
        tokens = int(drawn.rollout.length_BG.sum())
        self.run.progress.tokens += tokens
        row |= {
            "num_tokens": float(self.run.progress.tokens),
            "step_time": finished - started,
            "seconds/rollout": drawn.rollout_seconds,
            "seconds/verify": drawn.verify_seconds,
            "seconds/prepare": prepared - begun,
            "seconds/update": finished - prepared,
            "tokens_per_second/rollout": tokens / drawn.rollout_seconds,
            "tokens_per_second/update": row["trained_tokens"] / (finished - prepared),
            **memory_metrics(),
        }
        if drawn.commonest_fault:
            row["verifier/commonest_fault"] = drawn.commonest_fault
        # With one update per batch every ratio is 1, so the loss is the mean advantage: 0, and nothing to watch.
        self._display.step(step, {name: value for name, value in row.items() if name != "loss"})
        self.run.record("train", step, row)
        limits.watch_updates(self.run, row, self.config.algorithm.max_nonfinite_steps)
        limits.watch_verdicts(self.run, row)
        if step % self.config.evaluation.every_steps == 0 or step == self.config.steps:
            self._validate(state, step)
        return state

    def _collect(self, problems: list[Problem], key: jax.Array) -> collect_lib.Collected:
        return collect_lib.collect(
            self._engine,
            self._judge,
            self.parts.tokenizer,
            problems,
            sampling=self.sampling(self.config.rollout.completions_per_prompt),
            key=key,
        )

    def _rollout_metrics(
        self, drawn: collect_lib.Collected, loader: PromptLoader | CurriculumLoader
    ) -> dict[str, float]:
        rollout, algorithm = drawn.rollout, self.config.algorithm
        return {
            **collect_lib.group_metrics(drawn, self.config.verifier.rewards),
            **repetition_metrics(
                rollout.token_BGT,
                rollout.length_BG,
                n=algorithm.repetition_ngram_tokens,
                max_period=LONGEST_LOOP_PERIOD_TOKENS,
            ),
            **prefix_metrics(rollout.token_BGT, rollout.length_BG),
            **collect_lib.judge_metrics(self._judge),
            **(loader.metrics() if isinstance(loader, CurriculumLoader) else {}),
        }

    def _validate(self, state: State, step: int) -> None:
        rate = self._evaluate(state, step, "validation", self.config.evaluation.samples_per_problem)
        if rate is None:
            return
        results = self.run.progress.results
        results["validation_pass_at_1_best"] = max(rate, results.get("validation_pass_at_1_best") or 0.0)
        self._display.note(f"step {step}: held-out pass@1 {rate:.3f}")

    def _test(self, state: State, when: str) -> None:
        step = 0 if when == "before" else self.config.steps
        rate = self._evaluate(state, step, "test", self.config.evaluation.test_samples_per_problem)
        self.run.progress.results[f"test_pass_at_1_{when}"] = rate

    def _evaluate(self, state: State, step: int, split: Split, samples_per_problem: int) -> float | None:
        faults.point("evaluation", step)
        self._watchdog.beat("rollout")
        distributed.barrier(f"evaluation at step {step}")
        started = time.perf_counter()
        self._engine.sync(state.params, step)
        result = evaluation.evaluate(
            self._engine,
            self._judge,
            self.parts.tokenizer,
            self.parts.task.problems(split),
            sampling=self.sampling(samples_per_problem),
            # The same noise at every step: two evaluations differ by the policy alone.
            key=evaluation.evaluation_key(self.config.seed, split),
        )
        row = result.metrics | {
            "split": split,
            "seconds/evaluation": time.perf_counter() - started,
            "outcomes": result.outcomes,
        }
        self.run.record("evaluation", step, row)
        for sample in evaluation.samples(result.collected, self.config.evaluation.logged_samples):
            self.run.samples.write(step, {"split": split, **sample})
        errors, rate = result.metrics["eval/errors"], result.metrics["eval/pass_at_1"]
        if errors:
            self._display.note(
                f"step {step}: the judge failed on {errors:.0f} of the {split} completions, which are left out of "
                f"pass@1; most often: {result.collected.commonest_fault}"
            )
        return rate if math.isfinite(rate) else None


def _computed(metrics: dict[str, float]) -> dict[str, float]:
    """Leaves out means over no token: a step without an active group has no entropy, and 0 would look like collapse."""
    if metrics["trained_tokens"] > 0:
        return metrics
    means = ("loss", "policy_loss", "kl", "entropy", "grad_norm", "clip_ratio/", "sampling/", "experts/")
    return {name: value for name, value in metrics.items() if not name.startswith(means)}


def _floats(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(np.asarray(value)) for name, value in jax.device_get(dict(metrics)).items()}
