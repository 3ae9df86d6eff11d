"""Configuration: every key is consumed or refused, and refusals say what to change."""

import dataclasses
from pathlib import Path

import pytest

from configs import base
from grpo_jax.config import ConfigError, RunConfig, VerifierConfig, dotted, from_nested, require_key, to_nested
from grpo_jax.config.mathematics import MathematicsConfig
from grpo_jax.config.sandbox import SandboxConfig
from grpo_jax.config.values import FOREIGN_NAMES


def changed(path: str, value: object) -> RunConfig:
    """The default configuration with one key changed."""
    nested: dict = {}
    inner = nested
    *sections, name = path.split(".")
    for section in sections:
        inner = inner.setdefault(section, {})
    inner[name] = value
    return from_nested(RunConfig, nested)


def test_keys_that_other_names_lead_to_exist() -> None:
    assert set(FOREIGN_NAMES.values()) <= dotted(to_nested(RunConfig())).keys()
    assert not set(FOREIGN_NAMES) & {key.rpartition(".")[2] for key in dotted(to_nested(RunConfig()))}


def test_base_lists_every_key_with_its_default() -> None:
    assert from_nested(RunConfig, base.get_config().to_dict()) == RunConfig()
    assert base.get_config().to_dict() == to_nested(RunConfig())


def test_every_key_of_base_has_a_comment_or_is_self_explaining() -> None:
    lines = Path(base.__file__).read_text().splitlines()
    assert sum("#" in line for line in lines) > 55


def test_round_trip() -> None:
    config = changed("verifier.rewards", ["numeric", "format"])
    assert from_nested(RunConfig, to_nested(config)) == config
    assert config.verifier.rewards == ("numeric", "format")


