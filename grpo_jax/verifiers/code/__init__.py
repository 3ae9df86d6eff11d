"""Rewards programs that pass tests: the program runs in the sandbox, and is judged outside of it."""
