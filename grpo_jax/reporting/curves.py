"""The curves of one run or of several, drawn over each other."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

from grpo_jax.reporting import charts
from grpo_jax.reporting.markup import Markup, element
from grpo_jax.reporting.records import Row, RunRecord


@dataclasses.dataclass(frozen=True)
class Panel:
    """One chart.

    Attributes:
        title: For people.
        metric: Its name in the metrics.
        unit: Of the values.
        words: What to look for.
        low: Lower end of the axis, or None.
        high: Upper end.
        top_at_least: The axis goes no less far, or tiny shares would look like large ones.
        kind: Where its values come from.
    """

    title: str
    metric: str
    unit: str
    words: str = ""
    low: charts.Number | None = None
    high: charts.Number | None = None
    top_at_least: charts.Number | None = None
    kind: Literal["train", "validation"] = "train"


PANELS = (
    Panel("Held-out pass@1", "eval/pass_at_1", "share", "On the validation problems.", 0, 1, kind="validation"),
    Panel("Training pass@1", "pass_at_1", "share", "Of the batch, before the update.", 0, 1),
    Panel("Reward", "reward", "mean"),
    Panel("Active groups", "active_group_ratio", "share", "Groups with a spread of rewards: only they teach.", 0, 1),
    Panel("Completion length", "completions/mean_length", "tokens", low=0),
    Panel(
        "Truncated completions",
        "completions/clipped_ratio",
        "share",
        "Cut off at the token limit.",
        0,
        top_at_least=0.05,
    ),
    Panel(
        "Repetition",
        "completions/repeated_ngram_share",
        "share",
        "Text that stood before in the completion.",
        0,
        top_at_least=0.05,
    ),
    Panel("Entropy", "entropy", "nats per token", low=0),
    Panel("KL to the reference", "kl", "nats per token"),
    Panel("Clip fraction", "clip_ratio/region_mean", "share", "Tokens where the clip took hold.", 0, top_at_least=0.05),
    Panel(
        "Sampler against trainer",
        "sampling/sampling_logp_difference/mean",
        "nats",
        "Difference of their log-probabilities; rounding only, if all is well.",
        0,
    ),
    Panel("Gradient norm", "grad_norm", "before clipping", low=0),
    Panel("Learning rate", "learning_rate", "", low=0),
    Panel("Value loss", "value_loss", "", low=0),
    Panel("Judge errors", "verifier/error_share", "share of completions", low=0),
    Panel("Sampling speed", "tokens_per_second/rollout", "tokens per second", low=0),
    Panel("Update speed", "tokens_per_second/update", "trained tokens per second", low=0),
)
BORING_AT_ZERO = {"completions/clipped_ratio", "clip_ratio/region_mean", "verifier/error_share"}
"""Metrics whose chart says nothing while they are 0; they are named in a line instead."""

PHASES = ("rollout", "verify", "prepare", "update")
OUTCOMES = (("solved_all", "solved", 2), ("solved_some", "mixed", 0), ("solved_none", "hopeless", 1))


class Drawings:
    """Draws charts and keeps what the page's script needs of each.

    Attributes:
        readouts: By the chart's id.
    """

    def __init__(self) -> None:
        """Starts without charts."""
        self.readouts: dict[str, dict[str, object]] = {}

    def figure(
        self, title: str, unit: str, words: str, chart: charts.Chart, legend: Sequence[tuple[str, int]]
    ) -> Markup:
        """Frames a chart with its title, what is under the pointer, and a legend where there is one."""
        identifier = f"chart{len(self.readouts)}"
        self.readouts[identifier] = chart.readout
        keys = [
            element("span", element("i", class_=f"key {charts.color_class(color)}"), label) for label, color in legend
        ]
        return element(
            "figure",
            element(
                "figcaption",
                element("b", title),
                element("small", unit),
                element("output", "", aria_live="off"),
                element("span", words, class_="words") if words else None,
            ),
            chart.svg,
            element("div", *keys, class_="legend") if keys else None,
            id=identifier,
        )

    def curves(self, runs: Sequence[RunRecord]) -> Markup:
        """Draws a chart for each thing worth watching that any of the runs has numbers of.

        Args:
            runs: Drawn over each other, each in the colour of its place.

        Returns:
            A grid of charts, and a line about those that never left 0.
        """
        figures, silent = [], []
        for panel in PANELS:
            series = [one for index, run in enumerate(runs) if (one := _series(run, panel, index))]
            if not series:
                continue
            if panel.metric in BORING_AT_ZERO and not any(map(any, (one.values for one in series))):
                silent.append(panel.title.lower())
                continue
            ends = "; ".join(f"{one.label} from {one.values[0]:.4g} to {one.values[-1]:.4g}" for one in series)
            chart = charts.lines(
                series,
                (panel.low, panel.high, panel.top_at_least),
                dots=panel.kind == "validation",
                description=f"{panel.title}: {ends}",
            )
            legend = [(one.label, one.color) for one in series] if len(runs) > 1 else []
            figures.append(self.figure(panel.title, panel.unit, panel.words, chart, legend))
        zero = element("p", f"Never above zero: {', '.join(silent)}.", class_="quiet") if silent else None
        return element("div", element("div", *figures, class_="grid-of-charts"), zero)

    def outcomes(self, run: RunRecord) -> Markup | None:
        """Draws how many groups were solved, mixed and hopeless."""
        rows = [row for row in run.train if "solved_all" in row]
        parts = [(label, color, lambda row, name=name: _share(row, name)) for name, label, color in OUTCOMES]
        words = "Groups where every, some or no completion is right."
        return self._areas("Group outcomes", "share of groups", words, rows, parts, 1.0)

    def seconds(self, run: RunRecord) -> Markup | None:
        """Draws what a step's time goes into."""
        rows = [row for row in run.train if "seconds/rollout" in row]
        parts = [
            (name, color, lambda row, name=name: float(row.get(f"seconds/{name}") or 0))
            for name, color in zip(PHASES, (0, 3, 2, 1), strict=True)
        ]
        return self._areas("Time of a step", "seconds", "Compilation leaves the picture.", rows, parts, None)

    def curriculum(self, run: RunRecord) -> Markup | None:
        """Draws how many of the visited problems are active, solved and hopeless."""
        rows = [row for row in run.train if "curriculum/seen" in row]
        names = (("solved", 2), ("active", 0), ("hopeless", 1))
        parts = [
            (name, color, lambda row, name=name: float(row.get(f"curriculum/{name}") or 0)) for name, color in names
        ]
        top = max((float(row["curriculum/seen"]) for row in rows), default=0)
        return self._areas("Problems visited", "problems", "By their history.", rows, parts, 1.05 * top)

    def _areas(
        self,
        title: str,
        unit: str,
        words: str,
        rows: Sequence[Row],
        parts: Sequence[tuple[str, int, Callable[[Row], float]]],
        high: charts.Number | None,
    ) -> Markup | None:
        if not rows:
            return None
        steps = [row["step"] for row in rows]
        series = [charts.Series(label, steps, [value(row) for row in rows], color) for label, color, value in parts]
        ends = "; ".join(f"{one.label} from {one.values[0]:.3g} to {one.values[-1]:.3g}" for one in series)
        chart = charts.stacked(series, high, description=f"{title}: {ends}")
        return self.figure(title, unit, words, chart, [(one.label, one.color) for one in series])


def _share(row: Row, name: str) -> float:
    if name == "solved_some" and name not in row:
        return max(0.0, 1 - float(row.get("solved_all") or 0) - float(row.get("solved_none") or 0))
    return float(row.get(name) or 0)


def _series(run: RunRecord, panel: Panel, color: int) -> charts.Series | None:
    rows = run.train if panel.kind == "train" else run.evaluations("validation")
    found = [(row["step"], float(row[panel.metric])) for row in rows if row.get(panel.metric) is not None]
    steps, values = [step for step, _ in found], [value for _, value in found]
    return charts.Series(run.label, steps, values, color) if found else None
