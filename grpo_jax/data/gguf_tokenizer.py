"""Tokenizers out of the metadata of GGUF files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from grpo_jax.config import ConfigError
from grpo_jax.data.huggingface import SIDE_FILES, TokenizerFiles

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
"""Values of ``tokenizer.ggml.token_type`` for tokens that are found before a text is split."""

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"

_SPLITS: dict[str, str] = {
    "llama-bpe": rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_REST}",
    "qwen2": rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_REST}",
}
"""How texts are cut into words, by ``tokenizer.ggml.pre``, where byte-level tokenization's own pattern is not used."""

_DIGITS = ("smollm", "refact", "starcoder", "command-r")
"""Values of ``tokenizer.ggml.pre`` that cut out single digits first."""

_PLAIN = ("gpt-2", "default")

PRE_TOKENIZERS = (*_PLAIN, *_DIGITS, *_SPLITS)
"""Values of ``tokenizer.ggml.pre`` that are understood."""


def open_gguf(path: Path) -> Any:
    """Opens a GGUF file; tensors stay on disk until they are looked at.

    Args:
        path: The file.

    Returns:
        A ``gguf.GGUFReader``, which model and tokenizer are taken from.

    Raises:
        ConfigError: for a missing or damaged file, or where the package ``gguf`` is missing.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file, wanted a .gguf file.")
    try:
        import gguf
    except ImportError as error:
        raise ConfigError(
            f"{path} needs the package gguf, which is not installed. Run `pip install 'grpo-jax[gguf]'`."
        ) from error
    try:
        return gguf.GGUFReader(path)
    except (ValueError, KeyError, IndexError, OSError) as error:  # what the package raises on damage
        raise ConfigError(f"{path} cannot be read as GGUF: {error}. Fetch the file again.") from error


def read_files(path: Path) -> TokenizerFiles:
    """Reads the tokenizer of a GGUF file; see ``from_gguf``."""
    return from_gguf(open_gguf(path), path)


def from_gguf(reader: Any, path: Path) -> TokenizerFiles:
    """Builds the tokenizer that the metadata describes, special tokens and chat template included.

    Args:
        reader: From ``open_gguf``.
        path: The file, for messages.

    Returns:
        The tokenizer, and what the side files of a published model would say.

    Raises:
        ConfigError: for a kind of tokenizer that is not understood, or metadata that is missing.
    """
    prefix = "tokenizer."
    values = {
        name.removeprefix(prefix): field.contents() for name, field in reader.fields.items() if name.startswith(prefix)
    }
    kind, cut = values.get("ggml.model"), values.get("ggml.pre", "default")
    fault, pieces = "", kind == "llama"
    needed = ("ggml.tokens", "ggml.token_type", "ggml.scores" if pieces else "ggml.merges")
    if kind not in ("gpt2", "llama"):
        fault = f"holds a tokenizer of kind {kind!r}, wanted 'gpt2' or 'llama'"
    elif not pieces and cut not in PRE_TOKENIZERS:
        fault = f"cuts texts as {cut!r}, wanted one of {', '.join(PRE_TOKENIZERS)}"
    elif missing := [name for name in needed if name not in values]:
        fault = f"lacks tokenizer.{missing[0]}"
    if fault:
        raise ConfigError(
            f"config.data.tokenizer: {path} {fault}. Set data.tokenizer to the tokenizer.json that the model was "
            "published with."
        )
    tokenizer = _of_pieces(values) if pieces else _of_bytes(values, cut)
    _add_tokens(tokenizer, values)
    config = _tokenizer_config(values, bos_expected=pieces or cut == "llama-bpe")
    if config["add_bos_token"]:
        bos = config["bos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, values["ggml.bos_token_id"])]
        )
    ends = (values.get(f"ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    sides: dict[str, dict[str, Any]] = {name: {} for name in SIDE_FILES}
    sides["tokenizer_config.json"] = config
    sides["generation_config.json"] = {"eos_token_id": list(dict.fromkeys(end for end in ends if end is not None))}
    return TokenizerFiles(path, tokenizer, sides, values.get("chat_template"))


def _add_tokens(tokenizer: tokenizers.Tokenizer, values: Mapping[str, Any]) -> None:
    for token, kind in zip(values["ggml.tokens"], values["ggml.token_type"], strict=True):
        if kind in (_UNKNOWN, _CONTROL):
            tokenizer.add_special_tokens([tokenizers.AddedToken(token, normalized=False, special=True)])
        elif kind == _USER_DEFINED:
            tokenizer.add_tokens([tokenizers.AddedToken(token, normalized=False)])


def _tokenizer_config(values: Mapping[str, Any], *, bos_expected: bool) -> dict[str, Any]:
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    for name, ours in {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}.items():
        index = values.get(f"ggml.{name}_token_id")
        if index is not None and index < len(values["ggml.tokens"]):
            config[f"{ours}_token"] = values["ggml.tokens"][index]
    added = bool(values.get("ggml.add_bos_token", bos_expected))
    return config | {"add_bos_token": added and "bos_token" in config}


def _of_pieces(values: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """SentencePiece's kind: pieces of text with scores, and single bytes for what no piece has."""
    tokens, scores = values["ggml.tokens"], values["ggml.scores"]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    # Two neighbours are joined where that makes a piece, the one of the highest score first: merges in that order.
    merges = [
        (-scores[index], vocabulary[token[:cut]], vocabulary[token[cut:]], (token[:cut], token[cut:]))
        for token, index in vocabulary.items()
        for cut in range(1, len(token))
        if token[:cut] in vocabulary and token[cut:] in vocabulary
    ]
    unknown = next(
        (token for token, kind in zip(tokens, values["ggml.token_type"], strict=True) if kind == _UNKNOWN), None
    )
    tokenizer = tokenizers.Tokenizer(
        models.BPE(
            vocabulary,
            [pair for *_, pair in sorted(merges)],
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    space = "\N{LOWER ONE EIGHTH BLOCK}"
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", space)]
    undone: list[decoders.Decoder] = [decoders.Replace(space, " "), decoders.ByteFallback(), decoders.Fuse()]
    if values.get("ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend(space))
        undone.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(undone)
    return tokenizer


def _of_bytes(values: Mapping[str, Any], cut: str) -> tokenizers.Tokenizer:
    """GPT-2's kind: bytes, and merges of them within words."""
    vocabulary = {token: index for index, token in enumerate(values["ggml.tokens"])}
    merges = [tuple(merge.split(" ", 1)) for merge in values["ggml.merges"]]
    # Llama 3 has whole words in its vocabulary that no merges lead to.
    model = models.BPE(vocabulary, merges, ignore_merges=cut == "llama-bpe")  # pyright: ignore[reportArgumentType]
    tokenizer = tokenizers.Tokenizer(model)
    if cut == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(cut)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pre_tokenizer(cut: str) -> pre_tokenizers.PreTokenizer:
    if cut in _SPLITS:
        pattern = tokenizers.Regex(_SPLITS[cut])
        split = pre_tokenizers.Split(pattern, behavior="isolated", invert=False)
        bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([split, bytes_alone])
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if cut in _DIGITS:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])
    return words
