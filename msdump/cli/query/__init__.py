"""``msdump query``: answers questions in SQL."""

from msdump.cli.query.command import command

__all__ = ["command"]
