"""``msdump show``: the tree of a dump, or tensors with statistics, extremes, a histogram and a slice."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import numpy as np

from msdump.cli import messages, options, sections
from msdump.cli import output as documents
from msdump.cli.output import Document, Shape
from msdump.cli.program import FAILED, REFUSED, leave
from msdump.cli.streams import can_print
from msdump.encode import statistic_csv
from msdump.errors import DumpReadError, plural
from msdump.look import (
    SHOWN,
    Extreme,
    FirstStatistics,
    FirstTensor,
    InspectedTensor,
    Place,
    file_size,
    first_statistics,
    first_tensor,
    list_folders,
    of_file,
    of_operator,
    tree_lines,
    trend,
)
from msdump.read import open_dump

_WIDEST: Final = 40  # columns of a bar
_COUNT: Final = " count"
_SIGNS: Final = {"negative zero": "negative", "positive zero": "positive", "zero": "zero"}
_BAR: Final = "█"
_PLAIN_BAR: Final = "#"  # for terminals that know ASCII alone


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A file of a dump.

    Attributes:
        name: Its name.
        bytes: Its size.
    """

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class DumpDirectory:
    """A directory of a dump.

    Attributes:
        path: Its path below the dump, "" for the dump itself.
        files: Its files: of tensors and operators in the order of their times, behind all others by name.
    """

    path: str
    files: list[DumpFile]


@dataclass(frozen=True, slots=True)
class ShownDump:
    """The tree of a dump with a tensor or some statistics of it, or the tensors of a file or an operator.

    Attributes:
        path: The dump, or the file.
        directories: Its directories that hold files, by path.
        output: The output that was dumped first; an input where no output was; None where there is neither.
        statistics: Some statistics; None where there are none.
        tensors: The tensors of a file or an operator; empty for the tree of a dump.
    """

    path: str
    directories: Sequence[DumpDirectory] = ()
    output: FirstTensor | None = None
    statistics: FirstStatistics | None = None
    tensors: Sequence[InspectedTensor] = ()


def _value(extreme: Extreme) -> float:
    """The element."""
    return extreme.value


DOCUMENT: Final = Document(
    Shape(ShownDump, "path directories output statistics tensors", name="ShowDocument"),
    Shape(
        InspectedTensor,
        "name path dtype shape statistics=cells smallest=inspection.smallest largest=inspection.largest"
        " strangers histogram=inspection.histogram",
        name="ShownTensor",
    ),
    Shape(Extreme, "value place", value=_value),
    Shape(FirstTensor, "path dtype shape elements"),
    Shape(FirstStatistics, "path titles rows count"),
)


