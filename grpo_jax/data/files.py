"""Problems from a JSONL or parquet file."""

import json
import logging
import math
import numbers
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from grpo_jax.config import ConfigError, DataConfig
from grpo_jax.data.splits import SPLITS, Split, hash_split, text_hashes
from grpo_jax.records import Problem

LISTED_ROWS = 20
"""How many bad rows one message names."""

NO_DEMONSTRATIONS = (
    "config.cold_start.steps: the {task!r} task has no worked examples to learn from. Set cold_start.steps to 0 "
    "and start from a model that solves some of the problems already."
)

_logger = logging.getLogger(__name__)


class BadRow(NamedTuple):
    """A row that is no problem. ``reason`` is one of few phrases, ``detail`` belongs to the row."""

    row: int
    reason: str
    detail: str = ""


class FileTask:
    """Problems of a file with the columns ``problem`` and ``answer``; every other column goes to ``extra``.

    The column ``split`` (train, validation or test) decides where a row belongs; without that column, the hash of
    the problem's text does. ``validation_problems`` and ``test_problems`` are upper bounds here.
    """

    name = "file"

    def __init__(self, config: DataConfig):
        """Reads the whole file.

        Args:
            config: Its ``path``, ``bad_rows``, ``prompt_template`` and the sizes of the held-out sets are used.

        Raises:
            ConfigError: for a file that is missing or of another kind, for bad rows, or where a split is empty.
        """
        assert config.path is not None, "DataConfig.validate asks for a path"
        path = Path(config.path).expanduser().resolve()
        rows, bad_rows = _check_rows(read_rows(path))
        _report_bad_rows(bad_rows, path, config)
        if not rows:
            raise ConfigError(f"config.data.path: {path} has no usable row. Wanted 'problem' and 'answer' in each.")
        self._problems = _split(rows, path, config)
        _logger.info("%s: %s", path, ", ".join(f"{len(self._problems[split])} {split}" for split in SPLITS))

    def problems(self, split: Split) -> Sequence[Problem]:
        """Returns the problems of a split in the order of the file."""
        return self._problems[split]

    def demonstration(self, problem: Problem, generator: np.random.Generator) -> str:  # noqa: ARG002 - the protocol
        """Raises ConfigError: a file has no worked examples."""
        raise ConfigError(NO_DEMONSTRATIONS.format(task="file"))


