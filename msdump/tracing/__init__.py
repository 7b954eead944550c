"""Traces: when operators ran and files were written, and Chrome's format for it."""
