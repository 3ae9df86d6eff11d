"""What a person sees of a run: a live bar on a terminal, plain lines everywhere else."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn, track
from rich.table import Table

Item = TypeVar("Item")

# metric, label, format: shown in this order when a row has the metric.
_FIELDS = (
    ("pass_at_1", "pass@1", "5.3f"),
    ("reward", "reward", "6.3f"),
    ("active_group_ratio", "active", "4.2f"),
    ("completions/mean_length", "length", "7.1f"),
    ("loss", "loss", "8.4f"),
    ("step_time", "s/step", "6.2f"),
)


def tracked(items: Iterable[Item], total: int) -> Iterator[Item]:
    """Hands items on and shows on standard error how many have come, where that is a terminal.

    Args:
        items: The items.
        total: How many there will be.

    Returns:
        The same items.
    """
    console = Console(stderr=True)
    bar = track(items, "problems", total=total, console=console, transient=True, disable=not console.is_terminal)
    return iter(bar)


class Display:
    """Shows the progress of a run's phases on the standard output.

    A terminal gets a live bar; a file or a pipe gets one aligned line for every few steps, with no
    control codes in it.
    """

    def __init__(self, every: int | None = None, *, silent: bool = False) -> None:
        """Prepares the display; nothing is shown before the first phase.

        Args:
            every: Steps from one plain line to the next, by default a twentieth of the phase; the first and the last
                step always show.
            silent: Show nothing: another process shows the same.
        """
        self._every, self._silent = every, silent
        self._console = Console() if sys.stdout.isatty() and not silent else None
        self._progress: Progress | None = None
        self._name, self._total, self._first = "", 0, True

    def phase(self, name: str, total: int) -> None:
        """Starts a phase.

        Args:
            name: Shown in front of every step.
            total: Steps that the phase ends at.
        """
        self._stop()
        self._name, self._total, self._first = name, total, True
        if self._console is not None:
            progress = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[values]}"),
                TimeRemainingColumn(),
                console=self._console,
            )
            progress.add_task(name, total=total, values="")
            progress.start()
            self._progress = progress

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Shows that a step is done.

        Args:
            step: Steps of this phase that are done, so 1 after the first.
            metrics: The step's metrics by name; those worth watching are picked out.
        """
        values = "  ".join(
            f"{label} {format(metrics[name], spec)}" for name, label, spec in _FIELDS if metrics.get(name) is not None
        )
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=step, values=values)
        elif self._first or step % (self._every or max(self._total // 20, 1)) == 0 or step == self._total:
            width = len(str(self._total))
            self._print(f"{self._name}  step {step:>{width}}/{self._total}  {values}".rstrip())
        self._first = False

    def note(self, text: str) -> None:
        """Shows a line of text, above the bar if there is one."""
        self._print(text)

    def warn(self, text: str) -> None:
        """Shows a line that asks for attention."""
        self._print(f"warning: {text}", style="bold yellow")

    def finish(self, rows: Sequence[tuple[str, str]]) -> None:
        """Ends the last phase and shows a summary.

        Args:
            rows: Label and value of each line of the summary.
        """
        self._stop()
        if self._console is not None:
            table = Table(show_header=False, box=None, pad_edge=False)
            for label, value in rows:
                table.add_row(f"[bold]{label}", value)
            self._console.print(table)
        elif rows:
            width = max(len(label) for label, _ in rows)
            for label, value in rows:
                self._print(f"{label:<{width}}  {value}")

    def __enter__(self) -> "Display":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def _print(self, text: str, style: str | None = None) -> None:
        if self._silent:
            return
        # A completion may hold anything, and a terminal obeys control characters.
        text = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)
        if self._console is not None:
            self._console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, flush=True)

    def _stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
