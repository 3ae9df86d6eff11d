"""Makes the pictures of docs/report.md: reports of recorded runs in headless Chromium, light, dark and on a phone.

python -m benchmarks.report_images [--runs FOLDER]

Trains the quickstart with seeds 0, 1 and 2 and the thinking loop into FOLDER (default: runs/report) unless they are
there.
Needs chromium (Debian: apt-get install chromium) and Pillow, which matplotlib brings.
"""

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

from benchmarks.runs import REPOSITORY, finished
from grpo_jax.reporting.page import write_comparison, write_report

IMAGES = REPOSITORY / "docs" / "images"
COLOURS = 160
"""Of a picture's palette: text stays sharp and the file small."""


def main() -> None:
    """Runs the command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/report"), help="folder of the runs")
    folder = parser.parse_args().runs
    folder.mkdir(parents=True, exist_ok=True)
    seeds = [finished(folder / f"seed{seed}", "configs/quickstart.py", {"seed": seed}) for seed in range(3)]
    loop = finished(folder / "loop", "configs/thinking_loop.py", {})
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "comparison.html"
        report = write_report(seeds[0])
        shoot(report, "report_light", width=1180, top=0, height=1010)
        shoot(report, "report_dark", width=1180, top=2115, height=900, dark=True)
        shoot(report, "report_phone", width=500, top=0, height=1000)
        shoot(write_report(loop), "report_warning", width=1180, top=0, height=860)
        shoot(write_comparison([*seeds, loop], copy), "report_comparison", width=1180, top=0, height=1000)


def shoot(page: Path, name: str, *, width: int, top: int, height: int, dark: bool = False) -> None:
    """Photographs a part of a page.

    Args:
        page: The HTML file.
        name: Of the picture in docs/images.
        width: Of the window; Chromium's least is 500.
        top: Where the picture begins.
        height: Of the picture.
        dark: As for people whose system is dark.
    """
    browser = shutil.which("chromium") or "google-chrome"
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch) / "whole.png"
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={scratch}", f"--window-size={width},{top + height}", f"--screenshot={whole}"]
        command += ["--blink-settings=preferredColorScheme=0"] if dark else []
        subprocess.run([*command, page.resolve().as_uri()], check=True, capture_output=True, timeout=120)
        picture = Image.open(whole).convert("RGB").crop((0, top, width, top + height))
        # By coverage, not by area: the few dots of a colour keep it.
        picture = picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        picture.save(IMAGES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
