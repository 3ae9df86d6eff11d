"""Data sets as they are published."""
