"""Everything a user can get wrong is found before anything is compiled, and said in one message."""

import json
from pathlib import Path
from typing import Any

import jax
import pytest

from grpo_jax.config import ConfigError, RunConfig, from_nested
from grpo_jax.training import setup

ROWS = [{"problem": f"{a}+{b}", "answer": a + b} for a in range(10) for b in range(10)]


def config(**sections: dict[str, Any]) -> RunConfig:
    """A small run with some sections changed; one device."""
    small = {
        "mesh": {"data": 8},
        "data": {"prompt_template": "{problem}=", "max_prompt_tokens": 9, "digits": 2},
        "rollout": {"prompts_per_step": 8, "completions_per_prompt": 4},
        "algorithm": {"micro_batch_completions": 8},
    }
    merged = {name: small.get(name, {}) | sections.get(name, {}) for name in small.keys() | sections.keys()}
    return from_nested(RunConfig, merged)


def file(folder: Path, rows: list[Any]) -> dict[str, Any]:
    """The data section for a file with these rows."""
    path = folder / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" if not isinstance(row, str) else f"{row}\n" for row in rows))
    return {"task": "file", "path": str(path), "digits": 3, "validation_problems": 2, "test_problems": 2}


@pytest.fixture(autouse=True)
def nothing_is_compiled() -> Any:
    compiled: list[str] = []

    def note(event: str, duration: float, **_: Any) -> None:
        if "backend_compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    yield
    jax.monitoring.unregister_event_duration_listener(note)
    assert not compiled


def test_a_good_config_is_built() -> None:
    parts = setup.build(config())
    assert parts.spec.vocab_size == parts.tokenizer.vocab_size == 32
    assert parts.mesh.shape["data"] == 8
    assert len(parts.task.problems("validation")) == 256


def test_a_good_file_is_built(tmp_path: Path) -> None:
    parts = setup.build(config(data=file(tmp_path, ROWS)))
    assert sum(len(parts.task.problems(split)) for split in ("train", "validation", "test")) <= 100


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"vocab_size": 16}}, r"config\.model\.vocab_size: got 16, wanted at least the tokenizer's 32"),
        ({"data": {"max_prompt_tokens": 5}}, r"config\.data\.max_prompt_tokens: got 5"),
        ({"data": {"tokenizer": "charcters"}}, r"charcters"),
        ({"data": {"tokenizer": "absent/tokenizer.json"}}, r"absent/tokenizer\.json"),
        ({"data": {"task": "file", "path": "absent.jsonl"}}, r"absent\.jsonl"),
        ({"data": {"prompt_template": "Solve {problem}!"}}, r"'S'"),
        ({"rollout": {"completions_per_prompt": 1}}, r"config\.rollout\.completions_per_prompt: got 1"),
        ({"rollout": {"prompts_per_step": 4}}, r"config\.rollout\.prompts_per_step: got 4, wanted a multiple of 8"),
        ({"mesh": {"data": 3}}, r"config\.mesh: got .*wanted sizes whose product is the number of devices, 8"),
        ({"mesh": {"data": 1, "tensor": 8}}, r"config\.mesh: parameter .*wanted a multiple of 8"),
        ({"mesh": {"data": 4, "expert": 2}}, r"config\.mesh\.expert: got 2, wanted 1, since the policy has no experts"),
        ({"algorithm": {"router_replay": True}}, r"config\.algorithm\.router_replay: got True, wanted False"),
        ({"algorithm": {"router_bias_update": -1.0}}, r"config\.algorithm\.router_bias_update: got -1\.0, wanted 0 or"),
        ({"cold_start": {"steps": 1, "batch_size": 8}, "rollout": {"max_new_tokens": 5}}, r"rollout\.max_new_tokens"),
    ],
)
def test_what_a_user_gets_wrong_is_named(sections: dict[str, dict[str, Any]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        setup.build(config(**sections))


def test_malformed_rows_are_named_with_their_numbers(tmp_path: Path) -> None:
    data = file(tmp_path, [*ROWS, "{broken", {"problem": "1+1"}, {"problem": "", "answer": 1}])
    with pytest.raises(ConfigError, match=r"(?s)101.*102.*103"):
        setup.build(config(data=data))
    assert setup.build(config(data=data | {"bad_rows": "skip"}))


def test_a_file_has_no_worked_examples(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.cold_start\.steps.*no worked examples"):
        setup.build(config(data=file(tmp_path, ROWS), cold_start={"steps": 1}))


def test_a_stop_that_the_tokenizer_cannot_write_is_refused() -> None:
    assert setup.build(config(rollout={"stop": ("=",)})).config.rollout.stop == ("=",)
    with pytest.raises(ConfigError, match=r"config\.rollout\.stop: '\\n' would never be found: the characters tok"):
        setup.build(config(rollout={"stop": ("\n",)}))
