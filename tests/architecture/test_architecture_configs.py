"""Every ready configuration lowers on 8 devices from shapes alone, and holds what the documentation says."""

import json

import pytest

from benchmarks import config_memory

NAMES = tuple(config_memory.names())
FIGURES = json.loads(config_memory.FIGURES.read_text())
REMEDY = "run python -m benchmarks.config_memory"


def test_all_configurations_are_found():
    files = {f"{path.name}" for path in (config_memory.DOCS.parent / "configs").glob("*.py")}
    assert {name.partition(":")[0] for name in NAMES} == files - {"__init__.py", "prompts.py"}
    assert set(FIGURES) == set(NAMES), REMEDY


@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_lowers_and_holds_the_bytes_of_the_documentation(name):
    held = config_memory.measured(name)
    print(name, held)
    # The page shows thousandths of a GiB.
    assert held == pytest.approx(FIGURES[name], abs=2**20), REMEDY


def test_the_page_shows_the_figures():
    text = config_memory.PAGE.read_text()
    assert config_memory.page(FIGURES, text) == text, REMEDY
    assert "| `qwen_gsm8k.py:qwen2.5-0.5b` | 1.840 | 1.840 | 3.681 |" in text
