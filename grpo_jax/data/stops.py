"""Texts that end a completion, found token by token with one table look-up each."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int16

from grpo_jax.data.huggingface import REPLACEMENT
from grpo_jax.data.tokenizer import Tokenizer


def stop_table(tokenizer: Tokenizer, stops: Sequence[str], vocab_size: int) -> Int16[np.ndarray, "S V"]:
    """Builds a finite automaton over tokens that knows how much of a stop text has been written.

    Its states are the proper beginnings of the stops' UTF-8 bytes, state 0 the empty one, and a last one that is
    reached with the token that completes the first stop, and never left. A token leads from one state to another by
    its own bytes, so a stop is found wherever it begins and ends: inside a token, or over several of them. This is
    exact: the last state is reached if and only if the decoded text contains a stop. Bytes that are no UTF-8 decode
    to replacement characters but never take the next character with them, and no stop may hold such a character.

    Args:
        tokenizer: Says which bytes a token stands for.
        stops: Texts, none of them empty.
        vocab_size: Ids that the model can sample, at least the tokenizer's.

    Returns:
        The state that follows each state and token.

    Raises:
        ValueError: for a stop that the tokenizer cannot write, or a tokenizer whose tokens have no bytes of their own.

    >>> from grpo_jax.data.tokenizer import ByteTokenizer
    >>> table = stop_table(ByteTokenizer(), ["ab"], 263)
    >>> [int(table[state, ord("b")]) for state in range(3)]  # nothing, "a" and "ab" so far
    [0, 2, 2]
    """
    pieces = tokenizer.token_bytes()
    for stop in stops:
        _check(tokenizer, stop)
    pieces += [REPLACEMENT.encode()] * (vocab_size - len(pieces))
    following = _byte_automaton([stop.encode() for stop in stops])
    length_V = np.array([len(piece) for piece in pieces])
    next_SV = np.repeat(np.arange(len(following), dtype=np.int16)[:, None], len(pieces), axis=1)
    for position in range(length_V.max()):
        long = np.flatnonzero(length_V > position)
        byte = np.array([pieces[index][position] for index in long])
        next_SV[:, long] = following[next_SV[:, long], byte]
    return next_SV


def before_stop(text: str, stops: Sequence[str]) -> str:
    """Cuts a text off where the first stop in it begins.

    Args:
        text: A decoded completion.
        stops: Stop texts.

    Returns:
        What stands before; the whole text if it holds no stop.

    >>> before_stop("87, or so", (" or", ","))
    '87'
    """
    return text[: min((text.find(stop) for stop in stops if stop in text), default=len(text))]


def settled(text: str, stops: Sequence[str]) -> str:
    """What can be shown of a completion that goes on: the part that no later token can change or cut off.

    Args:
        text: The decoded completion so far, without a stop in it.
        stops: Stop texts.

    Returns:
        The text without a character whose last bytes are still missing, and without the beginning of a stop.

    >>> settled("87 o", (" or",))
    '87'
    """
    text = text.rstrip(REPLACEMENT)
    begun = (length for stop in stops for length in range(1, len(stop)) if text.endswith(stop[:length]))
    return text[: len(text) - max(begun, default=0)]


def _check(tokenizer: Tokenizer, stop: str) -> None:
    try:
        written = tokenizer.decode(tokenizer.encode(stop))
    except ValueError as error:
        raise ValueError(f"{stop!r} would never be found: {error}") from error
    if stop not in written:
        raise ValueError(
            f"{stop!r} would never be found: the tokenizer writes it as {written!r}. Give it in that form, or another."
        )


def _byte_automaton(stops: Sequence[bytes]) -> np.ndarray:
    """The state that follows a state and a byte, [S, 256]: the longest beginning of a stop that the text ends with."""
    beginnings = sorted({stop[:length] for stop in stops for length in range(len(stop))}, key=len)
    state_of = {beginning: state for state, beginning in enumerate(beginnings)}
    ended = len(beginnings)
    following = np.zeros((ended + 1, 256), np.int16)
    following[ended] = ended
    for beginning, state in state_of.items():
        # Any other byte leads back to the start.
        for byte in set(b"".join(stops)):
            text = beginning + bytes([byte])
            if text.endswith(tuple(stops)):
                following[state, byte] = ended
            else:
                ends = (text[start:] for start in range(len(text) + 1))
                following[state, byte] = next(state_of[end] for end in ends if end in state_of)
    return following
