"""``msdump check``: its command, and what it prints."""

from msdump.cli.check.command import command

__all__ = ["command"]
