"""The runs that benchmarks/accelerator.py measures."""

import dataclasses
import importlib
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from grpo_jax.config import ModelConfig, RunConfig, from_nested
from grpo_jax.forensics.scenario import with_defaults
from grpo_jax.models.presets import preset
from grpo_jax.models.spec import ModelSpec
from grpo_jax.records import Completion, Problem, Verdict
from grpo_jax.training.collect import Judge

CHECKS = "checks"
"""The case that compares numbers and measures no speed."""

CASES = {
    CHECKS: 60,
    "quickstart": 60,
    "smollm2_135m": 75,
    "qwen2.5-1.5b": 150,
    "qwen2.5-1.5b-small": 30,
}
"""Cases, with the seconds without which none is begun: compiling and a step or two."""

MODEL, SMALL = "qwen2.5-1.5b", "-small"
"""The random model, and what marks the small one in its place."""

ROW_TOKENS, SMALL_ROW_TOKENS = 8192, 128
"""Tokens of a prompt and its completion, half each."""


class AlternatingJudge:
    """Has completions judged, and then gives every other one of a problem its reward: all groups take part."""

    def __init__(self, judge: Judge) -> None:
        """Wraps the judge whose time counts."""
        self._judge, self._seen = judge, dict[str, int]()

    def submit(self, problem: Problem, completion: Completion) -> Future[Verdict]:
        """Queues one completion."""
        turn = self._seen[problem.identifier] = self._seen.get(problem.identifier, 0) + 1
        judged, given = self._judge.submit(problem, completion), Future[Verdict]()

        def pass_on(future: Future[Verdict]) -> None:
            try:
                given.set_result(dataclasses.replace(future.result(), reward=float(turn % 2), error=False))
            except Exception as error:
                given.set_exception(error)

        judged.add_done_callback(pass_on)
        return given

    def metrics(self) -> Mapping[str, float]:
        """What is logged of the judge itself."""
        return self._judge.metrics()


def configured(case: str, compute_dtype: str, device_bytes: int | None = None) -> RunConfig:
    """The run that a case measures: every completion has its full length, and nothing but steps is done.

    Args:
        case: One of ``CASES`` but the checks.
        compute_dtype: Of the policy.
        device_bytes: What the device has, or None where it does not say.

    Returns:
        The configuration.
    """
    if case.startswith(MODEL):
        config = from_nested(RunConfig, {"model": random_model(preset(MODEL))})
        tokens = ROW_TOKENS if case == MODEL else SMALL_ROW_TOKENS
        values = long_rows(tokens) | ({} if case == MODEL else SMALL_MODEL)
    else:
        loaded = importlib.import_module(f"configs.{case}")
        config, values = from_nested(RunConfig, loaded.get_config().to_dict()), {}
    endless = 10**6
    steady = {
        "steps": endless,
        "evaluation.every_steps": endless,
        "cold_start.steps": 0,
        "rollout.stop": (),
        "model.compute_dtype": compute_dtype,
    }
    roomy = device_bytes is None or device_bytes >= ROOMY_BYTES
    if case == MODEL and compute_dtype == "bfloat16" and not roomy:
        values |= LEAN
    return with_defaults(config, values | steady, {})


def random_model(spec: ModelSpec) -> dict[str, Any]:
    """The model section for random weights of an architecture."""
    fields = {field.name for field in dataclasses.fields(ModelConfig)} & {
        field.name for field in dataclasses.fields(ModelSpec)
    }
    return {name: getattr(spec, name) for name in fields - {"rope_scaling", "lora"}}


ROOMY_BYTES = 44 * 10**9
"""What the random model takes with everything in float32, and a little."""

LEAN = {
    "algorithm.micro_batch_completions": 1,
    "optimizer.gradient_dtype": "bfloat16",
    "optimizer.moments_dtype": "bfloat16",
}
"""What makes it fit where there is less."""

SMALL_MODEL = {
    "model.num_layers": 2,
    "model.d_model": 64,
    "model.num_heads": 4,
    "model.head_dim": 16,
    "model.d_ff": 128,
    "model.vocab_size": 512,
    "rollout.prompts_per_step": 2,
    "rollout.completions_per_prompt": 2,
}
"""What a processor can do in seconds."""


def long_rows(tokens: int) -> dict[str, Any]:
    """A run whose prompts and completions have half of so many tokens each, by dotted key."""
    # Bytes are tokens; a number of two digits and what stands behind it take a dozen of them.
    filler = "x" * (tokens // 2 - 16)
    return {
        "data.tokenizer": "bytes",
        "data.task": "addition",
        "data.digits": 2,
        "data.prompt_template": f"{filler}{{problem}}=",
        "data.max_prompt_tokens": tokens // 2,
        "rollout.max_new_tokens": tokens // 2,
        "rollout.prompts_per_step": 4,
        "rollout.completions_per_prompt": 8,
        "rollout.decode_chunk_tokens": 256,
        "algorithm.micro_batch_completions": 2,
        "model.remat": "full",
    }
