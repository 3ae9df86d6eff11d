"""The section of docs/performance.md that benchmarks/accelerator.py makes."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

MARKED = re.compile(r"(?<=<!-- accelerator -->\n).*?(?=<!-- /accelerator -->)", re.DOTALL)
COMMAND = "python -m benchmarks.accelerator"
GIGABYTE = 10**9

NOTHING_YET = (
    f"**No accelerator has been measured yet**: what follows is of a processor. `{COMMAND}` on a machine with an "
    "accelerator fills this section in."
)
HEADS = (
    "case",
    "step",
    "tokens/s: rollout",
    "prepare",
    "update",
    "**step**",
    "utilisation: rollout",
    "prepare",
    "update",
    "**step**",
    "GB: live",
    "compiled",
    "ratio",
    "compile",
    "attention: update, prefill",
)


def page(figures: Mapping[str, Mapping[str, Any]], text: str) -> str:
    """The page's text with these figures in their place."""
    return MARKED.sub(lambda _: f"\n{section(figures)}\n\n", text)


def section(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Figures of all devices as Markdown."""
    platforms = {of["device"].get("platform") for of in figures.values()}
    start = [NOTHING_YET] if platforms <= {"cpu"} else []
    return "\n\n".join([*start, *(block for kind, of in figures.items() for block in _device(kind, of))])


def _device(kind: str, of: Mapping[str, Any]) -> Iterator[str]:
    device, rows = of["device"], of["rows"]
    yield f"### {kind}"
    if "peak_flops_per_second" in device:
        versions = ", ".join(f"{name} {version}" for name, version in device["versions"].items())
        yield (
            f"{device['processors']} processors; {versions}. Utilisation is of {tera(device['peak_flops_per_second'])} "
            f"TFLOP/s ({device['peak_source']}); one large product reaches {tera(device['measured_flops_per_second'])}."
        )
    speeds = {name: row for name, row in rows.items() if "outcomes" not in row}
    if speeds:
        yield "\n".join(
            [f"| {' | '.join(HEADS)} |", f"|---|{'---|' * (len(HEADS) - 1)}"]
            + [f"| {' | '.join(_cells(name, row))} |" for name, row in speeds.items()]
        )
    if remarks := "\n".join(f"- `{name}`: {remark}" for name, row in rows.items() for remark in _remarks(row)):
        yield remarks
    if outcomes := [item for row in rows.values() for item in row.get("outcomes", {}).items()]:
        heads = "| difference from float32, at most | form | here | blockwise, or on a processor | as it should be |"
        yield "\n".join(
            [heads, "|---|---|---|---|---|"]
            + [
                f"| {name} | {outcome['form']} | {outcome['difference']:.1e} | {_known(outcome):.1e} | "
                f"{'yes' if outcome['ok'] else '**no**'} |"
                for name, outcome in outcomes
            ]
        )


def _known(outcome: Mapping[str, Any]) -> float:
    return outcome["of_blockwise"] if "of_blockwise" in outcome else outcome["of_processor"]


def _cells(name: str, row: Mapping[str, Any]) -> Iterator[str]:
    yield f"`{name}`, {row.get('compute_dtype', '')}"
    yield _number(row.get("seconds", {}).get("step"), "{:.2f} s")
    for values, form in (("tokens_per_second", "{:,.0f}"), ("utilisation", "{:.1%}")):
        for phase in ("rollout", "prepare", "update", "step"):
            # Where nothing is computed a phase has no speed.
            idle = row.get("flops", {}).get(phase) == 0
            cell = _number(None if idle else row.get(values, {}).get(phase), form)
            yield f"**{cell}**" if phase == "step" else cell
    memory = row.get("memory", {})
    for key in ("live_bytes", "predicted_bytes"):
        yield _number(memory[key] / GIGABYTE if key in memory else None, "{:.2f}")
    yield _number(memory.get("live_over_predicted"), "{:.2f}")
    yield _number(row.get("compile_seconds"), "{:.0f} s")
    yield ", ".join(row.get("attention", {}).values()) or "-"


def _remarks(row: Mapping[str, Any]) -> Iterator[str]:
    for name in ("out_of_memory", "predicted_out_of_memory", "ended", "failed"):
        if name in row:
            yield f"{name.replace('_', ' ')}: {row[name]}"
    if row.get("compilations_after_the_first_step"):
        yield f"{row['compilations_after_the_first_step']} programs were compiled after the first step"
    if row.get("memory", {}).get("of", "device") != "device":
        yield f"memory is {row['memory']['of']}, its compiler's included"
    if "sanity" in row:
        sanity = row["sanity"]
        yield (
            f"{row['steps']} steps of {row['new_tokens_per_step']:,.0f} new tokens; sampler and trainer differ by "
            f"{sanity['sampler_trainer_difference_mean']:.1e} nats on average, "
            f"{sanity['sampler_trainer_difference_max']:.1e} at most"
        )


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def tera(value: float) -> str:
    """A number of operations per second in units of 10^12."""
    return f"{value / 1e12:,.3g}"
