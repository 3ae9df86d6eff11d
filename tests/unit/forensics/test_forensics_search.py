import re

import pytest

from grpo_jax.config import ConfigError
from grpo_jax.forensics import search
from grpo_jax.forensics.hardware import parse_topology


@pytest.mark.parametrize("start", range(1, 41, 3))
@pytest.mark.parametrize("stride", [1, 2, 4])
@pytest.mark.parametrize("limit", [0, 1, 7, 26, 40])
def test_the_last_that_fits_is_found_from_anywhere(start, stride, limit):
    sizes = list(range(1, 41))
    found = search.last_fitting(sizes, start, stride, lambda size: size <= limit)
    assert found.best == (limit or None)
    assert all(fits == (size <= limit) for size, fits in found.tried.items())
    assert next(iter(found.tried)) == start


def test_few_are_tried():
    sizes = search.quarters(1024, 2**20, 16384)
    found = search.last_fitting(sizes, 16384, 4, lambda tokens: tokens <= 100_000)
    assert (found.best, len(found.tried)) == (98304, 6)
    assert search.quarters(1, 8, 3) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_topologies_grow_as_they_can_be_had():
    names = lambda text, most: [one.name for one in search.smaller_and_larger(parse_topology(text), most)]  # noqa: E731
    assert names("v5p:4x4x4", 64) == ["v5p:2x2x1", "v5p:2x2x2", "v5p:2x2x4", "v5p:2x4x4", "v5p:4x4x4"]
    assert names("v6e:2x4", 32) == ["v6e:2x2", "v6e:2x4", "v6e:4x4", "v6e:4x8"]
    shares = [f"h100:1x{part}" for part in (1, 2, 4)]
    assert names("h100:8x8", 64) == shares + [f"h100:{hosts}x8" for hosts in range(1, 9)]
    assert names("h100:9x2", 20) == ["h100:1x1", *(f"h100:{hosts}x2" for hosts in range(1, 11))]


@pytest.fixture
def needed(monkeypatch):
    """Stands for compiling: bytes grow with tokens and rows, and are shared by devices."""

    def answer(candidate, topology):
        tokens, rows = candidate.program
        return (tokens * rows * 2**20 + 16 * 10**9 * 8 // topology.devices) if tokens < 10**6 else None

    monkeypatch.setattr(search, "_needed_bytes", answer)


def lowered(point):
    return search.Candidate((point.tokens, point.rows), 0)


def test_each_size_is_searched_for_on_its_own(needed, capsys):
    start = search.Point(parse_topology("h100:1x8"), 16384, 1)
    found = search.searched(None, start, lambda one: one.devices in (2, 4, 8, 16), lowered)
    assert {name: outcome["best"] for name, outcome in found.items()} == {"tokens": 57344, "rows": 3, "devices": 4}
    assert found["tokens"]["tried"][65536] is False
    progress = capsys.readouterr()
    assert progress.out == ""
    assert len(re.findall("h100:1x8, 16384 tokens, 1 rows", progress.err)) == 1, "each is compiled once"
    crowded = start._replace(tokens=65536)
    found = search.searched(["devices"], crowded, lambda one: one.devices in (2, 4, 8, 16), lowered)
    assert found == {"devices": {"best": 16, "tried": {8: False, 16: True}}}


@pytest.mark.parametrize(
    ("wanted", "topology", "message"),
    [
        (["depth"], "h100:1x8", r"--search_over: got depth, wanted some of tokens,rows,devices"),
        (None, "cpu:8", r"--search: got cpu:8, wanted devices whose memory is known"),
    ],
)
def test_other_searches_are_refused(wanted, topology, message):
    with pytest.raises(ConfigError, match=message):
        search.searched(wanted, search.Point(parse_topology(topology), 16, 1), lambda _: True, lowered)
