"""What compiled programs need on accelerators that are not here, for docs/memory.md.

python -m benchmarks.compiled_memory [ROW ... | none]

Runs `python -m grpo_jax.memory --compile` for each row (for all without names; half a minute to a few minutes of one
core each), merges what it says into docs/compiled_memory.json and writes the tables in docs/memory.md, that of bytes by
rule too (with `none` that one alone changes). Needs `pip install 'grpo-jax[aot-cuda,aot-tpu]'` and no accelerator.
"""

import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpo_jax.forensics import scenario

ROOT = Path(__file__).resolve().parents[1]
FIGURES, PAGE = ROOT / "docs" / "compiled_memory.json", ROOT / "docs" / "memory.md"
COMPILED = re.compile(r"(?<=<!-- compiled-memory -->\n).*?(?=<!-- /compiled-memory -->)", re.DOTALL)
BY_RULE = re.compile(r"(?<=<!-- by-rule -->\n).*?(?=<!-- /by-rule -->)", re.DOTALL)

GIGABYTE = 10**9

_GRPO, _PPO = "--model=llama3-70b --algorithm=grpo", "--model=llama3-70b --algorithm=ppo"
_LEAN = "--config.optimizer.gradient_dtype=bfloat16 --config.model.remat=host"
_HOST = "--config.optimizer.placement=host --config.optimizer.gradient_dtype=bfloat16 --config.reference.placement=host"
_CRITIC = "--config.ppo.critic.gradient_dtype=bfloat16"
ROWS = {
    "grpo-64xh100-16k": f"{_GRPO} --tokens=16384 --topology=h100:8x8",
    "grpo-64xh100-16k-lean": f"{_GRPO} --tokens=16384 --topology=h100:8x8 {_LEAN}",
    "ppo-64xh100-16k": f"{_PPO} --tokens=16384 --topology=h100:8x8",
    "ppo-64xh100-16k-lean": f"{_PPO} --tokens=16384 --topology=h100:8x8 {_LEAN} {_CRITIC}",
    "grpo-64xv5p-16k": f"{_GRPO} --tokens=16384 --topology=v5p:4x4x4",
    "grpo-32xh100-32k-lean": f"{_GRPO} --tokens=32768 --topology=h100:4x8 {_LEAN}",
    "ppo-32xh100-16k": f"{_PPO} --tokens=16384 --topology=h100:4x8",
    "grpo-16xh100-32k-lean": (
        f"{_GRPO} --tokens=32768 --topology=h100:2x8 {_LEAN} --config.optimizer.moments_dtype=bfloat16 "
        "--config.reference.placement=host"
    ),
    "grpo-8xh100-16k-host": f"{_GRPO} --tokens=16384 --topology=h100:1x8 {_HOST}",
    "grpo-8xh100-32k-host": f"{_GRPO} --tokens=32768 --topology=h100:1x8 {_HOST} --config.model.remat=host",
    "grpo-8xh100-16k-lora": f"{_GRPO} --tokens=16384 --topology=h100:1x8 --config.model.lora.rank=32",
    "deepseek-v3-64xh100-4k-host": (
        f"--model=deepseek-v3 --tokens=4096 --topology=h100:8x8 --mesh=fsdp=4,tensor=4,expert=4 {_HOST} "
        "--config.reference.dtype=float8_e4m3fn --config.model.remat=host"
    ),
    "smollm2-135m-1xh100": "--config=configs/smollm2_135m.py --topology=h100:1x1",
    "smollm2-135m-1xv6e": "--config=configs/smollm2_135m.py --topology=v6e:1x1",
    "smollm2-360m-8xcpu": "--model=smollm2-360m --tokens=1024 --topology=cpu:8",
}
"""Arguments of the command, by row of the table."""

PACKAGES = ("jax", "jaxlib", "jax-cuda13-plugin", "nvidia-cuda-nvcc", "nvidia-cudnn-cu13", "libtpu")


