"""The command line: the only place that prints and exits."""

from msdump.cli.program import main

__all__ = ["main"]
