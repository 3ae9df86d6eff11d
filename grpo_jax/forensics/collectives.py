"""How much a compiled program moves between devices, read from its text."""

import math
import re
from collections import defaultdict
from typing import NamedTuple

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
"""Operations that move data between devices."""

_COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) .*\{$")
_OPERATION = re.compile(rf"^\s+(?:ROOT )?%?\S+ = (?P<shape>.*?) (?P<kind>{'|'.join(KINDS)})(?P<start>-start)?\(")
_ARRAY = re.compile(r"\b(?P<dtype>[a-z]+\d*[a-z0-9]*)\[(?P<sizes>[\d,]*)\]")
_CALLED = re.compile(r"(?:calls|to_apply|condition|branch_computations|called_computations)=\{?(?P<names>[^}\s]+)\}?")
_BODY = re.compile(r"\bbody=%?(?P<name>[\w.\-]+)")
_ROUNDS = re.compile(r'"known_trip_count":\{"n":"(?P<rounds>\d+)"\}')


class Traffic(NamedTuple):
    """What one device sends or receives in a program.

    Attributes:
        bytes: By kind of operation: the larger of what it takes and what it gives, however it is moved.
        counts: How many operations of each kind run.
        open_loops: Loops whose rounds are not known before they run; they count once.
    """

    bytes: dict[str, float]
    counts: dict[str, float]
    open_loops: int


class _Computation(NamedTuple):
    operations: list[tuple[str, int]]
    calls: list[tuple[str, int]]
    open_loops: int


def traffic(text: str) -> Traffic:
    """Adds up a program's collective operations; loops count every time they run.

    Args:
        text: The optimised program, ``jax.stages.Compiled.as_text()``.

    Returns:
        Its traffic on each device.
    """
    computations, entry = _computations(text)
    moved, counts = defaultdict(float), defaultdict(float)
    open_loops = 0

    def visit(name: str, times: int) -> None:
        nonlocal open_loops
        computation = computations[name]
        open_loops += computation.open_loops
        for kind, size in computation.operations:
            moved[kind] += times * size
            counts[kind] += times
        for called, rounds in computation.calls:
            visit(called, times * rounds)

    visit(entry, 1)
    return Traffic(dict(moved), dict(counts), open_loops)


def _computations(text: str) -> tuple[dict[str, _Computation], str]:
    found: dict[str, _Computation] = {}
    current, entry = _Computation([], [], 0), ""
    for line in text.splitlines():
        if begun := _COMPUTATION.match(line):
            current = found[begun["name"]] = _Computation([], [], 0)
            entry = begun["name"] if begun["entry"] else entry
            continue
        if operation := _OPERATION.match(line):
            size = _moved_bytes(operation["shape"], started=operation["start"] is not None, kind=operation["kind"])
            current.operations.append((operation["kind"], size))
        if body := _BODY.search(line):
            rounds = _ROUNDS.search(line)
            current.calls.append((body["name"], int(rounds["rounds"]) if rounds else 1))
            if rounds is None:
                found[next(reversed(found))] = current = current._replace(open_loops=current.open_loops + 1)
        for called in _CALLED.finditer(line):
            current.calls.extend((name.strip().lstrip("%"), 1) for name in called["names"].split(",") if name.strip())
    known = {name: one._replace(calls=[call for call in one.calls if call[0] in found]) for name, one in found.items()}
    return known, entry


def _moved_bytes(shape: str, *, started: bool, kind: str) -> int:
    parts = _parts(shape)
    if started and kind != "all-reduce" and len(parts) >= 2:
        # What is started stands for what it takes and what it will give.
        return max(map(_bytes, parts[:2]))
    return _bytes(shape)


def _parts(shape: str) -> list[str]:
    """The elements of a tuple, or the shape itself."""
    if not shape.startswith("("):
        return [shape]
    depth, begun, parts = 0, 1, []
    for at, letter in enumerate(shape):
        depth += (letter in "([{") - (letter in ")]}")
        if (letter == "," and depth == 1) or (letter == ")" and depth == 0):
            parts.append(shape[begun:at])
            begun = at + 1
    return parts


def _bytes(shape: str) -> int:
    return sum(
        math.prod(int(size) for size in array["sizes"].split(",") if size) * _width(array["dtype"])
        for array in _ARRAY.finditer(re.sub(r"\{[^}]*\}", "", shape))
    )


def _width(dtype: str) -> int:
    """Bytes of one number: the digits of its type's name, which float8's go on behind."""
    if dtype == "pred":
        return 1
    digits = re.match(r"[a-z]+(\d+)", dtype)
    return max(1, int(digits[1]) // 8) if digits else 0
