"""Objectives as pure functions: arrays in, arrays out."""
