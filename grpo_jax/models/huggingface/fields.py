"""Reading a ``config.json`` so that no field of it goes unnoticed."""

from collections.abc import Mapping
from typing import Any

NOT_ARCHITECTURE = frozenset(
    {
        "_attn_implementation",
        "_attn_implementation_autoset",
        "_from_model_config",
        "_name_or_path",
        "architectures",
        "attention_dropout",
        "auto_map",
        "aux_loss_alpha",
        "bos_token_id",
        "cache_implementation",
        "chunk_size_feed_forward",
        "dtype",
        "eos_token_id",
        "ep_size",
        "gradient_checkpointing",
        "id2label",
        "is_decoder",
        "is_encoder_decoder",
        "is_llama_config",
        "label2id",
        "max_position_embeddings",
        "num_mtp_layers",
        "num_nextn_predict_layers",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "pad_token_id",
        "pretraining_tp",
        "problem_type",
        "quantization_config",
        "return_dict",
        "router_aux_loss_coef",
        "seq_aux",
        "task_specific_params",
        "tokenizer_class",
        "torch_dtype",
        "torchscript",
        "transformers_version",
        "transformers.js_config",
        "use_cache",
    }
)
"""Fields that say nothing about what a forward pass without dropout computes, in any family."""

_REQUIRED = object()


class Fields:
    """The fields of a ``config.json``, each read at most once; what is left at the end is refused."""

    def __init__(self, config: Mapping[str, Any], place: str = "") -> None:
        """Wraps a parsed file.

        Args:
            config: Its fields.
            place: Name of the field that holds them, with a dot behind it.
        """
        self._left, self._place = dict(config), place

    def take(self, name: str, default: Any = _REQUIRED) -> Any:
        """Reads a field; ``null`` counts as absent.

        Args:
            name: The field.
            default: Its value where it is absent; without one the field is required.

        Returns:
            The value.

        Raises:
            ValueError: if a required field is absent.
        """
        value = self._left.pop(name, None)
        if value is None:
            if default is _REQUIRED:
                raise ValueError(f"config.json: {self._place}{name}: got nothing, wanted a value for this model_type.")
            return default
        return value

    def integer(self, name: str, default: Any = _REQUIRED) -> int:
        """Reads a whole number; see ``take``."""
        value = self.take(name, default)
        if value is not default and type(value) is not int:
            raise self.unsupported(name, value, "a whole number")
        return value

    def size(self, name: str, default: Any = _REQUIRED) -> int:
        """Reads a whole number above 0; see ``take``."""
        value = self.integer(name, default)
        if value < 1:
            raise self.unsupported(name, value, "a whole number above 0")
        return value

    def optional_integer(self, name: str) -> int | None:
        """Reads a whole number that may be absent."""
        return self.integer(name) if self._left.get(name) is not None else None

    def number(self, name: str, default: Any = _REQUIRED) -> float:
        """Reads a number, which the file may spell without a fraction; see ``take``."""
        value = self.take(name, default)
        if value is not default and type(value) not in (int, float):
            raise self.unsupported(name, value, "a number")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Reads true or false; see ``take``."""
        return self.expect(name, True, False, default=default)

    def expect(self, name: str, *supported: Any, default: Any = _REQUIRED) -> Any:
        """Reads a field that may only have values that the decoder knows.

        Args:
            name: The field.
            *supported: Those values.
            default: The value where the field is absent; the first supported one unless given.

        Returns:
            The value.

        Raises:
            ValueError: naming field, value and what is supported.
        """
        value = self.take(name, supported[0] if default is _REQUIRED else default)
        if value not in supported:
            raise self.unsupported(name, value, " or ".join(map(repr, supported)))
        return value

    def section(self, name: str) -> "Fields | None":
        """Reads a field that holds fields; None where it is absent."""
        value = self.take(name, None)
        return None if value is None else Fields(value, f"{self._place}{name}.")

    def unsupported(self, name: str, value: Any, wanted: str) -> ValueError:
        """The error about a value that the decoder does not know."""
        return ValueError(
            f"config.json: {self._place}{name}: got {value!r}, wanted {wanted}. "
            "This decoder cannot compute what the file describes."
        )

    def finish(self) -> None:
        """Ends the reading.

        Raises:
            ValueError: naming fields that nothing has read and that may matter.
        """
        left = {name: value for name, value in self._left.items() if name not in NOT_ARCHITECTURE and value is not None}
        if left:
            name, value = next(iter(sorted(left.items())))
            others = f" Unknown too: {', '.join(sorted(left)[1:])}." if len(left) > 1 else ""
            raise ValueError(
                f"config.json: {self._place}{name}: got {value!r}, wanted only fields whose meaning is known for this "
                f"model_type.{others} Remove the field if the forward pass does not depend on it."
            )
