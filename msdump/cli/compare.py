"""``msdump compare``: two dumps of a network, tensor by tensor, and the first operator where they part."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from msdump.cli import messages
from msdump.cli.program import FAILED, REFUSED
from msdump.tools import (
    algorithms,
    divergence,
    divergence_report,
    dump_folder,
    dump_folders,
    file_compare,
    matching,
    reports,
)
from msdump.tools import identities as identity
from msdump.tools.divergence import Limits, Verdict
from msdump.tools.divergence_report import Located, Report
from msdump.tools.dump_folder import FolderKind
from msdump.tools.dump_folders import FolderPair
from msdump.tools.identities import Identities

_SHOWN: Final = 30  # operators; of more only those that differ are listed
_COLOURS: Final = {Verdict.DIFFERENT: "red", Verdict.FAILED: "red", Verdict.ALONE: "dim"}
_PIPED_WIDTH: Final = 160
_COLUMNS: Final = ("#", "operator", "type", "shape", "cosine", "distance", "max error", "")
_MEASURES: Final = ("CosineSimilarity", "RelativeEuclideanDistance", "MaxAbsoluteError")


@click.command(name="compare")
@click.argument("mine", type=click.Path())
@click.argument("golden", type=click.Path())
@click.option(
    "--graph",
    type=click.Path(),
    metavar="FILE",
    help="The model (.onnx), or a graph file of GE (.json): for dumps whose operators have other names.",
)
@click.option(
    "-out", "--output", default=".", show_default=True, type=click.Path(), help="Directory of the table."
)
@click.option(
    "--cosine",
    type=click.FloatRange(0, 1),
    default=Limits().cosine,
    show_default=True,
    help="Least similarity.",
)
@click.option(
    "--distance",
    type=click.FloatRange(0),
    default=Limits().distance,
    show_default=True,
    help="Largest relative distance.",
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Processes (default: one for each core).")
@messages.verbose
def command(
    *,
    mine: str,
    golden: str,
    graph: str | None,
    output: str,
    cosine: float,
    distance: float,
    jobs: int | None,
) -> None:
    """Compare the dump MINE with the dump GOLDEN, and name the first operator that differs.

    Either is a dump, a part of it, or a directory of golden tensors (name.output.time.npy);
    or both are .npy files. Two tensors agree if their cosine similarity is at least --cosine
    and their relative Euclidean distance at most --distance. All numbers of all tensors go
    to compare_{time}.csv, in the order of execution. Exit codes: 0 everything that has a
    counterpart agrees, 1 something differs or cannot be read, 2 nothing could be compared,
    130 interrupted.
    """
    if Path(mine).is_file() and Path(golden).is_file():
        _print_scores(mine, golden)
        return
    pairs = dump_folders.pair(mine, golden)
    report = Report()
    for pair in pairs.pairs:
        _compare(pair, graph, Limits(cosine, distance), jobs or 0, report)
    if not report.compared:
        messages.say(f"error: nothing was compared: {_why_nothing(pairs.pairs[0], graph)}")
        click.get_current_context().exit(REFUSED)
    _print(report)
    for path in pairs.alone:
        messages.say(f"warning: {path} has no counterpart")
    table = divergence_report.table(report.operators)
    print(f"written   {reports.write(output, reports.stamped('compare', '.csv'), [table])}")
    if report.bad:
        click.get_current_context().exit(FAILED)


def _print_scores(mine: str, golden: str) -> None:
    scores = file_compare.compare(mine, golden)
    print(file_compare.report(scores, algorithms.ALL), end="")


def _compare(pair: FolderPair, graph: str | None, limits: Limits, jobs: int, report: Report) -> None:
    ours, theirs = dump_folder.read(pair.mine), dump_folder.read(pair.golden)
    found = identity.read(graph, ours.kind, theirs.kind) if graph else Identities()
    executions = matching.executions(ours, theirs, found)
    with messages.bar("operators", len(executions)) as advance:
        results = divergence.results(ours, theirs, executions, limits, jobs=jobs)
        for order, result in enumerate(results, 1):
            report.add(Located(pair.label, order, result))
            advance()


def _why_nothing(pair: FolderPair, graph: str | None) -> str:
    if graph:
        return f"no tensor of {pair.mine} and {pair.golden} belongs to the same value of {graph}"
    if dump_folder.read(pair.golden).kind is FolderKind.GOLDEN:
        return f"no operator of {pair.mine} is called as one of {pair.golden}; give --graph model.onnx"
    return (
        f"no operator has the same name in {pair.mine} and {pair.golden};"
        " give --graph model.onnx where they were compiled in different ways"
    )


def _print(report: Report) -> None:
    shown = report.operators
    if len(shown) > _SHOWN and not messages.verbosity():
        shown = report.bad[:_SHOWN]
    if shown:
        _print_table(shown, has_labels=any(located.label for located in report.operators))
    for line in _lines(report, len(shown)):
        print(line)


def _print_table(shown: list[Located], *, has_labels: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for title, is_long in (("directory", True), *((title, title == "operator") for title in _COLUMNS)):
        if title != "directory" or has_labels:
            table.add_column(title, overflow="fold", no_wrap=not is_long)
    for located in shown:
        table.add_row(*([located.label] if has_labels else ()), *_cells(located), style=_style(located))
    Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH).print(table)


def _cells(located: Located) -> tuple[str, ...]:
    result, worst = located.result, located.result.worst
    measured = (worst.score(name) if worst.scores else "" for name in _MEASURES)
    shape = divergence_report.shape(worst)
    return (str(located.order), result.name, result.op_type, shape, *measured, worst.verdict)


def _style(located: Located) -> str:
    return _COLOURS.get(located.result.verdict, "")


def _lines(report: Report, shown: int) -> Iterator[str]:
    first = report.first
    if first is None:
        yield "first     nothing differs"
    else:
        yield f"first     {_described(first, report)}"
        if first.result.worst.note:
            yield f"          {first.result.worst.note}"
    counts = report.tensors
    agreeing = counts[Verdict.EQUAL] + counts[Verdict.CLOSE]
    yield (
        f"compared  {_plural(report.compared, 'tensor')} of {_plural(len(report.operators), 'operator')}:"
        f" {agreeing:,} agree ({counts[Verdict.EQUAL]:,} exactly), {counts[Verdict.DIFFERENT]:,} differ,"
        f" {counts[Verdict.FAILED]:,} failed"
    )
    if counts[Verdict.ALONE]:
        yield f"alone     {_plural(counts[Verdict.ALONE], 'tensor')} without a counterpart"
    hidden = len(report.operators) - shown
    if hidden:
        yield f"          {_plural(hidden, 'more operator')} in the table (-v shows all)"


def _described(located: Located, report: Report) -> str:
    result, worst = located.result, located.result.worst
    place = f" in {located.label}" if located.label else ""
    what = (
        f"{worst.io} {worst.slot} {'differs' if worst.verdict is Verdict.DIFFERENT else 'cannot be compared'}"
    )
    return (
        f"{result.name} ({result.op_type}), operator {located.order} of {len(report.operators)}{place}:"
        f" {what}, {located.inputs()}"
    )


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"
