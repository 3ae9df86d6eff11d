"""Parameters from published tensors, leaf by leaf onto the devices that hold them."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from grpo_jax.models.huggingface import LeafSource, leaf_sources, read_leaf
from grpo_jax.models.parameters import Parameters, init_params
from grpo_jax.models.spec import ModelSpec

_EMBEDDING, _UNEMBEDDING = "model.embed_tokens.weight", "lm_head.weight"
_WITHOUT_MEANING = re.compile(r".*\.rotary_emb\.inv_freq")
"""Tables that old files hold and that follow from the architecture."""


@runtime_checkable
class PublishedTensors(Protocol):
    """Tensors under their published names, of which parts can be read."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of every tensor by name."""
        ...

    def read(self, name: str, window: tuple[slice, ...]) -> np.ndarray:
        """Reads a part of a tensor, a slice of step 1 for each of its axes."""
        ...


class TensorsInMemory:
    """Published tensors that are arrays of this process.

    Attributes:
        shapes: Shape of every tensor by name.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Keeps the arrays, by published name and of any floating dtype."""
        self._arrays = arrays
        self.shapes: Mapping[str, tuple[int, ...]] = {name: array.shape for name, array in arrays.items()}

    def read(self, name: str, window: tuple[slice, ...]) -> np.ndarray:
        """A part of a tensor, a slice of step 1 for each of its axes."""
        return self._arrays[name][window]


def from_huggingface(arrays: Mapping[str, np.ndarray], spec: ModelSpec) -> Parameters:
    """Parameters from published tensors in memory, on the default device; see ``load_params``."""
    abstract = jax.eval_shape(lambda: init_params(jax.random.key(0), spec))
    return load_params(TensorsInMemory(arrays), spec, abstract)


def load_params(tensors: PublishedTensors, spec: ModelSpec, abstract: Parameters) -> Parameters:
    """Reads a published model into arrays that live where they should.

    Each part of each leaf is read on its own, once for all devices of this process that hold it: the host has one part
    at a time, never the whole model.

    Args:
        tensors: From a folder of safetensors or a GGUF file.
        spec: The architecture of the tensors.
        abstract: The tree of ``init_params`` with ``jax.ShapeDtypeStruct`` leaves of float32; one without a sharding
            goes to the default device.

    Returns:
        Nested dict of float32 arrays.

    Raises:
        ValueError: naming tensors that are missing, of another shape, or that nothing would read.
    """
    sources = leaf_sources(spec)
    check_names(tensors, spec, sources)
    params: Parameters = {}
    for source in sources:
        node, wanted = params, abstract
        for key in source.path[:-1]:
            node, wanted = node.setdefault(key, {}), wanted[key]
        leaf = wanted[source.path[-1]]
        assert leaf.shape == source.shape, f"{source.path}: {leaf.shape} against {source.shape}"
        sharding = leaf.sharding or jax.sharding.SingleDeviceSharding(jax.devices()[0])
        node[source.path[-1]] = _placed(tensors, source, sharding)
    return params


def _placed(tensors: PublishedTensors, source: LeafSource, sharding: jax.sharding.Sharding) -> jax.Array:
    devices_of: dict[tuple[tuple[int, int], ...], list[Any]] = {}
    for device, index in sharding.addressable_devices_indices_map(source.shape).items():
        cuts = [cut.indices(size)[:2] for cut, size in zip(index or (), source.shape, strict=True)]
        devices_of.setdefault(tuple(cuts), []).append(device)
    arrays: list[jax.Array] = []
    for cuts, devices in devices_of.items():
        part = read_part(tensors, source, tuple(slice(*cut) for cut in cuts))
        # One at a time: what is under way would keep its copy on the host.
        arrays += [jax.device_put(part, device).block_until_ready() for device in devices]
    return jax.make_array_from_single_device_arrays(source.shape, sharding, arrays)


