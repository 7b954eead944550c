"""Operators of a dump once more, by the model: whose error is its own, and what rounding explains."""
