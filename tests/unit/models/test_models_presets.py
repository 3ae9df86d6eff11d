"""Published models have the numbers of parameters that are published for them."""

import dataclasses

import pytest

from grpo_jax.models import parameters
from grpo_jax.models.presets import PRESETS, preset, preset_of
from grpo_jax.models.spec import RopeScaling

PARAMETERS = {
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3.1-8b": 8_030_261_248,
    "llama3.1-70b": 70_553_706_496,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-math-1.5b": 1_543_714_304,
    "qwen2.5-math-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "gemma3-270m": 268_098_176,
    "gemma3-1b": 999_885_952,
    "mixtral-8x7b": 46_702_792_704,
    "qwen3-30b-a3b": 30_532_122_624,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200,
}
ACTIVE_BILLIONS = {"mixtral-8x7b": 12.9, "qwen3-30b-a3b": 3.3, "deepseek-v3": 37, "llama3-8b": 8.03}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_published_number_of_parameters(name):
    assert parameters.count(preset(name)) == PARAMETERS[name]


@pytest.mark.parametrize("name", ACTIVE_BILLIONS)
def test_a_token_visits_the_published_number_of_parameters(name):
    # Published figures are rounded, and some leave the embedding out.
    assert parameters.count(preset(name), active=True) / 1e9 == pytest.approx(ACTIVE_BILLIONS[name], rel=0.02)


def test_presets_carry_what_does_not_change_the_count():
    assert preset("llama3.1-8b").rope_scaling == RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)
    assert preset("mistral-7b-v0.1").windows == (4096,) * 32
    assert preset("mistral-7b-v0.3").windows == ()
    assert preset("smollm2-135m").rope_theta == 1e5
    assert preset("gemma3-1b").windows == ((512,) * 5 + (0,)) * 4 + (512, 512)
    deepseek = preset("deepseek-v3")
    assert deepseek.rope_scaling is not None
    assert deepseek.rope_scaling.amplitude == 1
    assert deepseek.query_scale == pytest.approx(192**-0.5 * 1.3689**2, rel=1e-4)
    assert hash(dataclasses.replace(deepseek, remat="full")) != hash(deepseek)


def test_an_unknown_preset_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match=r"preset: got 'qwen3-8', wanted one of .*Did you mean qwen3-8b"):
        preset("qwen3-8")


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("models/Qwen2.5-0.5B-Instruct", "qwen2.5-0.5b"),
        ("/data/Qwen2.5-7B/", "qwen2.5-7b"),
        ("Qwen2.5-72B", "qwen2.5-72b"),
        ("Qwen2.5-Math-7B-Instruct", "qwen2.5-math-7b"),
        ("Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("Llama-3.1-8B-Instruct", "llama3.1-8b"),
        ("SmolLM2-135M-Instruct", "smollm2-135m"),
        ("gemma-3-1b-it", "gemma3-1b"),
        ("DeepSeek-V3", "deepseek-v3"),
    ],
)
def test_a_folder_is_told_by_its_name(folder, name):
    assert preset_of(folder) == name


@pytest.mark.parametrize("folder", ["models/phi-4", "Qwen2.5-5B", "models"])
def test_a_folder_of_another_name_is_refused(folder):
    with pytest.raises(ValueError, match=rf"config\.model\.path: {folder} is not here, and its name is none of llama3"):
        preset_of(folder)
