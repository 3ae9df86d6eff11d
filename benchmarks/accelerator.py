"""Everything worth knowing of the product on the device that is here: speed, memory, and whether numbers are right.

python -m benchmarks.accelerator [CASE ...] [--minutes M] [--out FILE.json] [--trace DIR] [--steps N] [--scale small]
python -m benchmarks.accelerator --merge FILE.json

  CASE             checks (attention and log-probabilities against float32), quickstart, smollm2_135m, qwen2.5-1.5b
                   (random weights, 8,192 tokens in a row); all of them without names
  --minutes M      time for everything (default: 30); a case that has no time left is left out, one at work is ended
  --out FILE.json  where figures go, those of other devices in it are kept (default: docs/accelerator.json, of which the
                   section in docs/performance.md is made anew)
  --trace DIR      a profile of one more step of each case, for TensorBoard or xprof
  --steps N        steps after the one that compiles (default: 3); figures are their medians
  --scale small    a small model in the place of qwen2.5-1.5b, for a processor
  --merge FILE     measures nothing: takes the figures of another machine into docs/accelerator.json and the page

Each case has a process of its own, since a device never forgets its highest memory use, and one device. Figures are
written after every case. Runs are those of `grpo_jax.train` with its own programs, in bfloat16 (float32 on a
processor), without evaluations and checkpoints; no completion ends early, and rewards alternate, so that every row is
trained on.

Exit status: 0 done (also where memory or time ran out, which is a result), 1 a case failed or a check did not hold.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import accelerator_page
from benchmarks.accelerator_runs import CASES, MODEL, SMALL
from grpo_jax import cli
from grpo_jax.config import ConfigError
from grpo_jax.data.installed import located

ROOT = Path(__file__).resolve().parents[1]
FIGURES, PAGE = ROOT / "docs" / "accelerator.json", ROOT / "docs" / "performance.md"

ONE_DEVICE = {
    "CUDA_VISIBLE_DEVICES": "0",
    "TPU_VISIBLE_CHIPS": "0",
    "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
    "TPU_PROCESS_BOUNDS": "1,1,1",
}
"""What shows a process one device, where nothing else is set."""

WEIGHTS = {"smollm2_135m": "smollm2-135m"}
"""Cases that start from an installed model."""

GRACE_SECONDS = 20.0
"""Left to a case that should have ended by itself."""

Figures = dict[str, dict[str, Any]]
"""Of each kind of device: ``device``, and ``rows`` by case."""


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """What a case's process finds: one device, and the processor beside it."""
    platforms = given.get("JAX_PLATFORMS", "")
    beside = {"JAX_PLATFORMS": f"{platforms},cpu"} if platforms and "cpu" not in platforms.split(",") else {}
    return {**ONE_DEVICE, **given, **beside}


def missing(case: str) -> str | None:
    """Why a case cannot be measured on this machine, or None."""
    if case not in WEIGHTS:
        return None
    try:
        located(WEIGHTS[case])
    except ConfigError as error:
        return str(error)
    return None


def measured(case: str, seconds: float, part: Path, steps: int, trace: Path | None) -> dict[str, Any]:
    """Measures a case in a process of its own.

    Args:
        case: One of ``CASES``.
        seconds: Time there is.
        part: File for what it knows.
        steps: Steps after the one that compiles.
        trace: Folder for profiles.

    Returns:
        ``row``, and ``device`` where it came that far. A row has ``ended`` if time ran out, ``failed`` if it broke.
    """
    command = [sys.executable, "-m", "benchmarks.accelerator_case", case, f"--part={part}", f"--steps={steps}"]
    command += [f"--seconds={max(seconds - GRACE_SECONDS, 1)}"]
    command += [] if trace is None else [f"--trace={trace / case}"]
    part.unlink(missing_ok=True)
    with tempfile.TemporaryFile("w+") as errors:
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment(os.environ), stderr=errors, timeout=seconds, check=False
            )
            status: int | None = done.returncode
        except subprocess.TimeoutExpired:
            status = None
        errors.seek(0)
        said = errors.read()
    print(said, end="", file=sys.stderr)
    found = json.loads(part.read_text()) if part.exists() else {"row": {}}
    return {**found, "row": found["row"] | ending(status, said, seconds)}


