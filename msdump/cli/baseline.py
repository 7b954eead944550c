"""``msdump baseline``: keeps the statistics of a dump, for later ones to be compared with."""

from __future__ import annotations

from typing import Final

import click

from msdump.cli import messages, options, sections
from msdump.cli import output as documents
from msdump.cli.output import Document, Shape
from msdump.errors import plural
from msdump.executors import ExecutorChoice
from msdump.judge import baseline as tool
from msdump.look import trend

DOCUMENT: Final = Document(
    Shape(tool.Baseline, "path directories tensors=rows unreadable", name="BaselineDocument")
)

_DIGESTS: Final = frozenset({"md5", "sha1"})
_DEFAULT: Final = "max,min,avg,l2norm,nan,negative inf,positive inf"


@click.command(name="baseline", cls=sections.Command)
@click.argument("dump", type=click.Path(), help="Dump with tensors or statistics.")
@options.execution
@sections.selection(
    "--stat",
    "statistics",
    default=_DEFAULT,
    metavar="NAME,...",
    help="Statistics, by their names in statistic_category; also md5.",
)
@options.result_directory("Directory of the baseline, new or empty.", required=True)
@documents.option
@options.executor
@messages.verbose
def command(
    *, dump: str, output: str, statistics: str, execution: int | None, executor: ExecutorChoice
) -> None:
    """Write the statistics of a dump as a golden baseline.

    `msdump compare` accepts the baseline as GOLDEN. Rows of statistic.csv are copied. Other
    tensors are measured. The baseline has statistic.csv files and graph files, small enough for a
    repository.

    Examples:
        msdump baseline dump -out baseline
        msdump baseline dump -out baseline --stat max,min,md5

    Exit codes:
        0  The baseline is written.
        1  A tensor or a row could not be read and is left out.
        2  The dump or an option is wrong.
    """
    categories = [
        name if name in _DIGESTS else trend.category(name) for name in map(str.strip, statistics.split(","))
    ]
    with messages.bar("directories", 0) as bar:
        baseline = tool.write(dump, output, categories, execution=execution, executor=executor, progress=bar)
    messages.say_each("error", baseline.unreadable)
    kept = f"kept      {plural(baseline.rows, 'tensor')} of {plural(baseline.directories, 'folder')}"
    documents.show(DOCUMENT, baseline, [kept, f"into      {baseline.path}"])
