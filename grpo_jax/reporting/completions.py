"""The sampled completions of a run for the page's browser."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from grpo_jax.reporting.markup import Markup, element, joined
from grpo_jax.reporting.records import Row

MOST_CHARACTERS = 3_000_000
"""Of all completions in a report; beyond, each evaluation shows fewer of its problems."""
LONGEST_TEXT = 20_000
"""Characters of one completion; the middle of a longer one is left out."""


def browser(samples: Sequence[Row]) -> Markup:
    """The controls and the place that the page's script fills.

    Args:
        samples: Rows of samples.

    Returns:
        A form of filters and an empty list.
    """
    splits = sorted({str(row["split"]) for row in samples})
    steps = sorted({int(row["step"]) for row in samples}, reverse=True)
    reasons = sorted({str(row["reason"])[:80] for row in samples})
    outcomes = (("right", "right"), ("wrong", "wrong"), ("error", "judge failed"), ("truncated", "cut off"))
    return joined(
        element(
            "form",
            _select("split", [(split, split) for split in splits]),
            _select("step", [(str(step), f"step {step:,}") for step in steps]),
            _select("outcome", list(outcomes)),
            _select("reason", [(reason, reason) for reason in reasons]),
            element(
                "label",
                "text",
                element(
                    "input", type="search", name="text", placeholder="in problem or completion", autocomplete="off"
                ),
            ),
            id="filters",
            role="search",
        ),
        element("p", "Showing completions needs this page's own script.", id="found", aria_live="polite"),
        element("div", id="completions"),
        element("button", "Show more", id="more", type="button", hidden=True),
    )


def shown(samples: Sequence[Row]) -> tuple[list[dict[str, Any]], int]:
    """Picks the completions that a report holds.

    Args:
        samples: Rows of samples.

    Returns:
        Them, newest evaluation first, and how many were left out to keep the file small.
    """
    batches: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in samples:
        batches[str(row["split"]), int(row["step"])].append(_short(row))
    budget = MOST_CHARACTERS / max(len(batches), 1)
    chosen: list[dict[str, Any]] = []
    for _, batch in sorted(batches.items(), key=lambda item: -item[0][1]):
        spent = 0
        for index, row in enumerate(batch):
            spent += len(row["problem"]) + len(row["completion"])
            if index and spent > budget:
                break
            chosen.append(row)
    return chosen, len(samples) - len(chosen)


def _short(row: Row) -> dict[str, Any]:
    return {name: _cut(value) if isinstance(value, str) else value for name, value in row.items() if name != "row"}


def _cut(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"


def _select(name: str, choices: Sequence[tuple[str, str]]) -> Markup:
    options = [element("option", "all", value="")]
    options += [element("option", label, value=value) for value, label in choices]
    return element("label", name, element("select", *options, name=name, autocomplete="off"))
