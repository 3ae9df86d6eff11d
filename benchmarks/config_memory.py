"""What every ready configuration holds on each of 8 devices (or of its file's DEVICES), for docs/memory.md.

python -m benchmarks.config_memory

Lowers each configuration's programs from shapes (no weights, a minute of one core) and writes docs/config_memory.json
and the table in docs/memory.md.
"""

import importlib
import json
import pkgutil
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax

import configs
from grpo_jax.config import RunConfig, from_nested
from grpo_jax.footprint import MOMENTS, PARTS, held_bytes
from grpo_jax.forensics.static import GIBIBYTE, markdown_table

DOCS = Path(__file__).resolve().parents[1] / "docs"
FIGURES, PAGE = DOCS / "config_memory.json", DOCS / "memory.md"

DEVICES = 8
SHOWN_BYTES = GIBIBYTE // 100
"""What holds less is left out of the page."""

TABLE = re.compile(r"(?<=<!-- config-memory -->\n).*?(?=<!-- /config-memory -->)", re.DOTALL)


def names() -> Iterator[str]:
    """Every configuration as it is given to --config, behind ``configs/``; one with VARIANTS counts for each."""
    for module in pkgutil.iter_modules(configs.__path__):
        loaded = importlib.import_module(f"configs.{module.name}")
        if hasattr(loaded, "get_config"):
            yield from (f"{module.name}.py:{variant}" for variant in getattr(loaded, "VARIANTS", ()))
            yield from () if hasattr(loaded, "VARIANTS") else (f"{module.name}.py",)


def measured(name: str) -> dict[str, int]:
    """What the configuration of that name holds, see ``names`` and ``held_bytes``."""
    file, colon, variant = name.partition(":")
    loaded = importlib.import_module(f"configs.{file.removesuffix('.py')}")
    config = loaded.get_config(variant) if colon else loaded.get_config()
    if config.data.task == "file" and config.data.path is None:
        config.data.path = "problems.jsonl"  # left to the user
    return held_bytes(from_nested(RunConfig, config.to_dict()), getattr(loaded, "DEVICES", DEVICES))


def page(held: Mapping[str, Mapping[str, int]], text: str) -> str:
    """The page's text with the table of these figures in its place."""
    shown = {f"`{name}`": row for name, row in held.items() if max(row[moment] for moment in MOMENTS) > SHOWN_BYTES}
    table = markdown_table(shown, (*PARTS, *MOMENTS), "GiB on each device")
    return TABLE.sub(lambda _: f"\n{table}\n\n", text)


def main() -> None:
    """Writes the figures."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES)
    held = {name: measured(name) for name in names()}
    FIGURES.write_text(json.dumps(held, indent=2) + "\n")
    PAGE.write_text(page(held, PAGE.read_text()))


if __name__ == "__main__":
    main()
