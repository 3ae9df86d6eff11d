"""The sections of one run's report."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from grpo_jax.config import dotted
from grpo_jax.intervals import Estimate
from grpo_jax.io.health import Alarm
from grpo_jax.io.symptoms import SYMPTOMS
from grpo_jax.reporting import charts, intervals
from grpo_jax.reporting.markup import Markup, element, joined, table
from grpo_jax.reporting.records import RunRecord

GIB = 2**30


def facts(pairs: Sequence[tuple[str, object]]) -> Markup:
    """A row of short facts with their labels."""
    cells = [element("div", element("dt", label), element("dd", value)) for label, value in pairs]
    return element("dl", *cells, class_="facts")


def progress(run: RunRecord) -> Markup:
    """How far the run is, and what went into it."""
    wanted = run.config["steps"]
    done = "finished" if run.summary else f"{run.steps_done:,} of {wanted:,} steps"
    last = run.train[-1] if run.train else {}
    return facts(
        [
            ("state", done),
            ("steps", f"{run.steps_done:,}"),
            ("time", duration(run.seconds)),
            ("sampled tokens", f"{last.get('num_tokens', 0):,.0f}"),
            ("seed", run.config["seed"]),
            ("recipe", run.config["recipe"]),
        ]
    )


def results(run: RunRecord) -> Markup:
    """Before and after on the test problems, with intervals and a sentence."""
    before, after = run.test
    estimates = [
        (label, estimate, color)
        for label, row, color in (("before", before, 1), ("after", after, 0))
        if row is not None and (estimate := intervals.pass_rate(row))
    ]
    if not estimates:
        return element("p", "The test problems have not been tried yet.", class_="quiet")
    bars = charts.interval_bars([(label, one.value, one.low, one.high, color) for label, one, color in estimates])
    difference = intervals.paired_difference(before, after) if before is not None and after is not None else None
    return joined(element("div", bars, class_="card"), _sentences(estimates, difference), _validation(run))


def _sentences(estimates: Sequence[tuple[str, Estimate, int]], difference: Estimate | None) -> Markup:
    parts = [
        element("li", element("b", f"{label} training: {percent(one.value)}"), f" ({interval(one)}, Wilson)")
        for label, one, _ in estimates
    ]
    if difference is not None:
        clear = "" if difference.low > 0 or difference.high < 0 else " The interval holds 0: this may be chance."
        parts.append(
            element(
                "li",
                element("b", f"difference: {points(difference.value)}"),
                f" (95% interval {points(difference.low)} to {points(difference.high)}, paired bootstrap over the same "
                f"{difference.problems:,} problems).{clear}",
            )
        )
    elif len(estimates) == 2:
        parts.append(
            element("li", "What each problem did was not recorded, so there is no interval of the difference.")
        )
    return element("ul", *parts, class_="plain")


def _validation(run: RunRecord) -> Markup | None:
    rows = [row for row in run.evaluations("validation") if row.get("eval/pass_at_1") is not None]
    if not rows:
        return None
    best = max(rows, key=lambda row: row["eval/pass_at_1"])
    return element(
        "p",
        f"Best on the validation problems: {percent(best['eval/pass_at_1'])} at step {best['step']:,}; "
        f"last: {percent(rows[-1]['eval/pass_at_1'])} at step {rows[-1]['step']:,}.",
        class_="quiet",
    )


def health(alarms: Sequence[Alarm], last_step: int) -> Markup:
    """What the run warned of, and everything that was watched."""
    items = [
        element(
            "li",
            element("span", "at the end" if alarm.last_step >= last_step else "over", class_="badge"),
            element("b", alarm.symptom.title),
            element("span", f" steps {alarm.first_step:,} to {alarm.last_step:,}", class_="quiet"),
            element("p", f"{alarm.words[:1].upper()}{alarm.words[1:]}"),
            element("p", f"What to change: {alarm.symptom.remedy}", class_="quiet"),
            class_="open" if alarm.last_step >= last_step else None,
        )
        for alarm in alarms
    ]
    found = element("ul", *items, class_="alarms") if items else element("p", "✓ Nothing to warn of.", class_="good")
    watched = [(symptom.title, symptom.warns_when, symptom.remedy) for symptom in SYMPTOMS]
    return joined(
        found,
        element(
            "details",
            element("summary", "What is watched"),
            table(("symptom", "warns when", "what to change"), [*watched], class_="text"),
        ),
    )


def memory(run: RunRecord) -> Markup:
    """The highest memory use of process and devices."""
    peak = lambda name: max((float(row[name]) for row in run.train if row.get(name) is not None), default=None)  # noqa: E731
    host, device, limit = map(peak, ("memory/host_peak_bytes", "memory/device_peak_bytes", "memory/device_limit_bytes"))
    if host is None:
        return element("p", "Not recorded in this run.", class_="quiet")
    pairs = [("peak of the process", f"{host / GIB:,.2f} GiB")]
    if device is not None:
        share = f" of {limit / GIB:,.1f} ({device / limit:.0%})" if limit else ""
        pairs.append(("peak of the fullest device", f"{device / GIB:,.2f} GiB{share}"))
    kind = run.starts[-1]["device"]["platform"] if run.starts else ""
    note = "Arrays live in the process on a CPU." if kind == "cpu" else ""
    return joined(facts(pairs), element("p", note, class_="quiet") if note else None)


def curriculum(run: RunRecord) -> Markup | None:
    """Where the curriculum stands, or nothing where there is none."""
    last = next((row for row in reversed(run.train) if "curriculum/seen" in row), None)
    if last is None:
        return None
    names = ("seen", "active", "solved", "hopeless", "left_out", "forced")
    labels = ("visited", "active", "solved", "hopeless", "left out of the last batch", "taken without a look")
    return facts(
        [(label, f"{last.get(f'curriculum/{name}', 0):,.0f}") for name, label in zip(names, labels, strict=True)]
    )


def what_ran(run: RunRecord) -> Markup:
    """Command, configuration, versions, source and hardware."""
    start = run.starts[-1] if run.starts else {}
    changed = [(key, value(new), value(old)) for key, (old, new) in run.changed_keys.items()]
    keys = [(key, value(one)) for key, one in dotted(run.config).items()]
    return joined(
        element("pre", " ".join(map(str, start.get("argv", []))), class_="command") if start else None,
        facts(_machine(start)) if start else None,
        element("h3", "Configuration that differs from the defaults"),
        table(("key", "value", "default"), [*changed], class_="text") if changed else element("p", "None."),
        element("details", element("summary", "Every key"), table(("key", "value"), [*keys], class_="text")),
        element("h3", f"Starts ({len(run.starts)})") if run.starts else None,
        table(("time", "host", "changed keys"), [_start(one) for one in run.starts], class_="text"),
    )


def _machine(start: Mapping[str, Any]) -> list[tuple[str, object]]:
    git, device = start.get("git"), start["device"]
    revision = (
        "installed package" if git is None else f"{git['revision'][:10]}{', with changes' if git['dirty'] else ''}"
    )
    versions = ", ".join(f"{name} {version}" for name, version in start["versions"].items())
    return [
        ("source", revision),
        ("devices", f"{device['count']} x {device['kind']} ({device['platform']}), {start['processes']} process(es)"),
        ("system", start["system"]),
        ("versions", versions),
    ]


def _start(start: Mapping[str, Any]) -> tuple[object, ...]:
    changes = ", ".join(
        f"{key}: {value(pair['before'])} to {value(pair['now'])}" for key, pair in start["changes"].items()
    )
    return start["time"], start["host"], changes or "none"


def value(of_key: object) -> str:
    """A configuration's value as it is written."""
    return of_key if isinstance(of_key, str) and of_key else json.dumps(of_key)


def percent(share: charts.Number) -> str:
    """A share in per cent with one decimal."""
    return f"{100 * share:.1f}%"


def points(difference: charts.Number) -> str:
    """A difference of shares in percentage points, with its sign."""
    return f"{100 * difference:+.1f} points"


def interval(estimate: Estimate) -> str:
    """The interval of a share, in words."""
    return f"95% interval {percent(estimate.low)} to {percent(estimate.high)}, {estimate.problems:,} problems"


def duration(seconds: charts.Number) -> str:
    """Wall time as people say it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
