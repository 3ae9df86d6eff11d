"""Text to token ids and back."""

import difflib
import re
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from grpo_jax.config import ConfigError
from grpo_jax.data import gguf_tokenizer
from grpo_jax.data.huggingface import REPLACEMENT, HuggingFaceTokenizer, TokenizerFiles, read_files
from grpo_jax.data.installed import located

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
"""Tags that the built-in tokenizers hold as single tokens."""

CHARACTERS = "0123456789+-*/=(),>. "
"""Alphabet of ``CharacterTokenizer``."""

# The group makes split() keep the tags.
_TAG = re.compile(f"({'|'.join(TAGS)})")


@runtime_checkable
class Tokenizer(Protocol):
    """What the rest of the package asks of a tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Number of ids; each id is below it."""
        ...

    @property
    def pad_id(self) -> int:
        """Fills rows. It may equal an end-of-sequence id: masks go by position, never by id."""
        ...

    @property
    def bos_id(self) -> int | None:
        """Stands in front of every prompt, or ``None`` where the model has no such token."""
        ...

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Every id that ends a completion; the first one ends demonstrations."""
        ...

    def encode_prompt(self, text: str) -> list[int]:
        """Encodes a prompt, with ``bos_id`` in front where there is one."""
        ...

    def encode(self, text: str) -> list[int]:
        """Encodes a text, with nothing added."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes ids; pad, bos and eos are left out, tags such as ``<think>`` are kept."""
        ...

    def token_bytes(self) -> list[bytes]:
        """Returns the UTF-8 bytes that each id adds to a decoded text, whatever stands around it.

        Raises:
            ValueError: where they depend on what stands around it.
        """
        ...


class CharacterTokenizer:
    """One token for each character of ``CHARACTERS`` and for each tag, in a vocabulary of 32.

    The pad, bos and eos tokens have no text form, so that no text can contain them. Spare ids, which an untrained
    model can sample, decode to the replacement character.
    """

    vocab_size = 32
    pad_id, bos_id, eos_ids = 0, 1, (2,)

    def __init__(self) -> None:
        self._texts = ["", "", "", *TAGS, *CHARACTERS]
        assert len(self._texts) <= self.vocab_size, "the alphabet outgrew the vocabulary"
        self._ids = {text: index for index, text in enumerate(self._texts) if text}

    def encode_prompt(self, text: str) -> list[int]:
        """Encodes a prompt after ``<bos>``; see ``encode`` for what it raises."""
        return [self.bos_id, *self.encode(text)]

    def encode(self, text: str) -> list[int]:
        """Encodes a text, with nothing added.

        Args:
            text: Characters of ``CHARACTERS`` and tags.

        Returns:
            One id for each character and tag.

        Raises:
            ValueError: naming a character outside the alphabet.
        """
        ids = []
        for piece in _TAG.split(text):
            for symbol in [piece] if piece in TAGS else piece:
                if symbol not in self._ids:
                    raise ValueError(
                        f"the characters tokenizer has no token for {symbol!r} in {text[:50]!r}, wanted one of "
                        f"{CHARACTERS!r} or a tag of {', '.join(TAGS)}. Set data.tokenizer to 'bytes' for other text."
                    )
                ids.append(self._ids[symbol])
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes ids; pad, bos and eos are left out, spare ids become the replacement character."""
        return "".join(self._texts[index] if index < len(self._texts) else REPLACEMENT for index in ids)

    def token_bytes(self) -> list[bytes]:
        """Returns the bytes of each id; spare ids have those of the replacement character."""
        return [self.decode([index]).encode() for index in range(self.vocab_size)]


class ByteTokenizer:
    """One token for each byte of UTF-8 and for each tag; any text can be encoded.

    The pad, bos and eos tokens have no text form, so that no text can contain them.
    """

    vocab_size = 256 + 3 + len(TAGS)
    pad_id, bos_id, eos_ids = 256, 257, (258,)

    def __init__(self) -> None:
        self._pieces = [*(bytes([value]) for value in range(256)), b"", b"", b"", *(tag.encode() for tag in TAGS)]

    def encode_prompt(self, text: str) -> list[int]:
        """Encodes a prompt after ``<bos>``."""
        return [self.bos_id, *self.encode(text)]

    def encode(self, text: str) -> list[int]:
        """Encodes a text as UTF-8, with tags as single tokens and nothing added."""
        ids: list[int] = []
        for piece in _TAG.split(text):
            ids += [259 + TAGS.index(piece)] if piece in TAGS else piece.encode()
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes ids; pad, bos and eos are left out, what is no UTF-8 becomes the replacement character."""
        pieces = (self._pieces[index] if index < self.vocab_size else REPLACEMENT.encode() for index in ids)
        return b"".join(pieces).decode(errors="replace")

    def token_bytes(self) -> list[bytes]:
        """Returns the bytes of each id."""
        return list(self._pieces)


def build_tokenizer(name: str, *, chat: bool = False) -> Tokenizer:
    """Builds the tokenizer that ``data.tokenizer`` names.

    Args:
        name: ``"characters"``, ``"bytes"``, or what ``open_files`` takes.
        chat: Prompts are texts of a chat template, which writes the token in front of a prompt itself.

    Returns:
        The tokenizer.

    Raises:
        ConfigError: for any other name, with the choices.
    """
    if name == "characters":
        return CharacterTokenizer()
    if name == "bytes":
        return ByteTokenizer()
    return HuggingFaceTokenizer(open_files(name), chat=chat)


def open_files(name: str) -> TokenizerFiles:
    """Reads a published tokenizer and the files beside it.

    Args:
        name: Path of a ``tokenizer.json``, of the folder that holds it, or of a GGUF file; or one of ``INSTALLED``.

    Returns:
        The tokenizer and what is said of its special tokens.

    Raises:
        ConfigError: for a path with neither, and for files that cannot be read.
    """
    path = located(name).resolve()
    if path.is_dir():
        path /= "tokenizer.json"
    if path.is_file() and path.suffix == ".json":
        return read_files(path)
    if path.is_file() and path.suffix == ".gguf":
        return gguf_tokenizer.read_files(path)
    near = difflib.get_close_matches(name, ["characters", "bytes"], n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There is no tokenizer file at {path}."
    raise ConfigError(
        f"config.data.tokenizer: got {name!r}, wanted 'characters', 'bytes' or the path of a tokenizer.json, "
        f"of its folder or of a .gguf file. {hint}"
    )