def test_configs_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        RunConfig().seed = 1  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("model.num_layer", 3, r"config\.model\.num_layer: no such key\. Did you mean 'num_layers'\?"),
        ("learning_rate", 3, r"Did you mean optimizer\.learning_rate or .*cold_start\.optimizer\.learning_rate"),
        (
            "rollout.num_generations",
            3,
            r"num_generations: no such key\. Did you mean rollout\.completions_per_prompt\?",
        ),
        ("rolout.top_k", 3, r"config\.rolout: no such key\. Did you mean 'rollout'\?"),
        ("data.answer_format", "gsm", r"wanted one of 'plain', 'gsm8k', 'boxed'\. Did you mean 'gsm8k'"),
        ("steps", "many", r"config\.steps: got 'many', wanted a value of type int"),
        ("steps", True, r"config\.steps: got True, wanted a value of type int"),
        ("steps", 1.5, r"config\.steps: got 1\.5"),
        ("rollout", 3, r"config\.rollout: got 3, wanted a section with the keys"),
        ("algorithm.old_logprobs", "sampled", r"wanted one of 'sampler', 'trainer'\. Did you mean 'sampler'\?"),
        ("verifier.rewards", ("exact",), r"config\.verifier\.rewards\[0\]: got 'exact', wanted one of 'numeric'"),
        ("verifier.weights", 1.0, r"config\.verifier\.weights: got 1\.0, wanted a sequence"),
    ],
)
def test_unknown_keys_and_wrong_types_are_refused(path: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        changed(path, value)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("rollout.completions_per_prompt", 1, r"config\.rollout\.completions_per_prompt: got 1, wanted 2 or more\."),
        ("rollout.temperature", 0.0, r"config\.rollout\.temperature: got 0\.0, wanted a positive number"),
        ("rollout.batch_prompts", 33, r"config\.rollout\.batch_prompts: got 33, wanted 0 .* to prompts_per_step, 32"),
        ("rollout.batch_prompts", -1, r"config\.rollout\.batch_prompts: got -1, wanted 0"),
        ("rollout.top_p", 1.5, r"config\.rollout\.top_p: got 1\.5, wanted a share"),
        ("rollout.stop", ("",), r"config\.rollout\.stop: got \('',\), wanted texts of one character or more"),
        ("rollout.stop", ("ab", "b"), r"wanted no text that holds another one, as 'ab' does\. It is never read"),
        ("rollout.stop", ("b", "b"), r"wanted each text once"),
        ("rollout.stop", ("</answer>",), r"rollout\.stop: got '</answer>', wanted texts that no answer block holds"),
        ("rollout.stop", ("\ufffd",), r"config\.rollout\.stop: got '\ufffd', wanted whole characters of Unicode"),
        ("rollout.stop", ("\ud800",), r"wanted whole characters of Unicode"),
        ("rollout.stop", ("x" * 257,), r"wanted at most 256 characters in all"),
        ("data.maximum_examples", 3, r"wanted 2, its default: it is only read when data\.task is 'maximum'"),
        ("data.maximum_examples", 17, r"config\.data\.maximum_examples: got 17, wanted 0 to 16"),
        ("algorithm.micro_batch_completions", 7, r"a divisor of the 256 completions of a step"),
        ("algorithm.kl_beta", -0.1, r"config\.algorithm\.kl_beta: got -0\.1"),
        ("model.num_kv_heads", 3, r"a divisor of num_heads \(4\)"),
        ("model.head_dim", 15, r"wanted an even number"),
        ("model.rope_scaling_factor", 8.0, r"wanted 1, since rope_scaling is 'none'"),
        ("data.path", "x.jsonl", r"config\.data\.path: got 'x\.jsonl', wanted None, since data\.task is 'addition'"),
        ("data.test_path", "x.jsonl", r"config\.data\.test_path: got 'x\.jsonl', wanted None, since data\.task is"),
        (
            "data.problem_column",
            "question",
            r"wanted 'problem', since data\.task is 'addition'\. Set data\.task to 'file'",
        ),
        ("data.answer_column", "", r"config\.data\.answer_column: got '', wanted "),
        ("data.answer_format", "boxed", r"config\.data\.answer_format: got 'boxed', wanted 'plain', since data\.task"),
        ("data.task", "file", r"config\.data\.path: got None, wanted a \.jsonl, \.json, \.csv or \.parquet"),
        ("data.prompt_template", "no hole", r"a text with '\{problem\}' in it"),
        ("verifier.weights", (1.0, 1.0), r"one weight for each of the 1 rewards"),
        ("verifier.weights", (float("nan"),), r"finite"),
        ("mesh.fsdp", -1, r"at most one axis of -1"),
        ("optimizer.b1", 1.0, r"config\.optimizer\.b1: got 1\.0, wanted less than 1"),
        ("cold_start.optimizer.learning_rate", 0.0, r"config\.cold_start\.optimizer\.learning_rate"),
        ("seed", -1, r"config\.seed: got -1"),
        ("steps", 10**20, r"config\.steps: got 1000+, wanted 0 or more, and less than 2\^31"),
        ("rollout.max_new_tokens", 2**24, r"config\.rollout\.max_new_tokens: got 16777216, wanted less than 2\^24"),
        ("data.max_prompt_tokens", 2**24, r"config\.data\.max_prompt_tokens: got 16777216, wanted less than 2\^24"),
        ("model.vocab_size", 2**24, r"config\.model\.vocab_size: got 16777216, wanted less than 2\^24"),
    ],
)
def test_values_that_cannot_work_are_refused(path: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        changed(path, value).validate()


def test_require_key() -> None:
    require_key(RunConfig, "cold_start.optimizer.b1")
    with pytest.raises(ConfigError, match=r"config\.cold_start\.optimizer\.b3: no such key\. Did you mean"):
        require_key(RunConfig, "cold_start.optimizer.b3")
    with pytest.raises(ConfigError, match=r"config\.steps\.x: no such key\. config\.steps is a value"):
        require_key(RunConfig, "steps.x")


def test_re_checks_are_for_addition_alone() -> None:
    run = from_nested(
        RunConfig,
        {"data": {"task": "countdown"}, "verifier": {"rewards": ["countdown"]}, "cold_start": {"max_passes": 2}},
    )
    with pytest.raises(ConfigError, match=r"config\.cold_start\.max_passes: got 2, wanted 1, since only the examples"):
        run.validate()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gates": ("format",)}, r"verifier\.gates: got \('format',\), wanted some of the rewards"),
        ({"gates": ("numeric",)}, r"wanted some of the rewards \('numeric',\), but not all of them"),
        ({"rewards": ("numeric", "numeric"), "weights": (1.0, 1.0)}, r"verifier\.rewards: .* wanted each name once"),
        ({"rewards": ("function",)}, r"verifier\.function: got None, wanted FILE\.py:NAME or package\.module:NAME"),
        (
            {"function": "a.py:f"},
            r"verifier\.function: got 'a\.py:f', wanted None, since verifier\.rewards does not name",
        ),
        ({"column": "kind"}, r"verifier\.column: got 'kind', wanted 'verifier', since verifier\.rewards does not name"),
        (
            {"math": MathematicsConfig(last_box=True)},
            r"verifier\.math: .* wanted the defaults, since verifier\.rewards",
        ),
        (
            {"sandbox": SandboxConfig(processes=3)},
            r"verifier\.sandbox: .* wanted the defaults, since .* none of \('code'",
        ),
        (
            {"rewards": ("code",), "deadline_seconds": 3.0},
            r"verifier\.deadline_seconds: got 3\.0, wanted more than the 4 seconds that 'code' may take",
        ),
        ({"rewards": ("proof",), "deadline_seconds": 30.0}, r"wanted more than the 60 seconds that 'proof' may take"),
        (
            {"rewards": ("proof",), "deadline_seconds": 70.0, "worker_memory_mebibytes": 1024},
            r"verifier\.worker_memory_mebibytes: got 1024, wanted the 2048 that a program of 'proof' may use",
        ),
        (
            {"rewards": ("math",), "math": MathematicsConfig(approximation_digits=1)},
            r"math\.approximation_digits: got 1",
        ),
    ],
)
def test_verifier_settings_that_nothing_reads_or_that_clash_are_refused(changes, message) -> None:
    with pytest.raises(ConfigError, match=message):
        VerifierConfig(**changes).validate("verifier")


