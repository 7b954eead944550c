"""``msdump run``: runs a model for a number of steps, and dumps what the configuration says."""

from msdump.cli.run.command import command

__all__ = ["command"]
