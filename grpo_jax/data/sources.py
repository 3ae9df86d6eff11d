"""Rows out of JSONL, JSON, CSV and parquet files and data sets of the Hugging Face library."""

import csv
import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from grpo_jax.config import ConfigError

HUB = "hf:"
"""Begins the name of a data set on the Hugging Face hub: ``hf:OWNER/NAME[/SUBSET]:SPLIT``."""

WANTED = (
    "a .jsonl, .json, .csv or .parquet file, FOLDER[:SPLIT] as the datasets library saves it, or "
    "hf:OWNER/NAME[/SUBSET]:SPLIT"
)

LONGEST_CELL_CHARACTERS = 1 << 24
"""Of a CSV file. The library's own limit of 131,072 is less than some solutions have."""


class Unreadable(NamedTuple):
    """Stands in the place of a row that cannot be read."""

    reason: str
    detail: str


class Source(NamedTuple):
    """Rows that have not been read yet.

    Attributes:
        key: Configuration key that names them.
        name: Where they are, in full.
        label: The same in short; the number of a row makes it the name of a problem.
        rows: Row number, counted from 1 (in JSONL the number of the line), and the row or ``Unreadable``.
    """

    key: str
    name: str
    label: str
    rows: Iterator[tuple[int, Any]]


def open_source(text: str, key: str) -> Source:
    """Finds out what a configuration value names.

    Args:
        text: The value: a file, a folder, or a name on the hub.
        key: Its key, for messages.

    Returns:
        The rows.

    Raises:
        ConfigError: for what is missing or of another kind, and where a library is needed that is not installed. Some
            of it is only found when the rows are read.
    """
    if text.startswith(HUB):
        return Source(key, text, text, _read_hub(text, key))
    path = Path(text).expanduser().resolve()
    folder, colon, split = str(path).rpartition(":")
    if path.is_dir():
        return Source(key, str(path), path.name, _read_saved(path, None, key))
    if colon and Path(folder).is_dir():
        return Source(key, str(path), path.name, _read_saved(Path(folder), split, key))
    readers = {".jsonl": _read_jsonl, ".json": _read_json, ".csv": _read_csv, ".parquet": _read_parquet}
    if not path.is_file():
        raise ConfigError(f"config.{key}: no file at {path}. Wanted {WANTED}.")
    if path.suffix not in readers:
        raise ConfigError(f"config.{key}: got {path}, wanted a file that ends in {', '.join(readers)}.")
    return Source(key, str(path), path.name, readers[path.suffix](path, key))


def _read_jsonl(path: Path, _: str) -> Iterator[tuple[int, Any]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                yield number, Unreadable("not JSON", str(error))


def _read_json(path: Path, key: str) -> Iterator[tuple[int, Any]]:
    """One list of rows, as some data sets are published."""
    try:
        rows = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"config.{key}: {path} is not JSON: {error}. One row a line is a .jsonl file.") from error
    if not isinstance(rows, list):
        raise ConfigError(f"config.{key}: {path} holds a {type(rows).__name__}, wanted a list of rows.")
    yield from enumerate(rows, start=1)


def _read_csv(path: Path, key: str) -> Iterator[tuple[int, Any]]:
    """Rows below a line of column names; every cell is text."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_CELL_CHARACTERS))
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, strict=True)
            names = next(lines, [])
            if len(set(names)) != len(names) or not all(names):
                raise ConfigError(f"config.{key}: {path} begins with {names}, wanted a line of different column names.")
            for number, cells in enumerate(filter(None, lines), start=1):
                if len(cells) == len(names):
                    yield number, dict(zip(names, cells, strict=True))
                else:
                    yield number, Unreadable("not as many cells as columns", f"{len(cells)} for {len(names)} columns")
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"config.{key}: {path} is not a readable CSV file: {error}.") from error


def _read_parquet(path: Path, key: str) -> Iterator[tuple[int, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise _not_installed(key, path, "pyarrow", "parquet") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as table:
            batches = (batch.to_pylist() for batch in table.iter_batches())
            yield from enumerate((row for batch in batches for row in batch), start=1)
    except (pyarrow.ArrowInvalid, UnicodeDecodeError) as error:
        raise ConfigError(f"config.{key}: {path} is not a readable parquet file: {error}.") from error


def _read_saved(folder: Path, split: str | None, key: str) -> Iterator[tuple[int, Any]]:
    datasets = _library(key, folder)
    try:
        loaded = datasets.load_from_disk(str(folder))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"config.{key}: {folder} is no folder that save_to_disk() of the datasets library wrote: {error} Of a "
            "folder that was downloaded, name the .parquet or .jsonl file in it."
        ) from error
    splits = list(loaded) if isinstance(loaded, datasets.DatasetDict) else []
    if (split is None) != (not splits) or (split is not None and split not in splits):
        wanted = f"{folder} with one of :{', :'.join(splits)} behind it" if splits else f"{folder} alone"
        raise ConfigError(f"config.{key}: got {folder}{'' if split is None else f':{split}'}, wanted {wanted}.")
    yield from enumerate(loaded if split is None else loaded[split], start=1)


def _read_hub(text: str, key: str) -> Iterator[tuple[int, Any]]:
    name, _, split = text.removeprefix(HUB).partition(":")
    owner, _, rest = name.partition("/")
    repository, slash, subset = rest.partition("/")
    if not (owner and repository and split) or (slash and not subset):
        raise ConfigError(f"config.{key}: got {text!r}, wanted hf:OWNER/NAME:SPLIT or hf:OWNER/NAME/SUBSET:SPLIT.")
    datasets = _library(key, text)
    try:
        loaded = datasets.load_dataset(f"{owner}/{repository}", subset or None, split=split)
    except (OSError, ValueError) as error:
        raise ConfigError(f"config.{key}: {text} cannot be loaded: {type(error).__name__}: {error}") from error
    yield from enumerate(loaded, start=1)


def _library(key: str, what: Any) -> Any:
    try:
        return importlib.import_module("datasets")
    except ImportError as error:
        raise _not_installed(key, what, "datasets", "datasets") from error


def _not_installed(key: str, what: Any, package: str, extra: str) -> ConfigError:
    return ConfigError(
        f"config.{key}: {what} needs {package}, which is not installed. Run `pip install 'grpo-jax[{extra}]'` or "
        "convert the rows to .jsonl."
    )
