"""Plain values as JSON and back, with exact types, so that no object of a hostile program reaches the judge.

JSON's own ``null``, booleans, strings and numbers stand for themselves. Everything else is a pair of a type's name
and its content: ``["tuple", [1, 2]]``, ``["dict", [[key, value], ...]]``, ``["int", "0x..."]`` for large integers.
Standard library only: it runs in the sandbox too.
"""

import collections
import decimal
import fractions
import math
from collections.abc import Callable, Iterable
from typing import Any

MAX_DEPTH = 100
"""Containers inside containers; deeper values count as not plain."""
MAX_KEYS, MAX_KEYS_OF_A_HASH = 20_000, 64
"""Keys of dictionaries and items of sets in one value, and those of one container that share a hash: a hostile value
has hashes that make such a container take quadratic time. Honest ones meet too, as those of (-1, 0) and (-2, 0)."""
MAX_INTEGER_BITS, MAX_RATIO_BITS = 1 << 20, 1 << 14
"""Of an integer; and of a fraction's parts and a decimal's text, on which more than linear work is done."""
_SMALL = 1 << 53
_SEQUENCES = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": collections.deque}
# They compare as dictionaries do, so a program that returns one means a dictionary.
_DICTIONARIES = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
_SCALARS = (int, float, bytes, complex, range, decimal.Decimal, fractions.Fraction)
_SPECIAL_FLOATS = ("nan", "inf", "-inf")


class NotPlainError(ValueError):
    """A value has no plain form, or a text is no plain value."""


def encode(value: Any, reference: Callable[[Any], Any] | None = None, depth: int = 0) -> Any:
    """Turns a value into JSON values.

    >>> encode((1, [2.5, None]))
    ['tuple', [1, ['list', [2.5, None]]]]

    Args:
        value: Of exactly one of the plain types; a subclass is not plain.
        reference: Makes JSON values of what is not plain.
        depth: Containers around the value.

    Returns:
        JSON values.

    Raises:
        NotPlainError: if there is something that is not plain, and no ``reference``.
    """
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind in _SCALARS:
        return _encode_scalar(value)
    if depth >= MAX_DEPTH:
        raise NotPlainError("nested too deep")
    if kind in _DICTIONARIES:
        pairs = [[encode(part, reference, depth + 1) for part in pair] for pair in dict.items(value)]
        return ["dict", pairs]
    for name, sequence in _SEQUENCES.items():
        if kind is sequence:
            return [name, [encode(part, reference, depth + 1) for part in value]]
    if reference is not None:
        return reference(value)
    raise NotPlainError(f"a {kind.__name__}")


def _encode_scalar(value: Any) -> Any:
    match value:
        case int():
            return value if -_SMALL < value < _SMALL else ["int", hex(value)]
        case float():
            return value if math.isfinite(value) else ["float", repr(value)]
        case complex():
            return ["complex", [repr(value.real), repr(value.imag)]]
        case range():
            return ["range", [hex(part) for part in (value.start, value.stop, value.step)]]
        case decimal.Decimal():
            return ["decimal", str(value)]
        case fractions.Fraction():
            return ["fraction", [hex(value.numerator), hex(value.denominator)]]
    return ["bytes", value.hex()]


def decode(message: Any, referred: Callable[[Any], Any] | None = None) -> Any:
    """The inverse of ``encode``, trusting nothing.

    Args:
        message: Decoded JSON.
        referred: Finds what ``["object", ...]`` stands for.

    Returns:
        The value.

    Raises:
        NotPlainError: if the message is of another form, or larger than the limits of this module.
    """
    return _Decoder(referred).decode(message)


class _Decoder:
    def __init__(self, referred: Callable[[Any], Any] | None) -> None:
        self._referred = referred
        self._keys = 0

    def decode(self, message: Any) -> Any:
        if message is None or type(message) in (bool, str, int, float):
            return message
        if type(message) is not list or len(message) < 2 or type(message[0]) is not str:
            raise NotPlainError("no pair of type and content")
        name, content = message[0], message[1]
        try:
            if name == "object" and self._referred is not None:
                return self._referred(message[1:])
            if name in _SEQUENCES and type(content) is list:
                parts = (self.decode(part) for part in content)
                return _SEQUENCES[name](self._hashable(parts) if name in ("set", "frozenset") else parts)
            if name == "dict" and type(content) is list:
                keys = self._hashable(self.decode(key) for key, _ in content)
                return dict(zip(keys, (self.decode(value) for _, value in content), strict=True))
            return _decode_scalar(name, content)
        except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
            raise NotPlainError(f"not a {name}") from error

    def _hashable(self, parts: Iterable[Any]) -> list[Any]:
        """Collects keys, unless a container of them would take too long to build."""
        keys = []
        for part in parts:
            self._keys += 1
            if self._keys > MAX_KEYS:
                raise NotPlainError("too many keys")
            keys.append(part)
        if max(collections.Counter(map(hash, keys)).values(), default=0) > MAX_KEYS_OF_A_HASH:
            raise NotPlainError("too many keys of one hash")
        return keys


def _integer(content: str, most_bits: int = MAX_INTEGER_BITS) -> int:
    # A hexadecimal digit has four bits.
    if len(content) * 4 > most_bits:
        raise NotPlainError("too large a number")
    return int(content, 16)


def _decode_scalar(name: str, content: Any) -> Any:
    match name:
        case "int":
            return _integer(content)
        case "float" if content in _SPECIAL_FLOATS:
            return float(content)
        case "bytes":
            return bytes.fromhex(content)
        case "complex":
            real, imaginary = content
            return complex(float(real), float(imaginary))
        case "range":
            return range(*map(_integer, content))
        case "decimal" if len(content) * 4 <= MAX_RATIO_BITS:
            return decimal.Decimal(content)
        case "fraction":
            return fractions.Fraction(*(_integer(part, MAX_RATIO_BITS) for part in content))
    raise NotPlainError(f"no type {name!r}")
