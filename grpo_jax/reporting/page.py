"""A whole page: one file with its own style and script, which asks nothing of any network."""

import base64
import hashlib
import importlib.resources
from collections.abc import Sequence
from pathlib import Path

from grpo_jax.io.storage import replace_text
from grpo_jax.reporting import comparison, completions, sections
from grpo_jax.reporting.curves import Drawings
from grpo_jax.reporting.markup import Markup, element, embedded_json, joined
from grpo_jax.reporting.records import RunRecord, read_runs

REPORT = "report.html"
"""Name of a run's own report in its folder."""


def write_report(folder: Path, output: Path | None = None) -> Path:
    """Writes the report of a run.

    Args:
        folder: A run folder; the run may still be going on.
        output: The file, by default ``report.html`` in the folder.

    Returns:
        The file.

    Raises:
        ConfigError: if the folder holds no run.
        StorageFailed: if the system refuses to write.
    """
    [run] = read_runs([folder])
    path = output or folder / REPORT
    replace_text(path, run_page(run))
    return path


def write_comparison(folders: Sequence[Path], output: Path) -> Path:
    """Writes a report that compares runs.

    Args:
        folders: Two or more run folders.
        output: The file.

    Returns:
        The file.

    Raises:
        ConfigError: if one of the folders holds no run.
        StorageFailed: if the system refuses to write.
    """
    replace_text(output, comparison_page(read_runs(folders)))
    return output


def run_page(run: RunRecord) -> str:
    """The report of one run as HTML."""
    drawings = Drawings()
    samples, left_out = completions.shown(run.samples)
    shares = [drawing for drawing in (drawings.outcomes(run), drawings.seconds(run)) if drawing is not None]
    note = f"{left_out:,} more completions are in samples.jsonl; the report leaves them out to stay small."
    parts: list[tuple[str, str, Markup | None]] = [
        ("result", "Result", sections.results(run)),
        ("health", "Health", sections.health(run.alarms, run.steps_done)),
        ("curves", "Curves", drawings.curves([run]) if run.train else None),
        ("groups", "Groups and time", element("div", *shares, class_="grid-of-charts") if shares else None),
        (
            "samples",
            "Completions",
            joined(completions.browser(samples), element("p", note, class_="quiet") if left_out else None)
            if samples
            else None,
        ),
        ("curriculum", "Curriculum", _curriculum(run, drawings)),
        ("memory", "Memory", sections.memory(run)),
        ("setup", "What ran", sections.what_ran(run)),
    ]
    return _page(run.label, sections.progress(run), parts, drawings, samples)


def comparison_page(runs: Sequence[RunRecord]) -> str:
    """The comparison of several runs as HTML."""
    drawings = Drawings()
    parts: list[tuple[str, str, Markup | None]] = [
        ("result", "Results", comparison.results(runs)),
        ("curves", "Curves", drawings.curves(runs)),
        ("setup", "Configuration that differs", comparison.configuration(runs)),
    ]
    return _page(f"{len(runs)} runs", None, parts, drawings, [])


def _curriculum(run: RunRecord, drawings: Drawings) -> Markup | None:
    state = sections.curriculum(run)
    if state is None:
        return None
    return joined(state, element("div", drawings.curriculum(run), class_="grid-of-charts"))


def _page(
    title: str,
    lead: Markup | None,
    parts: Sequence[tuple[str, str, Markup | None]],
    drawings: Drawings,
    samples: list[dict[str, object]],
) -> str:
    shown = [(anchor, heading, content) for anchor, heading, content in parts if content is not None]
    links = [element("a", heading, href=f"#{anchor}") for anchor, heading, _ in shown]
    style, script = _asset("report.css"), _asset("report.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} - grpo_jax"),
        element("style", style),
    )
    body = element(
        "body",
        element("header", element("p", "grpo_jax", class_="brand"), element("h1", title), lead),
        element("nav", *links, aria_label="sections"),
        element(
            "main",
            *(element("section", element("h2", heading), content, id=anchor) for anchor, heading, content in shown),
        ),
        embedded_json("readouts", drawings.readouts),
        embedded_json("samples-data", samples),
        element("script", script),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _asset(name: str) -> Markup:
    return Markup(importlib.resources.files("grpo_jax.reporting").joinpath("assets", name).read_text(encoding="utf-8"))


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