def read_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Reads the rows of a file; a line that is no JSON comes as a ``BadRow``.

    Args:
        path: A ``.jsonl`` or ``.parquet`` file.

    Yields:
        Row number, counted from 1 (in JSONL the number of the line), and the row.

    Raises:
        ConfigError: for a file that is missing or of another kind, or when pyarrow is needed and missing.
    """
    if not path.is_file():
        raise ConfigError(f"config.data.path: no file at {path}. Wanted an existing .jsonl or .parquet file.")
    if path.suffix == ".jsonl":
        return _read_jsonl(path)
    if path.suffix == ".parquet":
        return _read_parquet(path)
    raise ConfigError(f"config.data.path: got {path}, wanted a file that ends in .jsonl or .parquet.")


def _read_jsonl(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                yield number, BadRow(number, "not JSON", str(error))


def _read_parquet(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(
            f"config.data.path: {path} needs pyarrow, which is not installed. Run `pip install 'grpo-jax[parquet]'` "
            "or convert the file to .jsonl."
        ) from error
    try:
        with pyarrow.parquet.ParquetFile(path) as table:
            number = 0
            for batch in table.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pyarrow.ArrowInvalid, UnicodeDecodeError) as error:
        raise ConfigError(f"config.data.path: {path} is not a readable parquet file: {error}.") from error


def _check_rows(rows: Iterator[tuple[int, Any]]) -> tuple[list[tuple[int, dict[str, Any]]], list[BadRow]]:
    """Returns usable rows, with their numbers and with the answer as text, and the bad ones."""
    usable: list[tuple[int, dict[str, Any]]] = []
    bad_rows: list[BadRow] = []
    first_seen: dict[str, int] = {}
    for number, row in rows:
        checked = _usable_row(number, row)
        if isinstance(checked, BadRow):
            bad_rows.append(checked)
            continue
        first = first_seen.setdefault(checked["problem"], number)
        if first != number:
            bad_rows.append(BadRow(number, "duplicate problem", f"same as row {first}"))
        else:
            usable.append((number, checked))
    if any(row.get("split") is not None for _, row in usable):
        for number, row in usable:
            if row.get("split") not in SPLITS:
                bad_rows.append(BadRow(number, f"split is not one of {', '.join(SPLITS)}", f"got {row.get('split')!r}"))
        usable = [(number, row) for number, row in usable if row.get("split") in SPLITS]
    return usable, sorted(bad_rows)


def _usable_row(number: int, row: Any) -> dict[str, Any] | BadRow:
    """Returns the row with its answer as text, or what is wrong with it."""
    if isinstance(row, BadRow):
        return row
    if not isinstance(row, dict):
        return BadRow(number, "not an object", f"got {type(row).__name__}")
    problem, answer = row.get("problem"), row.get("answer")
    if problem is None:
        return BadRow(number, "no problem")
    if not isinstance(problem, str):
        return BadRow(number, "problem is not text", f"got {type(problem).__name__}")
    if not problem.strip():
        return BadRow(number, "empty problem")
    fault = _answer_fault(number, answer) or _unicode_fault(number, f"{problem}{answer}") or _extra_fault(number, row)
    return fault or {**row, "answer": str(answer)}


def _answer_fault(number: int, answer: Any) -> BadRow | None:
    if answer is None or (isinstance(answer, str) and not answer.strip()):
        return BadRow(number, "no answer")
    if isinstance(answer, bool) or not isinstance(answer, (str, numbers.Number)):
        return BadRow(number, "answer is neither text nor a number", f"got {type(answer).__name__}")
    if isinstance(answer, float) and not math.isfinite(answer):
        return BadRow(number, "answer is not finite", f"got {answer}")
    return None


def _extra_fault(number: int, row: dict[str, Any]) -> BadRow | None:
    try:
        json.dumps(row, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        # A verifier runs in another process and gets the row as JSON.
        return BadRow(number, "a column that JSON cannot hold", str(error))
    return None


def _unicode_fault(number: int, text: str) -> BadRow | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        # JSON can write half of a surrogate pair, which no tokenizer can take.
        return BadRow(number, "not valid Unicode")
    return None


def _report_bad_rows(bad_rows: Sequence[BadRow], path: Path, config: DataConfig) -> None:
    if not bad_rows:
        return
    if config.bad_rows == "skip":
        counts = Counter(bad.reason for bad in bad_rows)
        _logger.warning(
            "%s: skipped %d bad rows: %s", path, len(bad_rows), ", ".join(f"{n} {why}" for why, n in counts.items())
        )
        return
    raise listed_error(
        f"config.data.path: {path} has {len(bad_rows)} bad rows",
        [f"row {bad.row}: {bad.reason}{f' ({bad.detail})' if bad.detail else ''}" for bad in bad_rows],
        "Correct them, or set data.bad_rows to 'skip' to leave them out.",
    )


def listed_error(what: str, items: Sequence[str], remedy: str) -> ConfigError:
    """Returns an error that names the first ``LISTED_ROWS`` of ``items``, one a line, and how many more there are."""
    listed = "".join(f"\n  {item}" for item in items[:LISTED_ROWS])
    more = f"\n  and {len(items) - LISTED_ROWS} more" if len(items) > LISTED_ROWS else ""
    return ConfigError(f"{what}:{listed}{more}\n{remedy}")


def _split(rows: list[tuple[int, dict[str, Any]]], path: Path, config: DataConfig) -> dict[Split, list[Problem]]:
    from_column = rows[0][1].get("split") is not None
    if from_column:
        chosen = {split: [i for i, (_, row) in enumerate(rows) if row["split"] == split] for split in SPLITS}
        remedy = "Mark some rows as such in the column 'split', or remove the column to split by a hash of the text."
    else:
        hashed = hash_split(text_hashes((row["problem"] for _, row in rows), len(rows)))
        chosen = {split: hashed[split].tolist() for split in SPLITS}
        remedy = "Add rows (a hash of the text holds out 5% for each) or a column 'split' with train, validation, test."
    limits = {"train": len(rows), "validation": config.validation_problems, "test": config.test_problems}
    problems: dict[Split, list[Problem]] = {}
    for split in SPLITS:
        if not chosen[split]:
            raise ConfigError(
                f"config.data.path: none of the {len(rows)} rows of {path} is a {split} problem. {remedy}"
            )
        kept = sorted(chosen[split][: limits[split]])
        problems[split] = [_problem(*rows[row], path, config.prompt_template) for row in kept]
    return problems


def _problem(number: int, row: Mapping[str, Any], path: Path, template: str) -> Problem:
    return Problem(
        identifier=f"{path.name}:{number}",
        prompt=template.replace("{problem}", row["problem"]),
        answer=row["answer"],
        extra={name: value for name, value in row.items() if name not in ("problem", "answer")},
    )
