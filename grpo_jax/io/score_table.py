"""The scores of an evaluation as a table for people."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def show(result: Mapping[str, Any], console: Console | None = None) -> None:
    """Prints an evaluation's results.

    Args:
        result: What ``python -m grpo_jax.evaluate`` writes as JSON.
        console: Where to; standard output by default.
    """
    console = console or Console(highlight=False)
    drawn = result["sampling"]
    console.print(
        f"{result['model']}\n{result['problems']} problems ({result['split']}), {drawn['completions_per_prompt']} "
        f"completions each, temperature {drawn['temperature']:g}, seed {result['seed']}",
        markup=False,
        soft_wrap=True,
    )
    table = Table("category", "score", "value", "95% interval", "problems")
    for category, found in (("all", result["scores"]), *result["categories"].items()):
        for place, (name, score) in enumerate(found.items()):
            # Text, because a category may look like markup.
            shown = Text("" if place else category)
            table.add_row(shown, name, *_interval(score), str(score["problems"]), end_section=place == len(found) - 1)
    console.print(table)
    console.print(
        f"{result['method']}\n{result['unanswered']} completions without an answer, {result['cut_off']} cut off, "
        f"{result['judge_errors']} errors of the judge left out, {result['timeouts']} timeouts",
        markup=False,
        soft_wrap=True,
    )


def _interval(score: Mapping[str, float | int | None]) -> tuple[str, str]:
    if score["value"] is None:
        return "-", "-"
    return f"{score['value']:.3f}", f"{score['low']:.3f} to {score['high']:.3f}"
