"""The sections of a report that compares runs."""

from collections.abc import Sequence

from grpo_jax.config import dotted
from grpo_jax.intervals import Estimate
from grpo_jax.io.run_folder import ABSENT
from grpo_jax.reporting import charts, intervals, sections
from grpo_jax.reporting.markup import Markup, element, joined, table
from grpo_jax.reporting.records import RunRecord


def results(runs: Sequence[RunRecord]) -> Markup:
    """Final results with intervals, and each run against the first one.

    Args:
        runs: Two or more.

    Returns:
        A drawing and a table.
    """
    bars, rows = [], []
    first = runs[0].test[1]
    for color, run in enumerate(runs):
        before, after = run.test
        estimate = intervals.pass_rate(after) if after is not None else None
        if estimate is not None:
            bars.append((run.label, estimate.value, estimate.low, estimate.high, color))
        gain = intervals.paired_difference(before, after) if before is not None and after is not None else None
        beside = intervals.paired_difference(first, after) if first is not None and after is not None else None
        rows.append(
            (
                joined(element("i", class_=f"key {charts.color_class(color)}"), run.label),
                f"{sections.percent(estimate.value)} ({_ends(estimate)})" if estimate else "no result yet",
                _difference(gain),
                "" if run is runs[0] else _difference(beside),
                f"{run.steps_done:,}",
                sections.duration(run.seconds),
                f"{(run.train[-1] if run.train else {}).get('num_tokens', 0):,.0f}",
                ", ".join(sorted({alarm.symptom.title.lower() for alarm in run.alarms})) or "none",
            )
        )
    head = ("run", "test pass@1", "gain", f"against {runs[0].label}", "steps", "time", "sampled tokens", "warnings")
    note = (
        "Intervals are at 95%: Wilson's for pass rates, for differences the paired bootstrap over the same problems. "
        "Runs whose test problems differ have none. A difference between two runs is that of two seeds too."
    )
    drawing = element("div", charts.interval_bars(bars), class_="card") if bars else None
    return joined(drawing, table(head, rows), element("p", note, class_="quiet"))


def configuration(runs: Sequence[RunRecord]) -> Markup:
    """The keys whose values are not the same in all runs.

    Args:
        runs: Two or more.

    Returns:
        A table with a column for each run.
    """
    flat = [dotted(run.config) for run in runs]
    keys = dict.fromkeys(key for one in flat for key in one)
    rows = [
        (key, *(ABSENT if key not in one else sections.value(one[key]) for one in flat))
        for key in keys
        if any(one.get(key, ABSENT) != flat[0].get(key, ABSENT) for one in flat)
    ]
    if not rows:
        return element("p", "All keys have the same values.")
    return table(("key", *(run.label for run in runs)), rows, class_="text")


def _ends(estimate: Estimate) -> str:
    return f"{sections.percent(estimate.low)} to {sections.percent(estimate.high)}"


def _difference(estimate: Estimate | None) -> str:
    if estimate is None:
        return "not comparable"
    return f"{sections.points(estimate.value)} ({100 * estimate.low:+.1f} to {100 * estimate.high:+.1f})"
