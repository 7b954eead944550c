"""``msdump pack``: writes dumps as Parquet files, for questions that are asked again."""

from __future__ import annotations

import click

from msdump.cli import messages, options
from msdump.cli.documents import output as documents
from msdump.cli.query.command import tell
from msdump.tools.mapping.executors import ExecutorChoice
from msdump.tools.query import packs, sources
from msdump.tools.query.session import Session


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
    """Write what msdump query tells of each DUMP as Parquet files, by rank.

    Questions about the pack are answered many times faster, also where the dump is gone; other
    programs read its files, too. NAME=DUMP gives a dump a name. Exit codes: 0 done, 2 something
    given is wrong, 130 interrupted.
    """
    with (
        messages.bar("directories", 0) as bar,
        Session(sources.parse(dumps), measures=measures, executor=executor, progress=bar) as session,
    ):
        try:
            pack = packs.write(session, output)
        finally:
            tell(session.faults)
        if documents.wanted():
            from msdump.cli.documents.query import document_of_pack

            documents.put(document_of_pack(pack, session.faults))
            return
    counts = ", ".join(f"{count:,} {view}" for view, count in pack.rows.items())
    print(f"packed    {counts}")
    print(f"into      {pack.path}")