@pytest.mark.parametrize(
    "changes",
    [
        {"rewards": ("numeric", "format"), "weights": (1.0, 0.0), "gates": ("format",)},
        {"rewards": ("function",), "function": "a.py:f"},
        {"rewards": ("per_problem",), "column": "kind", "function": "a.py:f", "math": MathematicsConfig(last_box=True)},
        {"rewards": ("code", "lint"), "weights": (1.0, 0.1), "sandbox": SandboxConfig(processes=3)},
        {"rewards": ("proof",), "deadline_seconds": 70.0},
    ],
)
def test_verifier_settings_that_fit_together_are_taken(changes) -> None:
    VerifierConfig(**changes).validate("verifier")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"optimizer.gradient_dtype": "bfloat16"},
            r"optimizer\.gradient_dtype: got 'bfloat16', wanted 'float32'",
        ),
        ({"cold_start.optimizer.placement": "host"}, r"cold_start\.optimizer\.placement: got 'host', wanted 'device'"),
        (
            {"model.lora.rank": 2, "optimizer.placement": "host"},
            r"optimizer\.placement: got 'host', .* of adapters",
        ),
        (
            {"algorithm.kl_beta": 0.0, "reference.dtype": "int8"},
            r"reference\.dtype: got 'int8', .* no reference",
        ),
        ({"recipe": "ppo", "ppo.kl_beta": 0.0, "reference.placement": "host"}, r"since ppo\.kl_beta is 0"),
        ({"model.lora.rank": 2, "reference.placement": "host"}, r"reference\.placement: .* adapters stand beside"),
    ],
)
def test_memory_levers_that_could_not_act_are_refused(changes, message) -> None:
    nested: dict = {}
    for path, value in changes.items():
        inner = nested
        *sections, name = path.split(".")
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    with pytest.raises(ConfigError, match=message):
        from_nested(RunConfig, nested).validate()
