"""Deterministic verifiers: from a problem and a completion to a verdict, on the host, without jax."""