def ending(status: int | None, said: str, seconds: float) -> dict[str, Any]:
    """What is recorded of how a case's process ended.

    Args:
        status: Its exit status; None where it was ended.
        said: Its standard error.
        seconds: Time that it had.

    Returns:
        Nothing, or ``ended``, ``out_of_memory`` or ``failed`` with the reason.
    """
    if status == 0:
        return {}
    if status is None:
        return {"ended": f"after {seconds:.0f} s, when time was over; figures are of what was done by then"}
    lines = said.strip().splitlines() or ["nothing was said"]
    if cli.exhausted(RuntimeError(said)):
        return {"out_of_memory": next(line for line in reversed(lines) if cli.exhausted(RuntimeError(line)))}
    return {"failed": f"status {status}: {lines[-1]}"}


def merged(figures: Figures, part: Mapping[str, Any], case: str) -> Figures:
    """Figures with those of a case, below the kind of device that it ran on."""
    device = part.get("device", {"kind": "unknown device"})
    old = figures.get(device["kind"], {"rows": {}})
    rows = {**old["rows"], case: part["row"]}
    ordered = {name: rows[name] for name in CASES if name in rows}
    return {**figures, device["kind"]: {"device": old.get("device", {}) | device, "rows": ordered}}


def wrong(row: Mapping[str, Any]) -> bool:
    """Whether a row says that something is not as it should be."""
    return "failed" in row or not all(outcome["ok"] for outcome in row.get("outcomes", {}).values())


def read(path: Path) -> Figures:
    """The figures in a file, or none."""
    return json.loads(path.read_text()) if path.exists() else {}


def write(figures: Figures, path: Path) -> None:
    """Writes the figures, and the page if they are its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".fresh")
    fresh.write_text(json.dumps(figures, indent=2) + "\n")
    fresh.replace(path)
    if path.resolve() == FIGURES:
        PAGE.write_text(accelerator_page.page(figures, PAGE.read_text()))


def measure(cases: list[str], ends: float, out: Path, steps: int, trace: Path | None) -> bool:
    """Measures cases one after the other, as long as there is time.

    Args:
        cases: Their names.
        ends: When time is over, by ``time.monotonic``.
        out: File for the figures.
        steps: Steps of each after the one that compiles.
        trace: Folder for profiles.

    Returns:
        Whether everything that was measured is as it should be.
    """
    right, kind = True, None
    for case in cases:
        left = ends - time.monotonic()
        if reason := missing(case):
            print(f"{case}: left out. {reason}", file=sys.stderr)
            continue
        if left < CASES[case]:
            print(f"{case}: left out: {left:.0f} s left, wanted {CASES[case]} at least (--minutes)", file=sys.stderr)
            continue
        print(f"== {case} ({left:.0f} s left)", file=sys.stderr, flush=True)
        part = measured(case, left, out.with_suffix(f".{case}.part"), steps, trace)
        kind = part.setdefault("device", {"kind": kind or "unknown device"})["kind"]
        write(merged(read(out), part, case), out)
        out.with_suffix(f".{case}.part").unlink(missing_ok=True)
        right &= not wrong(part["row"])
    return right


def main() -> int:
    """Measures what is asked for."""
    if cli.shows_help(__doc__):
        return 0
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--out", type=Path, default=FIGURES)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--scale", choices=("full", "small"), default="full")
    parser.add_argument("--merge", type=Path)
    given = parser.parse_args()
    if given.merge is not None:
        write(read(FIGURES) | json.loads(given.merge.read_text()), FIGURES)
        return 0
    known = [case for case in CASES if case != f"{MODEL}{SMALL}"]
    if unknown := set(given.cases) - set(known):
        parser.error(f"CASE: got {', '.join(sorted(unknown))}, wanted some of {', '.join(known)}")
    if given.steps < 1 or given.minutes <= 0:
        parser.error("--steps, --minutes: wanted 1 or more, and more than 0")
    cases = [f"{case}{SMALL}" if case == MODEL and given.scale == "small" else case for case in given.cases or known]
    right = measure(cases, time.monotonic() + 60 * given.minutes, given.out.absolute(), given.steps, given.trace)
    print(accelerator_page.section(read(given.out)))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
