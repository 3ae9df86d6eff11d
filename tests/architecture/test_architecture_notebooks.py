"""Notebooks are stored as they should be: without outputs, a badge on top, an installation first, a sentence a cell."""

import json
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MAX_CELL_LINES = 25

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


def read(path: pathlib.Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def text(cell: dict) -> str:
    return "".join(cell["source"])


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["1_quickstart", "2_grpo_by_hand", "3_verifiers", "4_memory_and_mesh"]


@every_notebook
def test_no_outputs_are_stored(path):
    notebook = read(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in code] == [([], None)] * len(code)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])


@every_notebook
def test_a_badge_opens_the_notebook_in_colab(path):
    repository = re.search(r"^repo_url: https://github.com/(\S+)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert repository
    head = text(read(path)["cells"][0])
    address = f"https://colab.research.google.com/github/{repository[1]}/blob/main/notebooks/{path.name}"
    assert f"colab-badge.svg)]({address})" in head


@every_notebook
def test_the_first_code_installs_and_no_other(path):
    code = [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]
    assert text(code[0]).startswith("%pip install")
    assert [cell["metadata"].get("tags", []) for cell in code] == [["install"], *[[]] * (len(code) - 1)]
    assert not any(text(cell).startswith(("%pip", "!")) for cell in code[1:])


@every_notebook
def test_each_code_cell_is_short_and_has_a_sentence(path):
    cells = read(path)["cells"][2:]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code"] * (len(cells) // 2)
    assert all(re.fullmatch(r"[A-Z].*[^.]\.", text(cell)) for cell in cells[::2])
    assert max(text(cell).count("\n") + 1 for cell in cells[1::2]) <= MAX_CELL_LINES


@every_notebook
def test_code_imports_the_package_and_compiles(path):
    code = "\n".join(text(cell) for cell in read(path)["cells"] if cell["cell_type"] == "code")
    assert "from grpo_jax" in code
    for cell in read(path)["cells"]:
        if cell["cell_type"] == "code" and not text(cell).startswith("%"):
            compile(text(cell), path.name, "exec")
