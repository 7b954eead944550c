"""``msdump show``: the tree of a dump, and tensors of it looked at closely."""

from msdump.cli.show.command import command

__all__ = ["command"]
