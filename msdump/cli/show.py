"""``msdump show``: prints the tree of a dump, and one tensor or some statistics of it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from msdump.cli import messages
from msdump.cli.documents import output as documents
from msdump.cli.program import FAILED, REFUSED
from msdump.tools import dump_tree


@click.command(name="show")
@click.argument("dump", type=click.Path())
@documents.option
@messages.verbose
def command(*, dump: str) -> None:
    """Print the tree of the dump DUMP and read its first output, or some statistics, back.

    Of many files in a directory only the first few are named. Exit codes: 0 something was read
    back, 1 nothing of an operator was dumped, 2 there is no such directory.
    """
    folder = Path(dump)
    if not os.path.isdir(folder):
        messages.say(f"error: {dump}: no dump here")
        click.get_current_context().exit(REFUSED)
    output, statistics = dump_tree.first_output(folder), dump_tree.first_statistics(folder)
    if documents.wanted():
        from msdump.cli.documents.show import document

        documents.put(document(folder))
    else:
        _print(folder, output, statistics)
    if output is None and statistics is None:
        messages.say(f"error: {dump}: no tensor of an operator's output was dumped")
        click.get_current_context().exit(FAILED)


def _print(folder: Path, output: Path | None, statistics: Path | None) -> None:
    print(f"{folder}/")
    for line in dump_tree.lines(folder, "    "):
        print(line)
    parts = (
        None if output is None else dump_tree.tensor(output),
        None if statistics is None else dump_tree.statistics(statistics),
    )
    for part in filter(None, parts):
        print()
        for line in part:
            print(line)
