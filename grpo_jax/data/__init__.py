"""Problems, tokenizers and resumable loaders; nothing here needs jax."""