def _tensor_lines(subject: InspectedTensor) -> Iterator[str]:
    inspection = subject.inspection
    yield f"{subject.name}, {subject.where}" if subject.where else subject.name
    yield f"file       {subject.path}"
    shape = " x ".join(map(str, subject.shape)) or "scalar"
    layout = f", {subject.format}" if subject.format else ""
    yield f"type       {subject.dtype}, {shape}, {plural(int(np.prod(subject.shape)), 'element')}{layout}"
    cells = {name: cell for name, cell in subject.statistics.items() if cell is not None}
    counts = {name.removesuffix(_COUNT): cell for name, cell in cells.items() if name.endswith(_COUNT)}
    rest = [f"{name} {statistic_csv.text(cells[name])}" for name in cells if not name.endswith(_COUNT)]
    found = [f"{cell:,} {_SIGNS.get(name, name)}" for name, cell in counts.items() if cell or name in _SIGNS]
    yield from (
        f"{title} {', '.join(texts)}"
        for title, texts in (("statistics", rest), ("counts    ", found))
        if texts
    )
    if inspection is None:
        yield "           its elements were not saved, only its statistics"
        return
    for name, extreme in (("smallest", inspection.smallest), ("largest", inspection.largest)):
        if extreme is not None:
            yield f"{name:<10} {statistic_csv.text(extreme.value)} at {_place_text(extreme.place)}"
    for name, strangers in inspection.strangers.items():
        if strangers.count:
            more = strangers.count - len(strangers.places)
            further = f" and {more:,} more" if more else ""
            places = ", ".join(map(_place_text, strangers.places))
            yield f"{name:<10} {strangers.count:,} at {places}{further}"
    if inspection.histogram is not None:
        histogram = inspection.histogram
        bar = _BAR if can_print(_BAR) else _PLAIN_BAR
        most = max(histogram.counts)
        edges = [f"{edge:.6g}" for edge in histogram.edges]
        width = max(map(len, edges))
        yield "histogram"
        for low, high, count in zip(edges, edges[1:], histogram.counts, strict=False):
            # a bin with a single element has a bar, an empty one has none
            length = -(-count * _WIDEST // most)
            yield f"  {low:>{width}} to {high:>{width}}  {bar * length} {count:,}".rstrip()
    corner = inspection.slice
    if corner.size:
        starts = zip(inspection.slice_from, corner.shape, strict=True)
        ranges = (f"{start}:{start + size}" for start, size in starts)
        yield f"slice      [{', '.join([*map(str, inspection.slice_at), *ranges])}]"
        printed = np.array2string(corner, precision=6, max_line_width=140, threshold=sys.maxsize)
        yield from (f"  {line}" for line in printed.splitlines())


def _place_text(place: Place) -> str:
    return f"[{', '.join(map(str, place))}]"


@click.command(name="show", cls=sections.Command)
@click.argument("path", type=click.Path(), metavar="DUMP", help="Dump, .npy file, or dump file of CANN.")
@click.argument(
    "operator", required=False, help="Operator: full name, name in files, last component or part; * and ?."
)
@sections.selection(
    "--slot",
    "slots",
    multiple=True,
    metavar="IO:NUMBER",
    show_default="all",
    help="Input or output, such as output:0. (repeatable)",
)
@sections.selection(
    "--iteration", type=click.IntRange(min=0), show_default="the first one", help="Iteration of the operator."
)
@sections.selection(
    "--rank", type=click.IntRange(min=0), show_default="the first one", help="Rank of the operator."
)
@options.execution
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
) -> None:
    """Print the tree of a dump, or one tensor in detail.

    For a dump the output has the directories with the first few files, and the first tensor or
    some statistics. For a file or an OPERATOR the output has type, shape, statistics, the places
    of the extreme elements and of NaN, a histogram, and a slice. The slice stands around the
    first NaN or infinity, or else around the largest element.

    Examples:
        msdump show dump
        msdump show dump Conv2D-op0 --slot output:0

    Exit codes:
        0  A tensor or statistics were read.
        1  The dump has no tensor of the operator, or one of its files could not be read.
        2  The dump or the operator does not exist, several operators have the name, a FILE is no
           tensor, or an option is wrong.
    """
    is_file = os.path.isfile(path)
    places = iteration, rank, execution
    if (is_file or operator is None) and (slots or any(each is not None for each in places)):
        raise click.UsageError(
            "--slot, --iteration, --rank and --execution choose tensors of an OPERATOR of a dump"
        )
    if is_file and operator is None:
        _show(of_file(path))
    elif operator is not None and os.path.isdir(path):
        chosen = tuple(map(trend.slot, slots))
        tensors, others = of_operator(open_dump(path, execution), operator, chosen, iteration, rank)
        if tensors:  # else none could be read
            _show(tensors)
        if others:
            messages.say(f"it ran {plural(others, 'more time')} (--iteration, --rank)")
    else:
        _tree(path)


def _tree(dump: str) -> None:
    folder = Path(dump)
    if not os.path.isdir(folder):
        messages.say(f"error: {dump}: no dump here")
        leave(REFUSED)
    if documents.wanted():
        tensor, table = _first_tensor(folder), first_statistics(folder)
        directories = [
            DumpDirectory(path, [DumpFile(file.name, file_size(file)) for file in files])
            for path, files in list_folders(folder)
        ]
        documents.put(DOCUMENT, ShownDump(str(folder), directories, tensor, table))
    else:  # a file that cannot be read does not hide the tree
        print(f"{folder}/")
        for line in tree_lines(folder, "    "):
            print(line)
        if tensor := _first_tensor(folder):
            shown = np.array2string(tensor.array.ravel()[:SHOWN], precision=5)
            print("", tensor.title, f"{tensor.dtype} {tensor.shape}: {shown} ...", sep="\n")
        if table := first_statistics(folder):
            print("", table.path, *table.lines, sep="\n")
            if table.count > SHOWN:
                print(f"... and {table.count - SHOWN} more rows")
    if tensor is None and table is None:
        messages.say(f"error: {dump}: no tensor of an operator's output was dumped")
        leave(FAILED)


def _first_tensor(folder: Path) -> FirstTensor | None:
    try:
        return first_tensor(folder)
    except DumpReadError as error:
        messages.say_each("warning", [str(error)])
        return None


def _show(tensors: Sequence[InspectedTensor]) -> None:
    if documents.wanted():
        documents.put(DOCUMENT, ShownDump(tensors[0].path, tensors=tensors))
    else:
        for number, each in enumerate(tensors):
            print(*([""] if number else []), *_tensor_lines(each), sep="\n")
