"""Sampling completions: one interface, concrete engines behind it."""
