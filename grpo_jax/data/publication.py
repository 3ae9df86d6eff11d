"""Tokenizers as the files that published models have."""

import json
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from grpo_jax.config import ConfigError
from grpo_jax.data.huggingface import BYTE_OF_CHARACTER, SIDE_FILES, TokenizerFiles
from grpo_jax.data.tokenizer import CHARACTERS, TAGS, ByteTokenizer, CharacterTokenizer, open_files

_SPECIAL = ("<pad>", "<bos>", "<eos>")


def published_files(name: str) -> TokenizerFiles:
    """The tokenizer that ``data.tokenizer`` names, built-in ones included, as published files.

    Args:
        name: ``"characters"``, ``"bytes"``, or what ``open_files`` takes.

    Returns:
        A tokenizer with the same ids. The special tokens of a built-in one, which have no text there, are written
        ``<pad>``, ``<bos>`` and ``<eos>``; its spare ids are left out.

    Raises:
        ConfigError: for another name, or files that cannot be read.
    """
    if name == "characters":
        return _built_in(name, *_characters())
    if name == "bytes":
        return _built_in(name, *_bytes())
    return open_files(name)


def write_files(files: TokenizerFiles, folder: Path) -> None:
    """Writes a tokenizer and what is said of its special tokens.

    Args:
        files: The tokenizer.
        folder: Where ``tokenizer.json`` and the files beside it go. ``config.json`` belongs to the model and is not
            written.

    Raises:
        ConfigError: for a tokenizer that names no end-of-sequence token.
    """
    if not any(key.startswith("eos_token") for values in files.sides.values() for key in values):
        raise ConfigError(f"{files.source}: no end-of-sequence token is named, so nothing could end a completion.")
    files.tokenizer.save(str(folder / "tokenizer.json"))
    for name, values in files.sides.items():
        if values and name != "config.json":
            (folder / name).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if files.chat_template is not None:
        (folder / "chat_template.jinja").write_text(files.chat_template, encoding="utf-8")


def _built_in(name: str, tokenizer: tokenizers.Tokenizer, bos_id: int, eos_id: int) -> TokenizerFiles:
    pad, bos, eos = _SPECIAL
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, bos_id)])
    sides = {side: {} for side in SIDE_FILES}
    sides["tokenizer_config.json"] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "bos_token": bos,
        "eos_token": eos,
        "pad_token": pad,
    }
    sides["generation_config.json"] = {"bos_token_id": bos_id, "eos_token_id": eos_id}
    return TokenizerFiles(Path(name), tokenizer, sides)


def _characters() -> tuple[tokenizers.Tokenizer, int, int]:
    ids = {text: index for index, text in enumerate([*_SPECIAL, *TAGS, *CHARACTERS])}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(ids))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    _add(tokenizer)
    return tokenizer, CharacterTokenizer.bos_id, CharacterTokenizer.eos_ids[0]


def _bytes() -> tuple[tokenizers.Tokenizer, int, int]:
    ids = dict(BYTE_OF_CHARACTER)
    for text in (*_SPECIAL, *TAGS):
        ids[text] = len(ids)
    tokenizer = tokenizers.Tokenizer(models.BPE(ids, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    _add(tokenizer)
    return tokenizer, ByteTokenizer.bos_id, ByteTokenizer.eos_ids[0]


def _add(tokenizer: tokenizers.Tokenizer) -> None:
    tokenizer.add_special_tokens([tokenizers.AddedToken(text, normalized=False, special=True) for text in _SPECIAL])
    tokenizer.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in TAGS])
