"""Memory as people look at it: tables on a terminal, bars in a picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.table import Table

from grpo_jax.forensics.hardware import GIGABYTE
from grpo_jax.forensics.static import DTYPE_BYTES

PROGRAMS = ("update", "prepare", "prefill", "decode")
"""What is compiled, as tables name it."""

WIDTH = 130
"""Columns of a terminal that tables need."""


def static_tables(static: Mapping[str, Any], devices: int) -> list[Table]:
    """Bytes by rule, what other dtypes would give, and what holds them.

    Args:
        static: Figures by name.
        devices: How many accelerators there are.

    Returns:
        Tables.
    """
    counted = f"{static['counted_parameters'] / 1e9:.3f}e9 counted"
    by_rule = Table(title=f"GB by rule for {static['parameters'] / 1e9:g}e9 parameters ({counted})")
    models = list(static["components_gb"])
    for name in ("component", *models):
        by_rule.add_column(name, justify="left" if name == "component" else "right")
    for component in static["components_gb"]["policy"]:
        values = (static["components_gb"][model].get(component) for model in models)
        by_rule.add_row(component, *("" if value is None else f"{value:,.0f}" for value in values))
    by_rule.add_section()
    by_rule.add_row("sum", *(f"{sum(static['components_gb'][model].values()):,.0f}" for model in models))
    by_rule.add_row("in all", f"{static['total_gb']:,.0f}")
    if static["claim"]:
        verdict = "reproduced" if static["claim"]["reproduced"] else "not reproduced"
        by_rule.add_row("claimed", f"about {static['claim']['total_gb']:,.0f}: {verdict}")
    others = Table(
        "component", *DTYPE_BYTES, title="GB of a trained model / in all, with another dtype of one component"
    )
    for name, dtypes in static["choices"].items():
        sums = {dtype: f"{of['trained_model_gb']:,.0f} / {of['total_gb']:,.0f}" for dtype, of in dtypes.items()}
        sums[static["dtypes"][name]] += " *"
        others.add_row(name, *sums.values())
    held = Table("accelerator", "GB", "needed", f"{devices} hold it", title="What holds the sum, activations aside")
    for name, row in static["fits_on"].items():
        held.add_row(name, f"{row['memory_gb']:g}", f"{row['needed']:,}", "yes" if row["fits"] else "no")
    return [by_rule, others, held]


def compiled_tables(compiled: Mapping[str, Any]) -> list[Table]:
    """What compiled programs need on each device.

    Args:
        compiled: Figures by name: those of the update, and of the other programs by theirs.

    Returns:
        Tables.
    """
    memory = compiled["device_memory_bytes"]
    limit = f", {memory / GIGABYTE:g} GB each: {'fits' if compiled['fits'] else 'does not fit'}" if memory else ""
    mesh = ", ".join(f"{axis} {size}" for axis, size in compiled["mesh"].items() if size > 1) or "one device"
    title = f"GB on each device of {compiled['topology']} ({mesh}){limit}"
    columns = ("program", "arguments", "outputs", "aliased", "temporaries", "peak", "beside", "in all", "host")
    programs = Table(*columns, "TFLOP", "compiled in", title=title)
    for name in PROGRAMS:
        one = compiled if name == "update" else compiled[name]
        sizes = ("argument_bytes", "output_bytes", "alias_bytes", "temp_bytes", "peak_bytes_per_device")
        shown = [one[size] for size in (*sizes, "beside_bytes", "needed_bytes_per_device")]
        host = one["host_argument_bytes"] + one["host_output_bytes"] - one["host_alias_bytes"] + one["host_temp_bytes"]
        programs.add_row(
            name, *map(_gigabytes, (*shown, host)), f"{one['flops'] / 1e12:,.2f}", f"{one['seconds']:.0f} s"
        )
    parts = Table("component", "device", "host", title="GB of the update's arguments by component")
    on_host = flat(compiled["host_components_bytes"])
    for name, size in flat(compiled["components_bytes"]).items():
        host = on_host[name]
        parts.add_row(name, _gigabytes(size), _gigabytes(host))
    return [programs, parts]


def search_table(found: Mapping[str, Any]) -> Table:
    """What a search found, and what it tried.

    Args:
        found: Its outcome by what was searched for.

    Returns:
        The table.
    """
    table = Table("searched for", "found", "tried", title="Where an update fits, each size on its own")
    for name, outcome in found.items():
        tried = ", ".join(f"{size} {'yes' if fits else 'no'}" for size, fits in outcome["tried"].items())
        table.add_row(name, "none" if outcome["best"] is None else str(outcome["best"]), tried)
    return table


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Nested sizes under names such as ``policy optimizer``."""
    found: dict[str, float] = {}
    for name, value in nested.items():
        found |= flat(value, f"{prefix}{name} ") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def _gigabytes(size: float) -> str:
    gigabytes = size / GIGABYTE
    return f"{gigabytes:.2f}" if gigabytes >= 0.1 or not size else f"{gigabytes:.2g}"


def report_tables(report: Mapping[str, Any]) -> list[Table]:
    """Everything that a report has a table for."""
    found: list[Table] = []
    if "static" in report:
        found += static_tables(report["static"], report["devices"])
    if "compiled" in report:
        found += compiled_tables(report["compiled"])
    if "search" in report:
        found.append(search_table(report["search"]))
    return found


def bars(report: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """What a chart of a report shows: bytes by bar and part, of compiled programs or else by rule.

    Args:
        report: Figures by name.

    Returns:
        Gigabytes by bar, then by part.
    """
    if "compiled" in report:
        compiled, found = report["compiled"], {}
        for name in PROGRAMS:
            one = compiled if name == "update" else compiled[name]
            parts = {
                "arguments": one["argument_bytes"],
                "new outputs": one["output_bytes"] - one["alias_bytes"],
                "temporaries": one["temp_bytes"],
                "held beside": one["beside_bytes"],
            }
            if name == "update":
                components = flat(compiled["components_bytes"])
                # Nothing at the bottom, so that parts of other bars that come with it lie there too.
                parts = (
                    {"arguments": 0.0}
                    | components
                    | {part: size for part, size in parts.items() if part != "arguments"}
                )
            found[name] = {part: size / GIGABYTE for part, size in parts.items()}
        return found
    if "static" in report:
        return report["static"]["components_gb"]
    held = {part: size / GIGABYTE for part, size in report["held_bytes"].items() if not part.startswith("while")}
    return {report["run"]: held}


def save_chart(report: Mapping[str, Any], path: Path) -> None:
    """Draws a report as stacked bars of gigabytes.

    Args:
        report: Figures by name.
        path: PNG file to write.
    """
    shown, compiled = bars(report), report.get("compiled", {})
    figure = Figure(figsize=(10, 1.8 + 0.6 * len(shown)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    reached = dict.fromkeys(shown, 0.0)
    for part in dict.fromkeys(part for parts in shown.values() for part in parts):
        widths = [parts.get(part, 0.0) for parts in shown.values()]
        axes.barh(list(shown), widths, left=list(reached.values()), label=part)
        reached = {name: start + width for (name, start), width in zip(reached.items(), widths, strict=True)}
    if memory := compiled.get("device_memory_bytes"):
        axes.axvline(memory / GIGABYTE, color="black", linestyle="--", label="memory")
    axes.invert_yaxis()
    axes.set_xlabel(f"GB on each device of {compiled['topology']}" if compiled else "GB")
    axes.set_title(" ".join(str(report[key]) for key in ("run", "algorithm", "tokens") if key in report))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")
    figure.savefig(path, format="png", dpi=120)
