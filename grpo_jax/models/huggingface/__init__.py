"""Published models: from a Hugging Face ``config.json`` to a spec, and between its tensors and our parameters."""

from grpo_jax.models.huggingface.configuration import spec_from_huggingface
from grpo_jax.models.huggingface.tensors import LeafSource, from_huggingface, leaf_sources, read_leaf, to_huggingface

__all__ = ["LeafSource", "from_huggingface", "leaf_sources", "read_leaf", "spec_from_huggingface", "to_huggingface"]
