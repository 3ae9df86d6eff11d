"""Tokenizers in the format of the ``tokenizers`` library."""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from grpo_jax.config import ConfigError

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What an id without a meaning decodes to: it must not vanish, or a wrong answer could become a right one."""

_SIDE_FILES = ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json")


class HuggingFaceTokenizer:
    """Wraps a ``tokenizer.json`` and the files beside it that name the special tokens.

    End-of-sequence ids are all those that ``generation_config.json`` (one id or several), ``tokenizer_config.json``
    and ``special_tokens_map.json`` name. The padding token is the one that these files name, or else the first
    end-of-sequence token. The token in front of prompts follows ``add_bos_token`` where ``tokenizer_config.json``
    has that key, and else the post-processor of ``tokenizer.json``.

    Special tokens written out in a text: ``encode`` takes them for ordinary text. ``encode_prompt`` reads them as
    tokens, because chat templates in ``data.prompt_template`` need it; a problem's text that contains one can
    therefore put it into its prompt. Added tokens that are not special, such as ``<think>`` in many models, are read
    as tokens by both.
    """

    def __init__(self, path: Path):
        """Loads the tokenizer.

        Args:
            path: Path of ``tokenizer.json``.

        Raises:
            ConfigError: for a file that cannot be read, or where no end-of-sequence token can be found.
        """
        self._path = path
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more precise
            raise ConfigError(f"config.data.tokenizer: {path} cannot be read as a tokenizer: {error}.") from error
        # Rows are cut and padded by position elsewhere; a stored limit would cut prompts silently.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._literal = tokenizers.Tokenizer.from_str(self._tokenizer.to_str())
        self._literal.encode_special_tokens = True
        self.vocab_size = max(self._tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        sides = {name: _read_json(path.parent / name) for name in _SIDE_FILES}
        self.eos_ids = self._ids_of("eos", sides)
        if not self.eos_ids:
            raise ConfigError(
                f"config.data.tokenizer: no end-of-sequence token found beside {path}. Put 'eos_token_id' into "
                f"generation_config.json or 'eos_token' into tokenizer_config.json in {path.parent}."
            )
        self.pad_id = (*self._ids_of("pad", sides), *self.eos_ids)[0]
        self.bos_id = self._leading_id(sides)
        named = (*self._ids_of("bos", sides), *self._ids_of("pad", sides), *self.eos_ids, self.bos_id)
        self._left_out = frozenset(named)

    def encode_prompt(self, text: str) -> list[int]:
        """Encodes a prompt with ``bos_id`` in front, unless the text begins with that token already."""
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids if self.bos_id is None or ids[:1] == [self.bos_id] else [self.bos_id, *ids]

    def encode(self, text: str) -> list[int]:
        """Encodes a text with nothing added; special tokens in it stay ordinary text."""
        return self._literal.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes ids; pad, bos and eos are left out, ids beyond the vocabulary become the replacement character."""
        kept = [int(index) for index in ids if index not in self._left_out]
        return "".join(
            self._tokenizer.decode(list(run), skip_special_tokens=False) if known else REPLACEMENT * len(list(run))
            for known, run in itertools.groupby(kept, key=lambda index: self._tokenizer.id_to_token(index) is not None)
        )

    def _ids_of(self, kind: str, sides: Mapping[str, Mapping[str, Any]]) -> tuple[int, ...]:
        """Returns every id that the side files give to a kind of special token, each once."""
        ids: list[int] = []
        for name, values in sides.items():
            given = values.get(f"{kind}_token_id")
            ids += given if isinstance(given, list) else [] if given is None else [given]
            token = values.get(f"{kind}_token")
            text = token.get("content") if isinstance(token, Mapping) else token
            if text is not None:
                ids.append(self._id_of(text, name))
        for index in ids:
            if not isinstance(index, int) or not 0 <= index < self.vocab_size:
                raise ConfigError(
                    f"config.data.tokenizer: {kind}_token_id beside {self._path} is {index!r}, wanted an id below "
                    f"{self.vocab_size}. The files in {self._path.parent} do not belong together."
                )
        return tuple(dict.fromkeys(ids))

    def _id_of(self, text: str, name: str) -> int:
        index = self._tokenizer.token_to_id(text)
        if index is None:
            raise ConfigError(
                f"config.data.tokenizer: {name} names the token {text!r}, which {self._path} does not have. "
                f"The files in {self._path.parent} do not belong together."
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
                    f"config.data.tokenizer: add_bos_token is true beside {self._path}, but no file names 'bos_token'. "
                    "Add it to tokenizer_config.json, or set add_bos_token to false."
                )
            return ids[0]
        encoding = self._tokenizer.encode("0", add_special_tokens=True)
        return encoding.ids[0] if encoding.special_tokens_mask[:1] == [1] else None


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"config.data.tokenizer: {path} is not valid JSON: {error}.") from error