def measured(arguments: str) -> dict[str, Any]:
    """Runs the command and keeps what the page is made of."""
    command = [sys.executable, "-m", "grpo_jax.memory", *arguments.split(), "--compile", "--json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return {"command": arguments, "versions": versions(), **json.loads(done.stdout)["compiled"]}


def versions() -> dict[str, str]:
    """Of what compiles."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The page's table."""
    heads = (
        "row",
        "arguments",
        "temporaries",
        "**update**",
        "prepare",
        "prefill",
        "decode",
        "host",
        "compile",
        "TFLOP",
    )
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---|' * (len(heads) - 1)}"]
    for name, row in rows.items():
        host = row["host_argument_bytes"] + row["host_output_bytes"] - row["host_alias_bytes"] + row["host_temp_bytes"]
        others = (row[program]["needed_bytes_per_device"] for program in ("prepare", "prefill", "decode"))
        sizes = (row["argument_bytes"], row["temp_bytes"], row["peak_bytes_per_device"], *others, host)
        cells = [f"{size / GIGABYTE:.2f}" for size in sizes]
        cells[2] = f"**{cells[2]}**"
        lines.append(f"| `{name}` | {' | '.join(cells)} | {row['seconds']:.0f} s | {row['flops'] / 1e12:,.1f} |")
    return "\n".join(lines)


def by_rule() -> str:
    """The page's table of bytes by rule."""
    lines = [
        "| model | weights, gradients, reference in | policy | critic | reference | GRPO | PPO | claimed elsewhere |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for model, gradients in (("llama3-70b", None), ("deepseek-v3", None), ("deepseek-v3", "float8_e4m3fn")):
        dtypes = scenario.dtypes_of(model, {"gradients": gradients})
        grpo, ppo = (scenario.static_figures(model, 0, name, 1, None, dtypes) for name in ("grpo", "ppo"))
        sums = [sum(ppo["components_gb"][name].values()) for name in ("policy", "critic", "reference")]
        claims = [
            f"{name} about {of['claim']['total_gb']:,.0f}: {'' if of['claim']['reproduced'] else 'not '}reproduced"
            for name, of in (("GRPO", grpo), ("PPO", ppo))
            if of["claim"]
        ]
        cells = (f"{size:,.0f}" for size in (*sums, grpo["total_gb"], ppo["total_gb"]))
        held = f"{dtypes.weights}, {dtypes.gradients}, {dtypes.reference}"
        lines.append(f"| `{model}` | {held} | {' | '.join(cells)} | {'; '.join(claims)} |")
    return "\n".join(lines)


def page(rows: Mapping[str, Mapping[str, Any]], text: str) -> str:
    """The page's text with the table of these figures, their commands and versions in its place."""
    commands = "\n".join(f"{name:<30} {row['command']}" for name, row in rows.items())
    used = sorted({f"{package} {version}" for row in rows.values() for package, version in row["versions"].items()})
    shown = f"\n{table(rows)}\n\nArguments of each row; compiled with {', '.join(used)}:\n\n```\n{commands}\n```\n\n"
    text = BY_RULE.sub(lambda _: f"\n{by_rule()}\n\n", text)
    return COMPILED.sub(lambda _: shown, text)


def main() -> None:
    """Writes the figures."""
    names = [] if sys.argv[1:] == ["none"] else sys.argv[1:] or list(ROWS)
    if unknown := set(names) - set(ROWS):
        sys.exit(f"rows: got {', '.join(sorted(unknown))}, wanted some of {', '.join(ROWS)}")
    rows = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for name in names:
        print(f"== {name}", file=sys.stderr)
        rows[name] = measured(ROWS[name])
        rows = {known: rows[known] for known in ROWS if known in rows}
        FIGURES.write_text(json.dumps(rows, indent=2) + "\n")
    PAGE.write_text(page(rows, PAGE.read_text()))


if __name__ == "__main__":
    main()
