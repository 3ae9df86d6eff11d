"""Published models: from a Hugging Face ``config.json`` to a spec, and between its tensors and our parameters."""

from grpo_jax.models.huggingface.configuration import spec_from_huggingface
from grpo_jax.models.huggingface.tensors import LeafSource, leaf_sources, published_tensors, read_leaf

__all__ = ["LeafSource", "leaf_sources", "published_tensors", "read_leaf", "spec_from_huggingface"]
