"""``msdump explain``: its command, and what it prints."""

from msdump.cli.explain.command import command

__all__ = ["command"]
