"""``msdump pack``: writes dumps as Parquet files, for repeated questions."""

from __future__ import annotations

from typing import Final

import click

from msdump.cli import messages, options, sections
from msdump.cli import output as documents
from msdump.cli.output import Document, Shape
from msdump.executors import ExecutorChoice
from msdump.look.query import Pack, Session, parse_sources

DOCUMENT: Final = Document(Shape(Pack, "path rows warnings", name="PackDocument"))


@click.command(name="pack", cls=sections.Command)
@click.argument("dumps", nargs=-1, required=True, metavar="DUMP...", help="Dumps. NAME=DUMP names a dump.")
@sections.selection(
    "--measure", "measures", is_flag=True, help="Read tensors without statistics and measure them."
)
@options.result_directory("Directory of the pack, new or empty.", required=True)
@documents.option
@options.executor
@messages.verbose
def command(*, dumps: tuple[str, ...], output: str, measures: bool, executor: ExecutorChoice) -> None:
    """Write dumps as Parquet files for fast queries.

    The pack has the views of `msdump query`, by rank. Queries of a pack are many times faster and
    do not need the dumps. Other programs can read the files, too.

    Examples:
        msdump pack dump -out pack
        msdump pack mine=dump golden=golden -out pack

    Exit codes:
        0  The pack is written.
        1  A part of a dump could not be read and is left out.
    2  A dump or an option is wrong.
    """
    with (
        messages.bar("directories", 0) as bar,
        Session(parse_sources(dumps), measures=measures, executor=executor, progress=bar) as session,
    ):
        try:
            pack = session.write_pack(output)
        finally:
            messages.say_each("warning", [*session.faults])
    counts = ", ".join(f"{count:,} {view}" for view, count in pack.rows.items())
    documents.show(DOCUMENT, pack, [f"packed    {counts}", f"into      {pack.path}"])
