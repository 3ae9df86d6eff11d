"""How far memory goes: longest context, most rows, fewest devices, for docs/memory.md.

python -m benchmarks.searched_memory [ROW ...]

Runs `python -m grpo_jax.memory --search` for each row (for all without names; up to half an hour of one core each),
merges what it finds into docs/searched_memory.json and writes the table in docs/memory.md. Needs
`pip install 'grpo-jax[aot-cuda]'` and no accelerator.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpo_jax.forensics.search import SEARCHES

ROOT = Path(__file__).resolve().parents[1]
FIGURES, PAGE = ROOT / "docs" / "searched_memory.json", ROOT / "docs" / "memory.md"
SEARCHED = re.compile(r"(?<=<!-- searched-memory -->\n).*?(?=<!-- /searched-memory -->)", re.DOTALL)

_STREAMED = (
    "--config.optimizer.placement=host --config.optimizer.gradient_dtype=bfloat16 --config.reference.placement=host "
    "--config.model.remat=host"
)
ROWS = {
    "qwen2.5-7b, LoRA": "--model=qwen2.5-7b --tokens=4096 --topology=h100:1x1 --config.model.lora.rank=32",
    "llama3-8b": "--model=llama3-8b --tokens=8192 --topology=h100:1x8",
    "llama3-70b": "--model=llama3-70b --tokens=16384 --topology=h100:8x8",
    "llama3-70b, state on hosts": f"--model=llama3-70b --tokens=16384 --topology=h100:1x8 {_STREAMED}",
}
"""Arguments of the command, by row of the table."""


def searched(arguments: str) -> dict[str, Any]:
    """Runs the command and keeps what the page is made of."""
    command = [sys.executable, "-m", "grpo_jax.memory", *arguments.split(), "--search", "--json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return {"command": arguments, **json.loads(done.stdout)["search"]}


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The page's table."""
    lines = ["| row | longest context | most completions per shard | fewest devices |", "|---|---|---|---|"]
    for name, row in rows.items():
        found = ("none" if row[size]["best"] is None else f"{row[size]['best']:,}" for size in SEARCHES)
        lines.append(f"| {name} | {' | '.join(found)} |")
    return "\n".join(lines)


def page(rows: Mapping[str, Mapping[str, Any]], text: str) -> str:
    """The page's text with the table of these figures and their commands in its place."""
    commands = "\n".join(f"{name:<28} {row['command']} --search" for name, row in rows.items())
    return SEARCHED.sub(lambda _: f"\n{table(rows)}\n\n```\n{commands}\n```\n\n", text)


def main() -> None:
    """Writes the figures."""
    names = sys.argv[1:] or list(ROWS)
    if unknown := set(names) - set(ROWS):
        sys.exit(f"rows: got {', '.join(sorted(unknown))}, wanted some of {', '.join(ROWS)}")
    rows = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for name in names:
        print(f"== {name}", file=sys.stderr)
        rows[name] = searched(ROWS[name])
        rows = {known: rows[known] for known in ROWS if known in rows}
        FIGURES.write_text(json.dumps(rows, indent=2) + "\n")
    PAGE.write_text(page(rows, PAGE.read_text()))


if __name__ == "__main__":
    main()
