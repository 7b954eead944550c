"""``msdump report``."""

from msdump.cli.report.command import command

__all__ = ["command"]
