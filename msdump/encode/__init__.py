"""Bytes of the dump files, both directions; knows no paths."""
