"""``msdump compare``: its command, and what it prints."""

from msdump.cli.compare.command import command

__all__ = ["command"]
