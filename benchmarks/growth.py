"""How an update's needs grow with the number of devices, for docs/scaling.md.

python -m benchmarks.growth [--accelerator h100]

Compiles the update of Llama-3-8B (GRPO, 8,192 tokens, one completion for each shard of the batch) for 8, 64, 256 and
1,024 devices, so that each device has the same work: tensor 8 within a host, fsdp over up to 8 hosts, data over more.
Writes docs/growth.json and the table in docs/scaling.md. Needs `pip install 'grpo-jax[aot-cuda]'` and no accelerator.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import jax

from grpo_jax.config import RunConfig
from grpo_jax.forensics import collectives, compiled, scenario
from grpo_jax.forensics.hardware import parse_topology
from grpo_jax.training.abstract import lower_run

ROOT = Path(__file__).resolve().parents[1]
FIGURES, PAGE = ROOT / "docs" / "growth.json", ROOT / "docs" / "scaling.md"
TABLE = re.compile(r"(?<=<!-- growth -->\n).*?(?=<!-- /growth -->)", re.DOTALL)

MODEL, TOKENS, DEVICES, DEVICES_PER_HOST, MOST_FSDP = "llama3-8b", 8192, (8, 64, 256, 1024), 8, 8

GIGABYTE = 10**9


def measured(accelerator: str, devices: int) -> dict[str, Any]:
    """What the update for so many devices needs on each of them."""
    hosts = devices // DEVICES_PER_HOST
    topology = parse_topology(f"{accelerator}:{hosts}x{DEVICES_PER_HOST}")
    fsdp = min(hosts, MOST_FSDP)
    mesh = {"data": hosts // fsdp, "fsdp": fsdp, "tensor": DEVICES_PER_HOST, "context": 1, "expert": 1}
    config = scenario.with_defaults(RunConfig(), scenario.scenario(MODEL, "grpo", TOKENS, mesh, 1), {})
    update = lower_run(config, compiled.described_devices(topology), 1).step.update
    built, _ = compiled.executable(update, topology)
    sizes, moved = built.memory_analysis(), collectives.traffic(built.as_text() or "")
    assert sizes is not None
    return {
        "mesh": mesh,
        "argument_bytes": sizes.argument_size_in_bytes,
        "temp_bytes": sizes.temp_size_in_bytes,
        "peak_bytes": sizes.argument_size_in_bytes
        + sizes.output_size_in_bytes
        - sizes.alias_size_in_bytes
        + sizes.temp_size_in_bytes,
        "flops": update.flops / devices,
        "collective_bytes": moved.bytes,
        "collective_counts": moved.counts,
        "open_loops": moved.open_loops,
    }


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The page's table, per device."""
    kinds = [kind for kind in collectives.KINDS if any(kind in row["collective_bytes"] for row in rows.values())]
    heads = (
        "devices",
        "data x fsdp x tensor",
        "arguments, GB",
        "temporaries, GB",
        "TFLOP",
        *(f"{k}, GB" for k in kinds),
    )
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---|' * (len(heads) - 1)}"]
    for devices, row in rows.items():
        mesh = row["mesh"]
        cells = [devices, f"{mesh['data']} x {mesh['fsdp']} x {mesh['tensor']}"]
        cells += [f"{row[name] / GIGABYTE:.2f}" for name in ("argument_bytes", "temp_bytes")]
        cells += [f"{row['flops'] / 1e12:.1f}"]
        cells += [f"{row['collective_bytes'].get(kind, 0) / GIGABYTE:.2f}" for kind in kinds]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Writes the figures."""
    accelerator = sys.argv[sys.argv.index("--accelerator") + 1] if "--accelerator" in sys.argv else "h100"
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_captured_constants_warn_bytes", -1)
    compiled.prepare(parse_topology(f"{accelerator}:1x{DEVICES_PER_HOST}"))
    rows = {}
    for devices in DEVICES:
        print(f"compiling for {devices} devices", file=sys.stderr)
        rows[str(devices)] = measured(accelerator, devices)
    FIGURES.write_text(json.dumps(rows, indent=2) + "\n")
    PAGE.write_text(TABLE.sub(lambda _: f"\n{table(rows)}\n\n", PAGE.read_text()))


if __name__ == "__main__":
    main()
