"""One process tells itself; tests/multiprocess has two."""

import pytest

from grpo_jax.parallel import exchange


def test_one_process_is_everyone():
    told = {"a": [1, 2.5, None]}
    assert exchange.everyone(told) == [told]
    assert exchange.is_first()
    assert exchange.any_process(True)
    assert not exchange.any_process(False)
    assert list(exchange.share(3)) == [0, 1, 2]
    assert exchange.joined([3, 4]) == [3, 4]
    assert exchange.together(lambda: 5) == 5
    assert exchange.on_first(lambda: "told") == "told"
    exchange.require_same({"seed": 1})


def test_what_fails_here_is_raised_here():
    def fail():
        raise FileNotFoundError("there is no such file")

    with pytest.raises(FileNotFoundError, match="no such file"):
        exchange.together(fail)


@pytest.mark.parametrize("processes", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 33])
def test_shares_are_disjoint_whole_and_even(monkeypatch, processes, count):
    monkeypatch.setattr("jax.process_count", lambda: processes)
    shares = []
    for index in range(processes):
        monkeypatch.setattr("jax.process_index", lambda index=index: index)
        shares.append(exchange.share(count))
    assert [place for share in shares for place in share] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_differences_are_named(monkeypatch):
    there = [{"seed": 1, "jax": "0.10"}, {"seed": 1, "jax": "0.10"}, {"seed": 2, "extra": True, "jax": "0.10"}]
    monkeypatch.setattr(exchange, "everyone", lambda _: there)
    with pytest.raises(ValueError, match="differ in") as caught:
        exchange.require_same(there[0])
    assert "seed: 1 on process 0, 2 on process 2" in str(caught.value)
    assert "extra: None on process 0, True on process 2" in str(caught.value)
    assert "jax" not in str(caught.value)