def check_names(tensors: PublishedTensors, spec: ModelSpec, sources: Sequence[LeafSource]) -> None:
    """Checks that the tensors are those of the architecture, before any is read.

    Args:
        tensors: Published tensors.
        spec: The architecture.
        sources: Its ``leaf_sources``.

    Raises:
        ValueError: naming tensors that are missing, of another shape, or that nothing would read.
    """
    wanted = {name: source.stored_shape for source in sources for name in source.names}
    _refuse("lacks", [name for name in wanted if name not in tensors.shapes])
    _refuse(
        "has wrong shapes of",
        [
            f"{name} (got {list(tensors.shapes[name])}, wanted {list(shape)})"
            for name, shape in wanted.items()
            if tensors.shapes[name] != shape
        ],
    )
    extra = {name for name in tensors.shapes if name not in wanted and not _WITHOUT_MEANING.fullmatch(name)}
    if spec.tie_embeddings and _UNEMBEDDING in extra:
        extra.remove(_UNEMBEDDING)
        _require_tied(tensors)
    _refuse("has unread", sorted(extra), "A model with them computes something that the architecture does not say.")


def _require_tied(tensors: PublishedTensors) -> None:
    rows, columns = tensors.shapes[_EMBEDDING]
    for first in range(0, rows, 4096):
        window = (slice(first, min(first + 4096, rows)), slice(0, columns))
        if not np.array_equal(tensors.read(_EMBEDDING, window), tensors.read(_UNEMBEDDING, window)):
            raise ValueError(
                f"{_UNEMBEDDING}: got values other than those of {_EMBEDDING}, wanted the same, since "
                "tie_word_embeddings is true. Set it to false in config.json to use both."
            )


def _refuse(what: str, names: Sequence[str], remedy: str = "Does config.json belong to these files?") -> None:
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        raise ValueError(f"the model {what} {len(names)} tensors: {', '.join(names[:5])}{more}. {remedy}")


def read_part(tensors: PublishedTensors, source: LeafSource, index: tuple[slice, ...]) -> np.ndarray:
    """Reads a part of one leaf.

    Args:
        tensors: Published tensors.
        source: Where the leaf is among them.
        index: A slice of step 1 for each axis of the leaf. Of axes that are one axis of the published tensor, such as
            heads and their coordinates, only the first may be cut.

    Returns:
        The float32 part.
    """
    ranges = [range(*cut.indices(size)) for cut, size in zip(index, source.shape, strict=True)]
    stacked, own = ranges[: source.stacked], ranges[source.stacked :]
    sizes = source.shape[: source.stacked]
    picked = np.arange(len(source.names)).reshape(sizes)[np.ix_(*stacked)].ravel() if stacked else [0]
    own_sizes = source.shape[source.stacked :]
    if source.inputs:
        inputs = _flat(own[: source.inputs], own_sizes[: source.inputs])
        outputs = _flat(own[source.inputs :], own_sizes[source.inputs :])
        window = (outputs, inputs)
    elif len(source.stored_shape) == len(own):
        window = tuple(slice(cut.start, cut.stop) for cut in own)
    else:
        window = (_flat(own, own_sizes),)
    part = source._replace(
        shape=tuple(map(len, ranges)),
        names=tuple(source.names[position] for position in picked),
        stored_shape=tuple(cut.stop - cut.start for cut in window),
    )
    return read_leaf(_Window(tensors, part.names, window), part)


def _flat(ranges: Sequence[range], sizes: Sequence[int]) -> slice:
    """The one slice of the flattened axes that these ranges are."""
    first, *rest = ranges
    assert all(len(cut) == size for cut, size in zip(rest, sizes[1:], strict=True)), "cut along an inner axis"
    stride = math.prod(sizes[1:])
    return slice(first.start * stride, first.stop * stride)


class _Window(Mapping[str, np.ndarray]):
    """One window of each of some tensors, read when it is looked up."""

    def __init__(self, tensors: PublishedTensors, names: Sequence[str], window: tuple[slice, ...]) -> None:
        self._tensors, self._names, self._window = tensors, names, window

    def __getitem__(self, name: str) -> np.ndarray:
        return self._tensors.read(name, self._window)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
