"""``msdump baseline``: keeps the statistics of a dump, for later ones to be compared with."""

from __future__ import annotations

from typing import Final

import click

from msdump.analysis import baseline as tool
from msdump.analysis import trend
from msdump.cli import messages, options
from msdump.cli import output as documents
from msdump.cli.output import Document, Shape
from msdump.cli.program import FAILED, leave
from msdump.errors import plural
from msdump.executors import ExecutorChoice

DOCUMENT: Final = Document(
    Shape(tool.Baseline, "path directories tensors=rows unreadable", name="BaselineDocument")
)

_DIGESTS: Final = frozenset({"md5", "sha1"})
_DEFAULT: Final = "max,min,avg,l2norm,nan,negative inf,positive inf"


@click.command(name="baseline")
@click.argument("dump", type=click.Path())
@click.option(
    "-out",
    "--output",
    required=True,
    type=click.Path(),
    help="Directory of the baseline; new, or empty.",
)
@click.option(
    "--stat",
    "statistics",
    default=_DEFAULT,
    show_default=True,
    metavar="NAME,...",
    help="Statistics of tensors, by their names in statistic_category; also md5.",
)
@options.execution
@options.executor
@documents.option
@messages.verbose
def command(
    *, dump: str, output: str, statistics: str, execution: int | None, executor: ExecutorChoice
) -> None:
    """Keep the statistics of DUMP as a baseline, which msdump compare takes for a dump.

    Rows of statistic.csv are taken over; a dump of tensors is measured. The baseline is a tree
    of statistic.csv files and graphs, small enough for a repository. Exit codes: 0 done, 1 a tensor cannot
    be read and is left out, 2 something given is wrong, 130 interrupted.
    """
    categories = [
        name if name in _DIGESTS else trend.category(name) for name in map(str.strip, statistics.split(","))
    ]
    with messages.bar("directories", 0) as bar:
        baseline = tool.write(dump, output, categories, execution=execution, executor=executor, progress=bar)
    messages.say_each("error", baseline.unreadable)
    kept = f"kept      {plural(baseline.rows, 'tensor')} of {plural(baseline.directories, 'folder')}"
    documents.show(DOCUMENT, baseline, [kept, f"into      {baseline.path}"])
    if baseline.unreadable:
        leave(FAILED)
