"""``msdump show``: prints the tree of a dump, or tensors of a file or an operator in full detail."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from msdump.cli import messages, options
from msdump.cli.counts import plural
from msdump.cli.documents import output as documents
from msdump.cli.program import FAILED, REFUSED
from msdump.cli.show import text
from msdump.errors import ToolError
from msdump.store.read.reader import open_dump
from msdump.store.write.streams import write_stream
from msdump.tools import dump_tree, trend
from msdump.tools.inspection import inspection, picture, subjects
from msdump.tools.inspection.inspection import Inspection
from msdump.tools.inspection.subjects import InspectedTensor
from msdump.tools.return_codes import ReturnCode


@click.command(name="show")
@click.argument("path", type=click.Path(), metavar="DUMP")
@click.argument("operator", required=False)
@click.option(
    "--slot", "slots", multiple=True, metavar="IO:NUMBER", help="Input or output of OPERATOR (default: all)."
)
@click.option(
    "--iteration", type=click.IntRange(min=0), help="Iteration of OPERATOR (default: its first one)."
)
@click.option("--rank", type=click.IntRange(min=0), help="Rank of OPERATOR (default: the first one).")
@options.execution
@click.option("--png", type=click.Path(), metavar="FILE.png", help="Write a picture of the only tensor, too.")
@documents.option
@messages.verbose
def command(
    *,
    path: str,
    operator: str | None,
    slots: tuple[str, ...],
    iteration: int | None,
    rank: int | None,
    execution: int | None,
    png: str | None,
) -> None:
    """Print the tree of a dump, or tensors of it in full detail.

    Of a dump alone: its directories (of many files only the first few), its first tensor, or
    some statistics. Where DUMP is a .npy file or a dump file of CANN, and of an OPERATOR: type
    and shape, statistics, where the smallest and the largest element and NaN lie, a histogram,
    and a slice around what stands out. OPERATOR is a full name, its last component, or the name
    that files have; * and ? stand for other characters. Exit codes: 0 something was read back,
    1 nothing of an operator was dumped, 2 there is no such dump, file or operator.
    """
    is_file = os.path.isfile(path)
    places = iteration, rank, execution
    if (is_file or operator is None) and (slots or any(each is not None for each in places)):
        raise click.UsageError(
            "--slot, --iteration, --rank and --execution choose tensors of an OPERATOR of a dump"
        )
    if is_file and operator is None:
        _show(subjects.of_file(path), png)
    elif operator is not None and os.path.isdir(path):
        chosen = tuple(map(trend.slot, slots))
        moment = subjects.of_operator(open_dump(path, execution), operator, chosen, iteration, rank)
        _show(moment.subjects, png)
        if moment.others:
            messages.say(f"it ran {plural(moment.others, 'more time')} (--iteration, --rank)")
    elif png is not None:
        raise click.UsageError("--png is a picture of one tensor: give its file, or an OPERATOR of the dump")
    else:
        _tree(path)


def _tree(dump: str) -> None:
    folder = Path(dump)
    if not os.path.isdir(folder):
        messages.say(f"error: {dump}: no dump here")
        click.get_current_context().exit(REFUSED)
    first, statistics = dump_tree.first_tensor(folder), dump_tree.first_statistics(folder)
    if documents.wanted():
        from msdump.cli.documents.show import document

        documents.put(document(folder))
    else:
        _print_tree(folder, first, statistics)
    if first is None and statistics is None:
        messages.say(f"error: {dump}: no tensor of an operator's output was dumped")
        click.get_current_context().exit(FAILED)


def _print_tree(folder: Path, first: Path | None, statistics: Path | None) -> None:
    print(f"{folder}/")
    for line in dump_tree.lines(folder, "    "):
        print(line)
    parts = (
        None if first is None else dump_tree.tensor(first),
        None if statistics is None else dump_tree.statistics(statistics),
    )
    for part in filter(None, parts):
        print()
        for line in part:
            print(line)


def _show(tensors: Sequence[InspectedTensor], png: str | None) -> None:
    """Print tensors, or put their document; draw the only one."""
    if png is not None and len(tensors) > 1:
        names = ", ".join(tensor.name for tensor in tensors)
        raise click.UsageError(f"--png is a picture of one tensor, here are {len(tensors)} (--slot): {names}")
    if documents.wanted():
        from msdump.cli.documents.show import document_of_tensors

        documents.put(document_of_tensors(_inspected(tensors)))
    else:
        for number, (tensor, seen) in enumerate(_inspected(tensors)):
            if number:
                print()
            for line in text.lines(tensor, seen):
                print(line)
    if png is not None:
        _draw(tensors[0], png)


def _inspected(tensors: Sequence[InspectedTensor]) -> Iterator[tuple[InspectedTensor, Inspection | None]]:
    for tensor in tensors:
        yield tensor, None if tensor.load is None else inspection.inspect(tensor.load())


def _draw(tensor: InspectedTensor, png: str) -> None:
    array = None if tensor.load is None else tensor.load()
    if array is None or not array.size or array.dtype.kind not in "biuf":
        reason = (
            "its elements were not saved" if array is None else f"{tensor.dtype} of {array.size} elements"
        )
        raise ToolError(ReturnCode.PARAMETER, f"{tensor.name}: there is nothing to draw: {reason}")
    folder, name = os.path.split(png)
    write_stream(folder or ".", name, (picture.draw(array),))
    print(f"picture    {png}")
