"""Folders of safetensors files as models are published: one file, or several with an index."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
import safetensors
from safetensors.numpy import save_file

CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
SHARD_BYTES = 5 * 10**9
"""A folder of more than that is written as several files."""

_FLOATS = ("F64", "F32", "F16", "BF16")
_DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(jnp.bfloat16)}


def read_config(folder: Path) -> dict[str, Any]:
    """Reads the ``config.json`` of a folder.

    Args:
        folder: A published model, or a run.

    Returns:
        Its JSON values; ``spec_from_huggingface`` reads those of a published model.

    Raises:
        ValueError: for a file that is missing or holds no JSON object.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise ValueError(f"{path}: no such file, wanted a folder with a model in it.")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}. Restore it from a copy.") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path}: got a {type(config).__name__}, wanted a JSON object. Restore it from a copy.")
    return config


class SafetensorsFolder:
    """The tensors of a folder; their bytes are read when they are asked for, and no more of them than that.

    Attributes:
        shapes: Shape of every tensor by name.
    """

    def __init__(self, folder: Path) -> None:
        """Reads the headers of every file.

        Args:
            folder: Holds ``model.safetensors``, or files that ``model.safetensors.index.json`` lists.

        Raises:
            ValueError: for files that are missing, damaged or do not hold what the index says, and for tensors
                that are no floating point numbers.
        """
        self._folder = folder
        self._files: dict[str, Any] = {}
        self._file_of = self._names_by_file()
        self.shapes: Mapping[str, tuple[int, ...]] = {}
        kinds: dict[str, str] = {}
        for name, file in self._file_of.items():
            header = self._files[file].get_slice(name)
            self.shapes[name], kinds[name] = tuple(header.get_shape()), header.get_dtype()
        odd = [f"{name} ({kind})" for name, kind in kinds.items() if kind not in _FLOATS]
        if odd:
            raise ValueError(
                f"{folder}: got tensors that are no plain floating point numbers: {_few(odd)}. Wanted "
                f"{', '.join(_FLOATS)}. Quantized models must be converted first."
            )

    def read(self, name: str, window: tuple[slice, ...]) -> np.ndarray:
        """Reads a part of a tensor.

        Args:
            name: The tensor.
            window: A slice of step 1 for each of its axes.

        Returns:
            The part, in the dtype of the file.
        """
        part = self._files[self._file_of[name]].get_slice(name)
        # A tensor without axes has no slices.
        return np.asarray(part[window] if window else self._files[self._file_of[name]].get_tensor(name))

    def _names_by_file(self) -> dict[str, str]:
        index = self._folder / INDEX
        if (self._folder / SINGLE).is_file():
            return dict.fromkeys(self._open(SINGLE), SINGLE)
        if not index.is_file():
            raise ValueError(
                f"{self._folder}: got neither {SINGLE} nor {INDEX}, wanted a published model in safetensors files. "
                "Files of other kinds (.bin, .pt) must be converted first."
            )
        try:
            listed: dict[str, str] = dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"].items())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{index} is no index of safetensors files: {error!r}. Fetch it again.") from error
        outside = sorted(file for file in set(listed.values()) if Path(file).name != file)
        if outside:
            raise ValueError(f"{index}: got the file {outside[0]!r}, wanted files of the same folder. Fetch it again.")
        held = {file: self._open(file) for file in sorted(set(listed.values()))}
        absent = [f"{name} in {file}" for name, file in listed.items() if name not in held[file]]
        unlisted = [f"{name} in {file}" for file, names in held.items() for name in names if listed.get(name) != file]
        for what, names in (("does not hold", absent), ("holds unlisted", unlisted)):
            if names:
                raise ValueError(
                    f"{self._folder} {what} {len(names)} tensors, by {INDEX}: {_few(names)}. Fetch the files again."
                )
        return listed

    def _open(self, file: str) -> set[str]:
        path = self._folder / file
        if not path.is_file():
            raise ValueError(f"{path}: no such file, but {INDEX} lists it. Fetch it again.")
        try:
            self._files[file] = safetensors.safe_open(path, framework="numpy")
        except (safetensors.SafetensorError, OSError) as error:
            raise ValueError(f"{path} cannot be read as safetensors: {error}. Fetch it again.") from error
        return set(self._files[file].keys())


def write_folder(
    folder: Path,
    tensors: Iterable[tuple[str, np.ndarray]],
    dtype: Literal["float32", "bfloat16"],
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Writes tensors as a published model has them; one file's worth of them is in memory at a time.

    Args:
        folder: An existing folder without such files.
        tensors: Names and arrays.
        dtype: What they are rounded to.
        shard_bytes: Size in bytes that a file may have before another one is begun.
    """
    pending: dict[str, np.ndarray] = {}
    parts: list[list[str]] = []
    pending_bytes = total_bytes = 0

    def flush() -> None:
        write_tensors(folder / _part(len(parts)), pending)
        parts.append(list(pending))
        pending.clear()

    for name, array in tensors:
        rounded = np.ascontiguousarray(array.astype(_DTYPES[dtype], copy=False))
        if pending and pending_bytes + rounded.nbytes > shard_bytes:
            flush()
            pending_bytes = 0
        pending[name] = rounded
        pending_bytes += rounded.nbytes
        total_bytes += rounded.nbytes
    flush()
    if len(parts) == 1:
        (folder / _part(0)).rename(folder / SINGLE)
        return
    weight_map = {}
    for number, names in enumerate(parts):
        final = f"model-{number + 1:05}-of-{len(parts):05}.safetensors"
        (folder / _part(number)).rename(folder / final)
        weight_map |= dict.fromkeys(names, final)
    index = {"metadata": {"total_size": total_bytes}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Writes one file of tensors."""
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)  # the library gives files to their owner alone


def _part(number: int) -> str:
    return f"part-{number}.safetensors"


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(sorted(names)[:5]) + more
