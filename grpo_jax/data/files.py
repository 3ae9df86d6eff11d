"""Problems from files and from data sets of the Hugging Face library."""

import logging
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from grpo_jax.config import ConfigError, DataConfig
from grpo_jax.data.environments import open_environment
from grpo_jax.data.rows import BadRow, Row, checked_rows, normalized
from grpo_jax.data.sources import Source, open_source
from grpo_jax.data.splits import SPLITS, Split, hash_order, hash_split, text_hashes
from grpo_jax.records import Problem

LISTED_ROWS = 20
"""How many bad rows one message names."""

NO_DEMONSTRATIONS = (
    "config.cold_start.steps: the {task!r} task has no worked examples to learn from. Set cold_start.steps to 0 "
    "and start from a model that solves some of the problems already."
)

_HOLE = re.compile(r"\{problem\}|\{tests\}")

_logger = logging.getLogger(__name__)


class FileTask:
    """Problems of a file; columns besides the problem's and the answer's go to ``extra``.

    The column ``split`` (train, validation or test) decides where a row belongs; without that column, the hash of
    the problem's text does. With ``test_path`` all test problems come from there, and what the other file shares with
    it is left out. ``validation_problems`` and ``test_problems`` are upper bounds here.
    """

    def __init__(self, config: DataConfig, *, whole: bool = False):
        """Reads everything.

        Args:
            config: What names the files, their columns and the sizes of the held-out sets.
            whole: Every row of ``data.path`` is in every split, for evaluations.

        Raises:
            ConfigError: for a file that is missing or of another kind, for bad rows, or where a split is empty.
        """
        assert config.path is not None, "DataConfig.validate asks for a path"
        self.name: str = config.task
        opened = open_environment if config.task == "environment" else open_source
        source = opened(config.path, "data.path")
        if whole:
            every = [_problem(row, source.label, config) for row in _usable(source, config, ())]
            self._problems = dict.fromkeys(SPLITS, every)
        elif config.test_path is None:
            self._problems = _split(_usable(source, config, SPLITS), source, config, SPLITS)
        else:
            held_out = open_source(config.test_path, "data.test_path")
            test_rows = _usable(held_out, config, ())
            rows = _uncontaminated(_usable(source, config, ("train", "validation")), test_rows, source, held_out)
            self._problems = _split(rows, source, config, ("train", "validation"))
            # One file may be called like the other one.
            kept = _sampled(test_rows, config.test_problems)
            self._problems["test"] = [_problem(row, f"test/{held_out.label}", config) for row in kept]
        _logger.info("%s: %s", source.name, ", ".join(f"{len(self._problems[split])} {split}" for split in SPLITS))

    def problems(self, split: Split) -> Sequence[Problem]:
        """Returns the problems of a split in the order of the file."""
        return self._problems[split]

    def demonstration(self, problem: Problem, generator: np.random.Generator) -> str:  # noqa: ARG002 - the protocol
        """Raises ConfigError: a file has no worked examples."""
        raise ConfigError(NO_DEMONSTRATIONS.format(task=self.name))


def _usable(source: Source, config: DataConfig, splits: Sequence[Split]) -> list[Row]:
    """The rows of a source; a column ``split`` may hold ``splits``, and is nothing special where there are none."""
    usable, bad_rows = checked_rows(source.rows, config)
    if splits and any(row.columns.get("split") is not None for row in usable):
        for row in usable:
            split = row.columns.get("split")
            if split not in splits:
                bad_rows.append(BadRow(row.number, f"split is not one of {', '.join(splits)}", f"got {split!r}"))
        usable = [row for row in usable if row.columns.get("split") in splits]
    bad_rows.sort()
    if not usable:
        first = f" The first, {bad_rows[0]}." if bad_rows else ""
        raise ConfigError(
            f"config.{source.key}: {source.name} has no usable row.{first} Wanted {config.problem_column!r} and "
            f"{config.answer_column!r} in each; data.problem_column, data.answer_column and data.answer_format say so."
        )
    _report_bad_rows(bad_rows, source, config)
    return usable


