"""Runs programs that a model wrote so that they can neither fool the judge nor hurt the host."""
