"""``msdump completion``: lets a shell complete commands and options."""

from msdump.cli.completion.command import command

__all__ = ["command"]
