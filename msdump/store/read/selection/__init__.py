"""Tensors of a dump chosen by what they are, and shown as tables."""