def _report_bad_rows(bad_rows: Sequence[BadRow], source: Source, config: DataConfig) -> None:
    if not bad_rows:
        return
    if config.bad_rows == "skip":
        counts = ", ".join(f"{n} {why}" for why, n in Counter(bad.reason for bad in bad_rows).items())
        _logger.warning("%s: skipped %d bad rows: %s", source.name, len(bad_rows), counts)
        return
    raise listed_error(
        f"config.{source.key}: {source.name} has {len(bad_rows)} bad rows",
        [str(bad) for bad in bad_rows],
        "Correct them, or set data.bad_rows to 'skip' to leave them out.",
    )


def listed_error(what: str, items: Sequence[str], remedy: str) -> ConfigError:
    """Returns an error that names the first ``LISTED_ROWS`` of ``items``, one a line, and how many more there are."""
    listed = "".join(f"\n  {item}" for item in items[:LISTED_ROWS])
    more = f"\n  and {len(items) - LISTED_ROWS} more" if len(items) > LISTED_ROWS else ""
    return ConfigError(f"{what}:{listed}{more}\n{remedy}")


def _uncontaminated(rows: list[Row], test_rows: list[Row], source: Source, held_out: Source) -> list[Row]:
    """The rows whose problem is not a test problem too."""
    known = {normalized(row.problem) for row in test_rows}
    kept = [row for row in rows if normalized(row.problem) not in known]
    if not kept:
        raise ConfigError(
            f"config.data.test_path: every problem of {source.name} is in {held_out.name} too, and none is left to "
            "train on. Name another file, or leave test_path out to have test problems cut from data.path."
        )
    if len(kept) < len(rows):
        _logger.warning(
            "%s: left out %d problems that are test problems of %s too",
            source.name,
            len(rows) - len(kept),
            held_out.name,
        )
    return kept


def _sampled(rows: list[Row], limit: int) -> list[Row]:
    """At most so many rows, a fair sample that depends on the problems alone, in the order of the file."""
    order = hash_order(text_hashes((row.problem for row in rows), len(rows)))
    return [rows[index] for index in sorted(order[:limit].tolist())]


def _split(rows: list[Row], source: Source, config: DataConfig, splits: Sequence[Split]) -> dict[Split, list[Problem]]:
    if rows[0].columns.get("split") is not None:
        chosen = {split: [i for i, row in enumerate(rows) if row.columns["split"] == split] for split in splits}
        remedy = "Mark some rows as such in the column 'split', or remove the column to split by a hash of the text."
    else:
        hashed = hash_split(text_hashes((row.problem for row in rows), len(rows)), held_out=splits[1:])
        chosen = {split: hashed[split].tolist() for split in splits}
        remedy = f"Add rows (a hash of the text holds out 5% for each) or a column 'split' with {', '.join(splits)}."
    limits = {"train": len(rows), "validation": config.validation_problems, "test": config.test_problems}
    problems: dict[Split, list[Problem]] = {}
    for split in splits:
        if not chosen[split]:
            raise ConfigError(
                f"config.{source.key}: none of the {len(rows)} rows of {source.name} is a {split} problem. {remedy}"
            )
        kept = sorted(chosen[split][: limits[split]])
        problems[split] = [_problem(rows[row], source.label, config) for row in kept]
    return problems


def _problem(row: Row, label: str, config: DataConfig) -> Problem:
    taken = (config.problem_column, config.answer_column)
    extra = {name: value for name, value in row.columns.items() if name not in taken}
    holes = {"{problem}": row.problem}
    if row.tests is not None:
        extra["tests"] = row.tests.suite
        holes["{tests}"] = row.tests.shown
    # In one pass: a problem's own text may have holes like these in it.
    prompt = _HOLE.sub(lambda hole: holes.get(hole[0], hole[0]), config.prompt_template)
    return Problem(f"{label}:{row.number}", prompt, row.answer, extra)
