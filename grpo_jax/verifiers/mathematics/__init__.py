"""Strict comparison of mathematical answers: text to typed answers, and whether two of them are equal."""
