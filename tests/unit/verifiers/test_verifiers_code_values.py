import collections
import decimal
import fractions
import json
import math

import pytest

from grpo_jax.verifiers.code import values


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(2**53),
        1 << 4000,
        1.5,
        -0.0,
        math.inf,
        "text",
        "\ud800",
        b"\0\xff",
        1 + 2j,
        (),
        (1, (2,)),
        [[]],
        {1: "a", (2, 3): [None]},
        {1, 2},
        frozenset({"a"}),
        collections.deque([1]),
        range(1, 10, 2),
        decimal.Decimal("1.10"),
        fractions.Fraction(10**400, 3),
    ],
)
def test_plain_values_go_through_json_with_their_exact_types(value):
    back = values.decode(json.loads(json.dumps(values.encode(value))))
    assert (type(back), repr(back)) == (type(value), repr(value))


def test_integers_past_python_s_limit_of_digits_go_through_too():
    assert values.decode(values.encode(10**5000)) == 10**5000


def test_a_nan_stays_one_and_relatives_of_dict_become_one():
    assert math.isnan(values.decode(values.encode(math.nan)))
    for relative in (collections.OrderedDict(a=1), collections.Counter("a"), collections.defaultdict(int, a=1)):
        assert values.decode(values.encode(relative)) == {"a": 1}


class Integer(int):
    pass


@pytest.mark.parametrize("value", [Integer(3), object(), len, (x for x in ()), [Integer(3)], type("L", (list,), {})()])
def test_other_types_have_no_plain_form(value):
    with pytest.raises(values.NotPlainError, match="a "):
        values.encode(value)
    assert values.encode(value, lambda other: "referred") in ("referred", ["list", ["referred"]])


def test_nesting_is_bounded():
    value: list = []
    for _ in range(values.MAX_DEPTH + 1):
        value = [value]
    with pytest.raises(values.NotPlainError, match="nested too deep"):
        values.encode(value)
    cyclic: list = []
    cyclic.append(cyclic)
    with pytest.raises(values.NotPlainError, match="nested too deep"):
        values.encode(cyclic)


@pytest.mark.parametrize(
    "message",
    [
        {},
        [],
        ["list"],
        ["list", 3],
        ["list", {"a": 1}],
        ["dict", [[1]]],
        ["dict", [[["list", []], 1]]],
        ["int", "x"],
        ["int", 5],
        ["float", "1e3"],
        ["bytes", "zz"],
        ["complex", [1]],
        ["object", 1],
        ["code", "x"],
        [3, 4],
        ["set", [["list", []]]],
        ["range", ["0x1", "0x2", "0x0"]],
        ["fraction", ["0x1", "0x0"]],
        ["decimal", "x"],
    ],
)
def test_messages_of_another_form_are_refused(message):
    with pytest.raises(values.NotPlainError):
        values.decode(message)


def keys(count: int, step: int = 1) -> list:
    return [["int", hex(place * step)] for place in range(count)]


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        (["dict", [[key, 0] for key in keys(values.MAX_KEYS_OF_A_HASH + 1, 2**61 - 1)]], "too many keys of one hash"),
        (["set", keys(values.MAX_KEYS_OF_A_HASH + 1, 2**61 - 1)], "too many keys of one hash"),
        (["frozenset", [["tuple", [key]] for key in keys(65, 2**61 - 1)]], "too many keys of one hash"),
        (["set", keys(values.MAX_KEYS + 1)], "too many keys"),
        (["list", [["set", keys(values.MAX_KEYS // 2)], ["set", keys(values.MAX_KEYS // 2 + 1)]]], "too many keys"),
        (["int", "0x" + "f" * (values.MAX_INTEGER_BITS // 4)], "too large a number"),
        (["fraction", ["0x" + "f" * (values.MAX_RATIO_BITS // 4), "0x3"]], "too large a number"),
        (["decimal", "9" * values.MAX_RATIO_BITS], "no type 'decimal'"),
    ],
)
def test_what_takes_long_to_build_or_use_is_refused_before(message, fault):
    with pytest.raises(values.NotPlainError) as caught:
        values.decode(message)
    causes = []
    error: BaseException | None = caught.value
    while error is not None:
        causes.append(str(error))
        error = error.__cause__
    assert fault in causes


def test_large_containers_of_usual_keys_are_read():
    usual = dict.fromkeys(range(-5000, 5000))
    assert values.decode(values.encode(usual)) == usual
    grid = {(x, y, z) for x in range(-9, 10) for y in range(-9, 10) for z in range(-9, 10)}
    assert values.decode(values.encode(grid)) == grid
    texts = {str(place) for place in range(values.MAX_KEYS)}
    assert values.decode(values.encode(texts)) == texts


def test_a_deep_message_is_refused():
    message: list = []
    for _ in range(100_000):
        message = ["list", [message]]
    with pytest.raises(values.NotPlainError, match="not a list"):
        values.decode(message)
    while message:
        # Freed level by level.
        message = message[1][0] if len(message) > 1 else []
