"""Readers of the files that give single operators another precision: keep_dtype and its like."""
