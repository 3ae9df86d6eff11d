"""Names of the folders of runs that were given none."""

import datetime
import glob
from pathlib import Path

RUNS = Path("runs")
"""Where such folders lie, seen from where the run is started."""


def fresh_workdir(config_name: str) -> Path:
    """Names a new run's folder by its config and the local time, as in ``runs/base-20250131-142501-062500``.

    The time is given to the microsecond, so that runs started by one script have folders of their own. Nothing is made.

    Args:
        config_name: The configuration file's name without its ending.
    """
    return RUNS / f"{config_name}-{datetime.datetime.now():%Y%m%d-%H%M%S-%f}"


def newest_workdir(config_name: str) -> Path | None:
    """Finds the folder that ``fresh_workdir`` named last among those that hold a run.

    Args:
        config_name: See ``fresh_workdir``.

    Returns:
        The folder, or None if there is none.
    """
    time = "-".join("[0-9]" * digits for digits in (8, 6, 6))
    found = RUNS.glob(f"{glob.escape(config_name)}-{time}/config.json")
    return max((config.parent for config in found), default=None)
