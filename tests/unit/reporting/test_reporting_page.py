"""The page: whole, safe with hostile text, and alone in the world."""

import base64
import hashlib
import html.parser
import importlib.resources
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

from grpo_jax import report
from grpo_jax.config import ConfigError
from grpo_jax.io.metrics import read_metrics
from grpo_jax.io.run_folder import RunFolderDamaged
from grpo_jax.reporting import charts, completions
from grpo_jax.reporting.markup import VOID, Markup, element, embedded_json, table
from grpo_jax.reporting.page import comparison_page, run_page, write_report
from grpo_jax.reporting.records import read_runs
from tests.unit.reporting.made_runs import ATTACKS, make, sample

ROOT = Path(__file__).resolve().parents[3]


class Page(html.parser.HTMLParser):
    """Reads a page, checks that its elements nest, and keeps what tests ask for."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.text, self.scripts = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self.open and self.open[-1] != "style":
            self.text.append(data)

    @property
    def shown(self):
        return " ".join(" ".join(self.text).split())

    def data(self, identifier):
        [text] = [text for attributes, text in self.scripts if attributes.get("id") == identifier]
        return json.loads(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("runs") / "first <run>")


@pytest.fixture(scope="module")
def page(folder):
    return Page(run_page(*read_runs([folder])))


def test_a_report_has_its_sections(page):
    assert [attributes["id"] for tag, attributes in page.elements if tag == "section"] == [
        "result", "health", "curves", "groups", "samples", "curriculum", "memory", "setup",
    ]  # fmt: skip
    assert "first <run>" in page.shown
    assert "finished" in page.shown
    for words in (
        "difference: +", "paired bootstrap over the same 40 problems", "Truncated completions", "at the end",
        "Never above zero: clip fraction.", "3.00 GiB", "visited 300", "<b>x</b>.py", "0123456789, with changes",
        "steps: 10 to 30", "1 min 15 s",
    ):  # fmt: skip
        assert words in page.shown


def test_hostile_text_stays_text(page, folder):
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 3
    assert not {"iframe", "img", "object", "link", "base"} & set(tags)
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    data = page.data("samples-data")
    kept = [
        {key: value for key, value in row.items() if key != "row"} for row in read_metrics(folder / "samples.jsonl")
    ]
    assert sorted(data, key=str) == sorted(kept, key=str)
    assert {row["completion"] for row in data} >= set(ATTACKS)


@pytest.mark.parametrize("attack", ATTACKS)
def test_embedded_data_cannot_close_its_element(attack):
    written = embedded_json("x", [attack])
    assert written.count("<") == 2
    assert written.count("</") == 1
    assert "<!--" not in written
    assert json.loads(written.partition(">")[2].rpartition("<")[0]) == [attack]


def test_markup_escapes_text_and_attributes():
    assert element("p", "<i>", title="\"'<") == '<p title="&quot;&#x27;&lt;">&lt;i&gt;</p>'
    assert element("p", Markup("<i>")) == "<p><i></p>"
    assert "&lt;td&gt;" in table(("a",), [("<td>",)])


def test_the_page_allows_its_own_style_and_script_alone(folder):
    text = run_page(*read_runs([folder]))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1].replace("&#x27;", "'")
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    for tag in ("style", "script"):
        content = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    # An inline style would be refused by that policy.
    assert not re.search(r"<[^>]* style=", text)


def test_nothing_is_asked_of_any_network(page):
    for _, attributes in page.elements:
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
    assets = importlib.resources.files("grpo_jax.reporting").joinpath("assets")
    for name in ("report.css", "report.js"):
        text = assets.joinpath(name).read_text()
        assert not re.search(r"https?:|//\w|url\(|@import|fetch|XMLHttp|innerHTML|insertAdjacent|document\.write", text)


def test_the_assets_are_installed():
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["grpo_jax"]
    package = ROOT / "grpo_jax"
    installed = {path for pattern in data for path in package.glob(pattern)}
    assert set((package / "reporting" / "assets").iterdir()) <= installed


def test_a_run_that_goes_on_has_a_report(tmp_path):
    folder = make(tmp_path / "going", steps=12, finished=False)
    page = Page(write_report(folder).read_text())
    assert "12 of 30 steps" in page.shown
    assert "before training:" in page.shown
    assert "after training" not in page.shown


def test_a_run_without_a_step_has_a_report(tmp_path):
    folder = make(tmp_path / "new", steps=0, finished=False)
    page = Page(write_report(folder).read_text())
    assert "0 of 30 steps" in page.shown
    (folder / "metrics.jsonl").unlink()
    (folder / "run.json").unlink()
    assert "The test problems have not been tried yet." in Page(write_report(folder).read_text()).shown


def test_a_damaged_record_is_named(tmp_path):
    folder = make(tmp_path / "run")
    (folder / "run.json").write_text('{"starts": [')
    with pytest.raises(RunFolderDamaged, match=r"run\.json is no JSON .* Restore it from a copy"):
        write_report(folder)


def test_runs_are_compared(folder, tmp_path):
    other = make(tmp_path / "second", seed=7, rollout={"temperature": 0.7})
    page = Page(comparison_page(read_runs([folder, other])))
    assert "2 runs" in page.shown
    assert "against first <run>" in page.shown
    rows = [row.split() for row in re.findall(r"seed 0 7|rollout\.temperature 1\.0 0\.7", page.shown)]
    assert rows == [["seed", "0", "7"], ["rollout.temperature", "1.0", "0.7"]]
    assert {one["label"] for chart in page.data("readouts").values() for one in chart["series"]} == {
        "first <run>",
        "second",
    }


def test_folders_of_one_name_are_told_apart(tmp_path):
    folders = [make(tmp_path / name / "run") for name in ("a", "b")]
    assert [run.label for run in read_runs(folders)] == ["a/run", "b/run"]


def test_long_texts_and_many_of_them_keep_the_page_small():
    rows = [
        sample(9, step) | {"row": index, "step": step, "completion": "x" * 50_000}
        for step in (10, 20)
        for index in range(300)
    ]
    shown, left_out = completions.shown(rows)
    assert len(shown) + left_out == 600
    assert {row["step"] for row in shown} == {10, 20}
    assert shown[0]["step"] == 20
    assert sum(len(row["completion"]) for row in shown) < 1.05 * completions.MOST_CHARACTERS
    assert "[... 30,000 characters left out ...]" in shown[0]["completion"]


@pytest.mark.parametrize("values", [[0.5], [0.0, 0.0], [-3.0, 1e9], [1e-9, 2e-9], list(range(1000))])
def test_charts_of_any_values_lie_in_their_frame(values):
    series = charts.Series("a", list(range(len(values))), [float(value) for value in values])
    for chart in (
        charts.lines([series], (None, None, None), dots=False, description=""),
        charts.lines([series], (0, 1, None), dots=True, description=""),
    ):
        numbers = [float(number) for number in re.findall(r'(?:cx|cy|x1|y1)="([^"]*)"', chart.svg)]
        points = [float(part) for pair in re.findall(r'points="([^"]*)"', chart.svg) for part in re.split("[ ,]", pair)]
        assert all(0 <= number <= charts.WIDTH for number in numbers + points)
        assert len(points) <= 4 * charts.MOST_POINTS


def test_more_runs_than_colours_are_dashed():
    assert [charts.color_class(number) for number in (0, 7, 8)] == ["c0", "c7", "c0 dashed"]


def command(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["report", *map(str, arguments)])
    return report.main()


def test_the_command_writes_one_report_or_a_comparison(folder, tmp_path, monkeypatch, capsys):
    assert command(monkeypatch, folder) == 0
    assert capsys.readouterr().out.strip() == str(folder / "report.html")
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    monkeypatch.chdir(tmp_path)
    other = make(tmp_path / "other")
    assert command(monkeypatch, folder, other) == 0
    assert (tmp_path / "comparison.html").exists()
    assert command(monkeypatch, folder, "--output", tmp_path / "x.html") == 0
    assert (tmp_path / "x.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], r"RUN: got .*nowhere, wanted a run folder: it has no config\.json"),
        (["--output=x.html"], r"RUN: got none, wanted one or more run folders"),
        (["a", "--output=/nowhere/x.html"], r"--output: got /nowhere/x\.html, wanted a file in a folder that exists"),
        (["a", "--output=."], r"--output: got \., wanted a file in a folder that exists"),
        (["a", "./a"], r"RUN: got a, a, wanted each folder once"),
        (["--port=3"], r"command line: .*port"),
    ],
)
def test_bad_command_lines_are_refused(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        command(monkeypatch, *arguments)
