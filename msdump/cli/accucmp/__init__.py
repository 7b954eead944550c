"""CANN's msaccucmp: its options, commands and return codes."""

from msdump.cli.accucmp.program import main

__all__ = ["main"]
