"""Tokenizers in the format of the ``tokenizers`` library."""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers

from grpo_jax.config import ConfigError

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What an id without a meaning decodes to: it must not vanish, or a wrong answer could become a right one."""

SIDE_FILES = ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "config.json")
"""Files beside ``tokenizer.json`` that name special tokens, the one that is believed first in front."""

_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


_PRINTED = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_NOT_PRINTED = [byte for byte in range(256) if byte not in _PRINTED]

BYTE_OF_CHARACTER = {chr(byte): byte for byte in _PRINTED} | {chr(256 + n): byte for n, byte in enumerate(_NOT_PRINTED)}
"""How byte-level tokenizers write bytes: those that Latin-1 prints as themselves, the others from 256 on."""


class TokenizerFiles(NamedTuple):
    """A tokenizer and what its side files say of it.

    Attributes:
        source: Path that messages name.
        tokenizer: The tokenizer itself.
        sides: Values of each of ``SIDE_FILES``; empty where there is no such file.
        chat_template: Text of ``chat_template.jinja``, or None.
    """

    source: Path
    tokenizer: tokenizers.Tokenizer
    sides: Mapping[str, Mapping[str, Any]]
    chat_template: str | None = None

    def named_tokens(self) -> dict[str, str]:
        """Texts of the special tokens that have a name, such as ``eos_token``, as chat templates use them."""
        named: dict[str, str] = {}
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            for key in _NAMED_TOKENS:
                text = _token_text(self.sides[name].get(key))
                if text is not None:
                    named.setdefault(key, text)
        return named


def read_files(path: Path) -> TokenizerFiles:
    """Reads ``tokenizer.json`` and the files beside it.

    Args:
        path: Path of ``tokenizer.json``.

    Returns:
        The tokenizer and its side files.

    Raises:
        ConfigError: for a file that cannot be read.
    """
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more precise
        raise ConfigError(f"config.data.tokenizer: {path} cannot be read as a tokenizer: {error}.") from error
    template = path.parent / "chat_template.jinja"
    return TokenizerFiles(
        path,
        tokenizer,
        {name: _read_json(path.parent / name) for name in SIDE_FILES},
        template.read_text(encoding="utf-8") if template.is_file() else None,
    )


MOST_SHOWN_CHARACTERS = 80
"""Of a text, in messages."""


class HuggingFaceTokenizer:
    """A ``tokenizer.json`` with the special tokens that the files beside it name.

    End-of-sequence ids are all those that ``generation_config.json`` (one id or several), ``tokenizer_config.json``,
    ``special_tokens_map.json`` and ``config.json`` name. The padding token is the one that the first three name, or
    else the first end-of-sequence token; nothing is ever masked by its id. The token in front of prompts follows
    ``add_bos_token`` where ``tokenizer_config.json`` has that key, and else the post-processor of ``tokenizer.json``.
    In a chat nothing is put in front: templates write that token themselves.

    Special tokens written out in a text: ``encode`` takes them for ordinary text. ``encode_prompt`` reads them as
    tokens, because chat templates in ``data.prompt_template`` need it; a problem's text that contains one can
    therefore put it into its prompt. Added tokens that are not special, such as ``<think>`` in many models, are read
    as tokens by both.
    """

    def __init__(self, files: TokenizerFiles, *, chat: bool = False):
        """Finds the special tokens.

        Args:
            files: The tokenizer and its side files.
            chat: Prompts are texts of a chat template.

        Raises:
            ConfigError: where the files do not belong together, or no end-of-sequence token can be found.
        """
        self._source, self._tokenizer = files.source, files.tokenizer
        # Rows are cut and padded by position elsewhere; a stored limit would cut prompts silently.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._literal = tokenizers.Tokenizer.from_str(self._tokenizer.to_str())
        self._literal.encode_special_tokens = True
        self.vocab_size = max(self._tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        sides = {name: values for name, values in files.sides.items() if name != "config.json"}
        self.eos_ids = self._ids_of("eos", files.sides)
        if not self.eos_ids:
            raise ConfigError(
                f"config.data.tokenizer: no end-of-sequence token found beside {self._source}. Put 'eos_token_id' into "
                f"generation_config.json or 'eos_token' into tokenizer_config.json in {self._source.parent}."
            )
        # config.json is not asked: models were published with a pad_token_id that no tokenizer has.
        self.pad_id = (*self._ids_of("pad", sides), *self.eos_ids)[0]
        leading_id = self._leading_id(sides)
        self.bos_id = None if chat else leading_id
        named = (*self._ids_of("bos", sides), *self._ids_of("pad", sides), *self.eos_ids, leading_id)
        self._left_out = frozenset(named)

    def encode_prompt(self, text: str) -> list[int]:
        """Encodes a prompt with ``bos_id`` in front, unless the text begins with that token already."""
        ids = self._ids(self._tokenizer, text)
        return ids if self.bos_id is None or ids[:1] == [self.bos_id] else [self.bos_id, *ids]

    def encode(self, text: str) -> list[int]:
        """Encodes a text with nothing added; special tokens in it stay ordinary text."""
        return self._ids(self._literal, text)

    def _ids(self, tokenizer: Any, text: str) -> list[int]:
        try:
            return tokenizer.encode(text, add_special_tokens=False).ids
        except Exception as error:  # the library raises nothing more precise
            shown = text if len(text) <= MOST_SHOWN_CHARACTERS else f"{text[:MOST_SHOWN_CHARACTERS]}..."
            raise ConfigError(
                f"config.data.tokenizer: {self._source} cannot write {shown!r}: {error}. Wanted a text that it can."
            ) from error

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes ids; pad, bos and eos are left out, ids beyond the vocabulary become the replacement character."""
        kept = [int(index) for index in ids if index not in self._left_out]
        return "".join(
            self._tokenizer.decode(list(run), skip_special_tokens=False) if known else REPLACEMENT * len(list(run))
            for known, run in itertools.groupby(kept, key=lambda index: self._tokenizer.id_to_token(index) is not None)
        )

    def token_bytes(self) -> list[bytes]:
        """Returns the bytes of each id: none if it is left out, the replacement character's if it has no meaning.

        Raises:
            ValueError: where a token's text depends on its neighbours. SentencePiece's kind is of that sort: a run of
                single bytes with a fault in it is replaced as a whole.
        """
        decoder = self._tokenizer.decoder
        kind = None if decoder is None else json.loads(decoder.__getstate__())["type"]
        if kind not in ("ByteLevel", "Fuse"):
            raise ValueError(
                f"{self._source} decodes by {kind}, wanted ByteLevel or Fuse: a token's text depends on its neighbours "
                "here, so no stop text can be found for certain."
            )
        pieces = []
        for index in range(self.vocab_size):
            token = self._tokenizer.id_to_token(index)
            if token is None:
                pieces.append(REPLACEMENT.encode())
            elif index in self._left_out:
                pieces.append(b"")
            elif kind == "ByteLevel" and all(character in BYTE_OF_CHARACTER for character in token):
                pieces.append(bytes(BYTE_OF_CHARACTER[character] for character in token))
            else:
                pieces.append(token.encode())
        return pieces

    def _ids_of(self, kind: str, sides: Mapping[str, Mapping[str, Any]]) -> tuple[int, ...]:
        """Returns every id that the side files give to a kind of special token, each once."""
        ids: list[int] = []
        for name, values in sides.items():
            given = values.get(f"{kind}_token_id")
            ids += given if isinstance(given, list) else [] if given is None else [given]
            text = _token_text(values.get(f"{kind}_token"))
            if text is not None:
                ids.append(self._id_of(text, name))
        for index in ids:
            if not isinstance(index, int) or not 0 <= index < self.vocab_size:
                raise ConfigError(
                    f"config.data.tokenizer: {kind}_token_id beside {self._source} is {index!r}, wanted an id below "
                    f"{self.vocab_size}. The files in {self._source.parent} do not belong together."
                )
        return tuple(dict.fromkeys(ids))

    def _id_of(self, text: str, name: str) -> int:
        index = self._tokenizer.token_to_id(text)
        if index is None:
            raise ConfigError(
                f"config.data.tokenizer: {name} names the token {text!r}, which {self._source} does not have. "
                f"The files in {self._source.parent} do not belong together."
            )
        return index

    def _leading_id(self, sides: Mapping[str, Mapping[str, Any]]) -> int | None:
        added = sides["tokenizer_config.json"].get("add_bos_token")
        if added is False:
            return None
        if added is True:
            ids = self._ids_of("bos", sides)
            if not ids:
                raise ConfigError(
                    f"config.data.tokenizer: add_bos_token is true beside {self._source}, but no file names "
                    "'bos_token'. Add it to tokenizer_config.json, or set add_bos_token to false."
                )
            return ids[0]
        encoding = self._tokenizer.encode("0", add_special_tokens=True)
        return encoding.ids[0] if encoding.special_tokens_mask[:1] == [1] else None


def _token_text(token: Any) -> str | None:
    return token.get("content") if isinstance(token, Mapping) else token


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"config.data.tokenizer: {path} is not valid JSON: {error}.") from error
    if not isinstance(values, dict):
        raise ConfigError(f"config.data.tokenizer: {path} holds a {type(values).__name__}, wanted a JSON object.")
    return values
