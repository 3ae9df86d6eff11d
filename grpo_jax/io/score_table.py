"""The scores of an evaluation as a table for people."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Column, Table
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
    names = list(result["scores"])
    table = Table("", "problems", *(Column(name, no_wrap=True) for name in names))
    for category, found in (("all", result["scores"]), *result["categories"].items()):
        # Text, because a category may look like markup.
        problems = str(found[names[0]]["problems"])
        table.add_row(Text(category), problems, *(_interval(found.get(name)) for name in names))
    console.print(table)
    console.print(
        f"{result['method']}\n{result['unanswered']} completions without an answer, {result['cut_off']} cut off, "
        f"{result['judge_errors']} errors of the judge left out, {result['timeouts']} timeouts",
        markup=False,
        soft_wrap=True,
    )


def _interval(found: Mapping[str, float | None] | None) -> str:
    if found is None or found["value"] is None:
        return "-"
    return f"{found['value']:.3f}\n{found['low']:.3f}-{found['high']:.3f}"
