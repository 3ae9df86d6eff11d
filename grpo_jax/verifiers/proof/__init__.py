"""Rewards proofs that a prover accepts: the prover runs in the sandbox, step by step, and no step trusts the last."""
