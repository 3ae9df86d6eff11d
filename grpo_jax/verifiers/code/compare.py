"""Whether a program's answer is the expected one. Both sides are plain values or bytes; nothing of theirs is run."""

import math
from typing import Any


def equal_values(actual: Any, expected: Any, tolerance: float) -> bool:
    """Compares a decoded value with one from JSON.

    As Python compares, but: ``True`` is not 1, a tuple equals a list (JSON knows lists only), integer keys equal their
    JSON text, NaN equals NaN, and an expected float that is not an integer allows a relative tolerance.

    Args:
        actual: Of exact plain types.
        expected: What JSON gave.
        tolerance: Largest relative difference from an expected float, and absolute one from 0.0.

    Returns:
        Whether they are equal.
    """
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(actual, (list, tuple))
            and len(actual) == len(expected)
            and all(equal_values(ours, theirs, tolerance) for ours, theirs in zip(actual, expected, strict=True))
        )
    if isinstance(expected, dict):
        return isinstance(actual, dict) and _equal_dictionaries(actual, expected, tolerance)
    if isinstance(expected, bool) or isinstance(actual, bool):
        return actual is expected
    if isinstance(expected, float) and isinstance(actual, (int, float)):
        return close(actual, expected, tolerance)
    return type(actual) in (int, float, str, type(None)) and actual == expected


def _equal_dictionaries(actual: dict[Any, Any], expected: dict[str, Any], tolerance: float) -> bool:
    named = {key if isinstance(key, str) else _json_key(key): value for key, value in actual.items()}
    return (
        len(named) == len(actual) == len(expected)
        and named.keys() == expected.keys()
        and all(equal_values(named[key], value, tolerance) for key, value in expected.items())
    )


def _json_key(key: Any) -> Any:
    return str(key) if type(key) is int and key.bit_length() <= 1024 else key


def close(actual: int | float, expected: float, tolerance: float) -> bool:
    """Whether a number is an expected float, up to the tolerance."""
    if math.isnan(expected):
        return math.isnan(actual)
    if math.isinf(expected) or tolerance == 0:
        return actual == expected
    try:
        return abs(actual - expected) <= tolerance * max(abs(expected), 1.0 if expected == 0 else 0.0)
    except OverflowError:
        return False


def equal_output(actual: bytes, expected: bytes, tolerance: float) -> bool:
    """Compares what a script printed by its words, whatever separates them.

    Args:
        actual: Standard output.
        expected: Expected standard output.
        tolerance: For words that are expected to be decimal fractions.

    Returns:
        Whether all words are equal.
    """
    ours, theirs = actual.split(), expected.split()
    return len(ours) == len(theirs) and all(
        word == wanted or _equal_decimals(word, wanted, tolerance) for word, wanted in zip(ours, theirs, strict=True)
    )


def _equal_decimals(word: bytes, wanted: bytes, tolerance: float) -> bool:
    if tolerance == 0 or max(len(word), len(wanted)) > 100 or not set(wanted) & set(b".eE"):
        return False
    try:
        # Only digits, as a program prints them: float() also reads underscores and words.
        if (set(word) | set(wanted)) - set(b"0123456789+-.eE"):
            return False
        return close(float(word), float(wanted), tolerance)
    except ValueError:
        return False
