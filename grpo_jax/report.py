"""Shows a run, or compares runs, as one HTML file that needs no server and no network.

python -m grpo_jax.report RUN [RUN ...] [--output FILE]

  RUN              a run folder; the run may still be going on
  --output FILE    where the page goes (default: RUN/report.html for one run, comparison.html for several)

With one RUN: what ran, results with confidence intervals, warnings, curves, completions. With several: their curves
over each other, final results, and the keys of the configuration that differ. Exit status: 0 done, 2 bad command line
or run folder, 3 damaged metrics.
"""

import sys
from pathlib import Path

from absl import flags

from grpo_jax import cli
from grpo_jax.config import ConfigError
from grpo_jax.reporting.page import REPORT, write_comparison, write_report


def main() -> int:
    """Runs the command line; see the module's docstring."""
    if cli.shows_help(__doc__):
        return 0
    if len(sys.argv) == 1:
        print(__doc__)
        return cli.USAGE
    values = flags.FlagValues()
    flags.DEFINE_string("output", None, "Where the page goes.", flag_values=values)
    try:
        folders = [Path(word) for word in values(sys.argv)[1:]]
    except flags.Error as error:
        raise ConfigError(f"command line: {error}") from error
    if not folders:
        raise ConfigError("RUN: got none, wanted one or more run folders. --help shows the command line.")
    output = Path(values.output) if values.output else None
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise ConfigError(f"--output: got {output}, wanted a file in a folder that exists.")
    if len(folders) == 1:
        print(write_report(folders[0], output or folders[0] / REPORT))
    else:
        print(write_comparison(folders, output or Path("comparison.html")))
    return 0


if __name__ == "__main__":
    cli.run(main)
