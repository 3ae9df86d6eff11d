"""Small GGUF files, written for tests."""

from typing import Any

import numpy as np

TOKENS = ["<|end|>", "<|turn|>", "<think>", *"abcdefgh", "Ġ", "1", "2", "ab", "cd", "abcd", "Ġab", "12"]
TYPES = [3, 3, 4, *[1] * (len(TOKENS) - 3)]
MERGES = ["a b", "c d", "ab cd", "Ġ ab", "1 2"]


def add_tokenizer(writer: Any, **changes: Any) -> None:
    """Adds the metadata of a byte-level tokenizer; None leaves a key out."""
    values = {
        "model": "gpt2",
        "pre": "smollm",
        "tokens": TOKENS,
        "token_type": TYPES,
        "merges": MERGES,
        "eos_token_id": 0,
        "bos_token_id": 1,
        "add_bos_token": False,
    } | changes
    for name, value in values.items():
        key = f"tokenizer.ggml.{name}"
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif value is not None:
            writer.add_string(key, value)


def finish(writer: Any, tensors: dict[str, Any] | None = None) -> None:
    """Writes the file; a tensor is an array, or a pair of an array and its quantization type."""
    import gguf

    for name, value in (tensors or {}).items():
        if isinstance(value, tuple):
            array, kind = value
            writer.add_tensor(name, gguf.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
