"""``msdump pack``: writes dumps as Parquet files, for repeated questions."""

from __future__ import annotations

from typing import Final

import click

from msdump.analysis.query import Pack, Session, sources
from msdump.cli import messages, options
from msdump.cli import output as documents
from msdump.cli.output import Document, Shape
from msdump.executors import ExecutorChoice

DOCUMENT: Final = Document(Shape(Pack, "path rows warnings", name="PackDocument"))


@click.command(name="pack")
@click.argument("dumps", nargs=-1, required=True, metavar="DUMP...")
@click.option(
    "-out", "--output", required=True, type=click.Path(), help="Directory of the pack; new, or empty."
)
@click.option(
    "--measure", "measures", is_flag=True, help="Measure tensors without statistics; reads their files."
)
@options.executor
@documents.option
@messages.verbose
def command(*, dumps: tuple[str, ...], output: str, measures: bool, executor: ExecutorChoice) -> None:
    """Write the views that msdump query has of each DUMP as Parquet files, by rank.

    Questions about the pack are answered many times faster, also where the dump is gone; other
    programs read its files, too. NAME=DUMP gives a dump a name. Exit codes: 0 done, 2 something
    given is wrong, 130 interrupted.
    """
    with (
        messages.bar("directories", 0) as bar,
        Session(sources.parse_sources(dumps), measures=measures, executor=executor, progress=bar) as session,
    ):
        try:
            pack = session.write_pack(output)
        finally:
            messages.say_each("warning", [*session.faults])
    counts = ", ".join(f"{count:,} {view}" for view, count in pack.rows.items())
    documents.show(DOCUMENT, pack, [f"packed    {counts}", f"into      {pack.path}"])
