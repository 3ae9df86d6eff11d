"""GGUF files: their metadata as the ``config.json`` of a published model, their tensors dequantized."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

_BLOCK = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_q.bias": "self_attn.q_proj.bias",
    "attn_k.bias": "self_attn.k_proj.bias",
    "attn_v.bias": "self_attn.v_proj.bias",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
_OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_FREQUENCIES = "rope_freqs.weight"
_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}

# What Llama 3.1 and its successors have in common; a file holds the outcome, not these numbers.
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def config_of(reader: Any) -> dict[str, Any]:
    """Writes the metadata as ``config.json`` of the model that the file was made from.

    Args:
        reader: A ``gguf.GGUFReader``.

    Returns:
        JSON values for ``spec_from_huggingface``, and for other programs.

    Raises:
        ValueError: for an architecture that is not known, or metadata that is missing.
    """
    family = _value(reader, "general.architecture")
    if family not in _ARCHITECTURES:
        raise ValueError(
            f"GGUF: general.architecture: got {family!r}, wanted one of {', '.join(_ARCHITECTURES)}. "
            "Use the model's safetensors files."
        )

    def value(key: str, *default: Any) -> Any:
        return _value(reader, f"{family}.{key}", *default)

    heads, width = value("attention.head_count"), value("embedding_length")
    names = {tensor.name for tensor in reader.tensors}
    config = {
        "model_type": family,
        "architectures": [_ARCHITECTURES[family]],
        "vocab_size": int(_tensor(reader, "token_embd.weight").shape[1]),
        "hidden_size": width,
        "intermediate_size": value("feed_forward_length"),
        "num_hidden_layers": value("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": value("attention.head_count_kv", heads),
        "head_dim": value("attention.key_length", width // heads),
        "rms_norm_eps": value("attention.layer_norm_rms_epsilon"),
        "rope_theta": value("rope.freq_base", 10_000.0),
        "max_position_embeddings": value("context_length"),
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in names,
        "torch_dtype": "float32",
    }
    return config | _rope_scaling(reader, value, config)


def _rope_scaling(reader: Any, value: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    kind = value("rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise ValueError(
            f"GGUF: rope.scaling.type: got {kind!r}, wanted 'none' or 'linear'. Use the model's safetensors files."
        )
    if kind == "linear":
        return {"rope_scaling": {"rope_type": "linear", "factor": value("rope.scaling.factor")}}
    if all(tensor.name != _FREQUENCIES for tensor in reader.tensors):
        return {}
    divisors = np.array(_tensor(reader, _FREQUENCIES).data, np.float64).ravel()
    scaling = {"rope_type": "llama3", "factor": float(divisors.max()), **_LLAMA3}
    expected = _llama3_divisors(config["rope_theta"], config["head_dim"], scaling)
    if divisors.shape != expected.shape or not np.allclose(divisors, expected, rtol=1e-3):
        raise ValueError(
            f"GGUF: {_FREQUENCIES}: got frequencies other than those of Llama 3.1 with a factor of "
            f"{scaling['factor']:g}, wanted those. Use the model's safetensors files."
        )
    return {"rope_scaling": scaling}


def _llama3_divisors(theta: float, size: int, scaling: Mapping[str, Any]) -> np.ndarray:
    """By how much each rotary frequency is divided."""
    turns = scaling["original_max_position_embeddings"] * theta ** (-np.arange(0, size, 2) / size) / (2 * np.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    keep = np.clip((turns - low) / (high - low), 0, 1)
    return 1 / (keep + (1 - keep) / scaling["factor"])


class GGUFTensors:
    """The tensors of a GGUF file under their published names, dequantized when they are asked for.

    Attributes:
        shapes: Shape of every tensor by name.
    """

    def __init__(self, reader: Any) -> None:
        """Names the tensors.

        Args:
            reader: A ``gguf.GGUFReader``.

        Raises:
            ValueError: for an architecture that is not known, or tensors that no published name is known of.
        """
        self._config = config_of(reader)
        self._tensors = {}
        unknown = []
        for tensor in reader.tensors:
            name = _published(tensor.name)
            if name is not None:
                self._tensors[name] = tensor
            elif tensor.name != _FREQUENCIES:
                unknown.append(tensor.name)
        if unknown:
            raise ValueError(
                f"GGUF: got {len(unknown)} unknown tensors, {', '.join(unknown[:5])}, wanted those of a plain decoder. "
                "Use the model's safetensors files."
            )
        # ggml counts axes from the innermost.
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: tuple(int(size) for size in reversed(tensor.shape)) for name, tensor in self._tensors.items()
        }

    def read(self, name: str, window: tuple[slice, ...]) -> np.ndarray:
        """Reads a part of a tensor.

        Args:
            name: The published name.
            window: A slice of step 1 for each of its axes.

        Returns:
            The float32 part.
        """
        import gguf

        tensor = self._tensors[name]
        array = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(self.shapes[name])
        # Only the family that the format began with has its rotated coordinates in pairs.
        if self._config["model_type"] == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            kind = "num_attention_heads" if name.endswith("q_proj.weight") else "num_key_value_heads"
            array = _in_halves(array, self._config[kind])
        return array[window]


def _in_halves(matrix: np.ndarray, heads: int) -> np.ndarray:
    rows, columns = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _published(name: str) -> str | None:
    block = re.fullmatch(r"blk\.(\d+)\.(.+)", name)
    if block is None:
        return _OUTSIDE.get(name)
    suffix = _BLOCK.get(block[2])
    return None if suffix is None else f"model.layers.{block[1]}.{suffix}"


def _tensor(reader: Any, name: str) -> Any:
    for tensor in reader.tensors:
        if tensor.name == name:
            return tensor
    raise ValueError(f"GGUF: the file lacks the tensor {name}, wanted a language model. Fetch the file again.")


def _value(reader: Any, key: str, *default: Any) -> Any:
    field = reader.fields.get(key)
    if field is None:
        if not default:
            raise ValueError(f"GGUF: the file lacks {key}, wanted a language model. Fetch the file again.")
        return default[0]
    value = field.contents()
    # The shortest decimal of a float32 is what was meant: 1e-05, not 9.999999747378752e-06.
    return float(str(np.float32(value))) if isinstance(value, float) else value
