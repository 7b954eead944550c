"""``msdump diff``: two variants of a model, or two models, in lockstep."""

from msdump.cli.diff.command import command

__all__ = ["command"]
