import pytest

from grpo_jax.config import ConfigError, RunConfig
from grpo_jax.forensics import scenario
from grpo_jax.forensics.static import Dtypes
from grpo_jax.models.presets import preset
from grpo_jax.rollout.engine import length_bucket


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ("llama3.1-70b", 70e9),
        ("smollm2-135m", 135e6),
        ("qwen3-30b-a3b", 30e9),
        ("qwen2.5-0.5b", 0.5e9),
        ("mistral-7b-v0.3", 7e9),
        ("deepseek-v3", 671e9),
        ("nameless", 5.0),
    ],
)
def test_the_number_that_a_model_goes_by(model, wanted):
    assert scenario.said_parameters(model, 5) == wanted


@pytest.mark.parametrize(("tokens", "prompt"), [(16384, 8192), (24576, 8192), (32768, 16384), (1000, 256)])
def test_a_scenario_has_the_tokens_that_were_asked_for(tokens, prompt):
    mesh = scenario.parse_mesh("fsdp=4, tensor=2")
    values = scenario.scenario("llama3-8b", "ppo", tokens, mesh, rows=3)
    config = scenario.with_defaults(RunConfig(), values, {"model.remat": "none"})
    config.validate()
    assert config.data.max_prompt_tokens == length_bucket(prompt) == prompt
    assert config.data.max_prompt_tokens + config.rollout.max_new_tokens == tokens
    assert config.algorithm.micro_batch_completions == 3 * 4
    assert (config.recipe, config.mesh.tensor, config.model.remat) == ("ppo", 2, "none")


def test_the_plain_mesh_splits_heads_as_far_as_they_go():
    sizes = lambda model, devices, host: [  # noqa: E731
        scenario.default_mesh(preset(model), devices, host)[axis] for axis in ("fsdp", "tensor")
    ]
    assert sizes("llama3-70b", 64, 8) == [8, 8]
    assert sizes("qwen2.5-0.5b", 8, 8) == [4, 2]
    assert sizes("smollm2-135m", 1, 1) == [1, 1]
    assert sizes("deepseek-v3", 256, 8) == [32, 8]


@pytest.mark.parametrize("text", ["fsdp", "fsdp=0", "depth=2", "fsdp=-1", "fsdp=2;tensor=2"])
def test_other_meshes_are_refused(text):
    with pytest.raises(ConfigError, match=r"--mesh: got .*, wanted AXIS=SIZE,\.\.\. of data, fsdp, tensor"):
        scenario.parse_mesh(text)


def test_a_claim_stands_beside_the_sum():
    figures = lambda model, dtypes: scenario.static_figures(model, 1, "ppo", 8, None, dtypes)  # noqa: E731
    published = scenario.dtypes_of("deepseek-v3", {"gradients": None})
    assert published.weights == published.reference == "float8_e4m3fn"
    assert figures("deepseek-v3", published)["claim"] == {"total_gb": 14_800.0, "reproduced": False}
    assert figures("llama3-70b", Dtypes())["claim"] is None
    nothing = Dtypes("none", "none", "none", "none", "none")
    assert figures("deepseek-v3", nothing)["claim"]["reproduced"] is False
