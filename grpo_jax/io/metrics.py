"""Metrics and samples as JSON lines: one row per line, whole rows only, no duplicates after a resume.

Every row has a ``row`` number that counts up over the whole file, through all phases. A checkpoint
keeps the number of rows written so far (``writer.rows``), and a resumed run calls
``writer.truncate(rows)``: the file is then exactly what it was at that moment.
"""

import json
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from grpo_jax.io import storage
from grpo_jax.io.run_folder import write_json

Kind = Literal["train", "evaluation", "cold_start"]


class RecordsDamaged(ValueError):  # noqa: N818
    """A file of records was changed by something else."""

    exit_status = 3


_logger = logging.getLogger(__name__)
_SHOWN_BYTES, _SHOWN_CHARACTERS = 4096, 80
_RESERVED = frozenset({"row", "step", "kind", "nonfinite"})


class JsonLines:
    """A file of JSON rows that is appended to; each row is on disk when ``append`` returns."""

    def __init__(self, path: Path | None) -> None:
        """Opens or makes the file; a last line that was cut off by a kill is dropped.

        Args:
            path: The file; its folder exists. None where another process writes the same rows: they are counted only.

        Raises:
            ValueError: if a line before the last is no JSON row.
            StorageFailed: if the system refuses to write there.
        """
        self._rows, end = 0, 0
        self._path = path
        self._file = None
        if self._path is None:
            return
        with storage.writing(self._path):
            # Without a buffer: what the system refused to write does not come back when the file is closed.
            self._file = self._path.open("a+b", buffering=0)
            for position, row in _whole_rows(self._path):
                self._rows, end = row["row"] + 1, position
            self._file.truncate(end)

    @property
    def rows(self) -> int:
        """The number of the next row; goes into the checkpoint."""
        return self._rows

    def append(self, values: Mapping[str, Any]) -> None:
        """Writes one row with its number.

        Args:
            values: JSON values by name; numbers are finite.

        Raises:
            ValueError: for a value that is not JSON, such as NaN.
            StorageFailed: if the system refuses to write it.
        """
        line = json.dumps({"row": self._rows, **values}, allow_nan=False)
        if self._path is not None and self._file is not None:
            rest = memoryview(line.encode() + b"\n")
            with storage.writing(self._path):
                while rest:
                    rest = rest[self._file.write(rest) :]
        self._rows += 1

    def truncate(self, rows: int) -> None:
        """Drops what was written after a checkpoint.

        Args:
            rows: ``self.rows`` at the time of the checkpoint. If the file holds fewer, which takes
                a power failure or an edit, a warning says which rows are lost.
        """
        self._rows = rows
        if self._path is None or self._file is None:
            return
        end, kept = 0, 0
        for position, row in _whole_rows(self._path):
            if row["row"] >= rows:
                break
            end, kept = position, row["row"] + 1
        if kept < rows:
            _logger.warning("%s: rows %d to %d are lost, the checkpoint counted %d", self._path, kept, rows - 1, rows)
        with storage.writing(self._path):
            self._file.truncate(end)

    def close(self) -> None:
        """Brings the file to disk and closes it."""
        if self._path is not None and self._file is not None:
            with storage.writing(self._path), self._file as file:
                os.fsync(file.fileno())


class MetricsWriter(JsonLines):
    """Rows of metrics: ``row``, ``step`` (of its own phase), ``kind`` and the metrics by name.

    Attributes:
        followers: Each is given every row as it is written.
    """

    def __init__(self, path: Path | None) -> None:
        """As ``JsonLines``, without followers."""
        super().__init__(path)
        self.followers: list[Callable[[Mapping[str, Any]], None]] = []

    def write(self, kind: Kind, step: int, metrics: Mapping[str, Any]) -> None:
        """Writes one row of metrics.

        Args:
            kind: The phase or the evaluation that the row belongs to.
            step: The step inside that phase; an evaluation has the step of the GRPO phase.
            metrics: Numbers, texts or None by name. Numbers that are not finite are written as null
                and their names listed under ``nonfinite``.
        """
        assert not _RESERVED & metrics.keys(), f"reserved names: {sorted(_RESERVED & metrics.keys())}"
        row = {"step": step, "kind": kind, **_finite(metrics)}
        self.append(row)
        for follower in self.followers:
            follower(row)


class SamplesWriter(JsonLines):
    """Rows of sampled completions with their verdicts: ``row``, ``step`` and the sample's fields."""

    def write(self, step: int, sample: Mapping[str, Any]) -> None:
        """Writes one sample.

        Args:
            step: The step whose policy sampled it.
            sample: JSON values by name.
        """
        assert not {"row", "step"} & sample.keys(), "row and step are reserved names"
        self.append({"step": step, **sample})


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Reads all whole rows of a file of metrics or samples.

    Args:
        path: A file that a writer of this module made; it may still be written to.

    Returns:
        The rows in order.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if a line before the last is no JSON row.
    """
    return [row for _, row in _whole_rows(Path(path))]


def read_kinds(path: Path) -> list[dict[str, Any]]:
    """Reads a file of metrics as ``read_metrics`` does, and checks that each row says of which step and kind it is.

    Args:
        path: A file of metrics.

    Returns:
        The rows in order.

    Raises:
        RecordsDamaged: naming the first row that does not.
    """
    rows = read_metrics(path)
    for row in rows:
        if not isinstance(row.get("kind"), str) or not isinstance(row.get("step"), int):
            raise RecordsDamaged(f"{path}, row {row['row']}: got no 'kind' or no 'step'. Restore the file from a copy.")
    return rows


def write_summary(path: Path, summary: Mapping[str, Any]) -> None:
    """Writes a run's final numbers in one atomic step, as ``MetricsWriter`` writes a row.

    Args:
        path: The JSON file, replaced if it exists.
        summary: Numbers, texts or None by name.
    """
    write_json(path, _finite(summary))


def _whole_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields each row with the byte position of its end; a last line without its newline is left out."""
    position, last = 0, -1
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            position += len(line)
            try:
                row = json.loads(line)
                found = int(row["row"])
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                row, found = {}, -1
            if found <= last:
                raise RecordsDamaged(
                    f"{path}, line {number}: got {_readable(line)}, wanted a JSON object with 'row' above {last}. "
                    "Restore the file from a copy, or start again in a new run folder."
                )
            last = found
            yield position, {**row, "row": found}


def _readable(line: bytes) -> str:
    """What people can read of a line that may hold anything."""
    text = line[:_SHOWN_BYTES].decode(errors="ignore")
    printable = "".join(character for character in text if character.isprintable())[:_SHOWN_CHARACTERS]
    return f"'{printable}'" if printable else f"{len(line):,} bytes without a printable character"


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turns array scalars into plain numbers, and numbers that are not finite into None with their names listed."""
    plain = {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}
    bad = sorted(name for name, value in plain.items() if isinstance(value, float) and not math.isfinite(value))
    finite = {name: None if name in bad else value for name, value in plain.items()}
    return {**finite, "nonfinite": bad} if bad else finite
