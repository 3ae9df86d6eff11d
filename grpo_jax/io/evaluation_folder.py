"""The folder of an evaluation's records."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from grpo_jax.io import storage
from grpo_jax.io.metrics import JsonLines
from grpo_jax.io.run_folder import write_json


def open_records(path: Path) -> Path:
    """Makes the folder before there is anything to write: to find out afterwards would cost the whole evaluation.

    Args:
        path: The folder; it and its parents are made if need be.

    Returns:
        The folder.

    Raises:
        FileExistsError: if it holds an evaluation already.
        FolderRefused: if it cannot be made.
        PermissionError: if it cannot be written.
    """
    storage.make_folder(path, "--out")
    for name in ("results.json", "samples.jsonl"):
        if (path / name).exists():
            raise FileExistsError(f"--out: {path} holds an evaluation already, wanted another folder.")
    JsonLines(path / "samples.jsonl").close()
    return path


def write_records(path: Path, result: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes ``samples.jsonl`` and ``results.json``.

    Args:
        path: From ``open_records``.
        result: JSON values by name.
        rows: One for each completion.
    """
    samples = JsonLines(path / "samples.jsonl")
    for row in rows:
        samples.append(row)
    samples.close()
    write_json(path / "results.json", result)
