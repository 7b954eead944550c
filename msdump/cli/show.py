"""``msdump show``: the tree of a dump, or tensors with statistics, extremes, a histogram and a slice."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import numpy as np

from msdump.analysis import (
    SHOWN,
    Extreme,
    Histogram,
    InspectedTensor,
    Inspection,
    Place,
    Strangers,
    draw,
    file_size,
    first_statistics,
    first_tensor,
    inspect,
    list_folders,
    of_file,
    of_operator,
    read_elements,
    table_lines,
    table_rows,
    tensor_lines,
    tree_lines,
    trend,
)
from msdump.cli import messages, options
from msdump.cli import output as documents
from msdump.cli.messages import plural
from msdump.cli.output import Document, Shape
from msdump.cli.program import FAILED, REFUSED, leave
from msdump.cli.streams import can_print
from msdump.encode import statistic_csv
from msdump.errors import ToolError
from msdump.read import open_dump
from msdump.return_codes import ReturnCode
from msdump.store.write import write_stream

_WIDEST: Final = 40  # columns of a bar
_COUNT: Final = " count"
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
class FirstTensor:
    """The output that was dumped first.

    Attributes:
        path: Its file.
        dtype: Element type of the file.
        shape: Its shape.
        elements: Its first elements; those that are no real numbers as texts.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    elements: list[float | str]


@dataclass(frozen=True, slots=True)
class FirstStatistics:
    """The statistics of the first iteration that has some.

    Attributes:
        path: Their file.
        titles: Titles of the columns.
        rows: The first rows, cells as they stand in the file.
        count: Number of all rows.
    """

    path: str
    titles: list[str]
    rows: list[list[str]]
    count: int


@dataclass(frozen=True, slots=True)
class ShownTensor:
    """A tensor of a file or of an operator.

    Attributes:
        subject: The tensor.
        inspection: Facts about its elements; None where they were not saved.
    """

    subject: InspectedTensor
    inspection: Inspection | None

    @property
    def statistics(self) -> dict[str, float | bool | str | None]:
        """Statistics by the names of statistic_category."""
        return dict(self.subject.statistics)

    @property
    def strangers(self) -> Mapping[str, Strangers]:
        """Its elements that are not finite, by "nan", "inf", "-inf"; empty without saved elements."""
        return {} if self.inspection is None else self.inspection.strangers


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
    tensors: Sequence[ShownTensor] = ()


def _value(extreme: Extreme) -> float:
    """The element."""
    return extreme.value


DOCUMENT: Final = Document(
    Shape(ShownDump, "path directories output statistics tensors", name="ShowDocument"),
    Shape(
        ShownTensor,
        "name=subject.name path=subject.path dtype=subject.dtype shape=subject.shape statistics"
        " smallest=inspection.smallest largest=inspection.largest strangers histogram=inspection.histogram",
    ),
    Shape(Extreme, "value place", value=_value),
)


def lines(subject: InspectedTensor, inspection: Inspection | None) -> Iterator[str]:
    """Yield the lines on a tensor.

    Args:
        subject: The tensor.
        inspection: What its elements look like; None where they were not saved.
    """
    where = f", {subject.where}" if subject.where else ""
    yield f"{subject.name}{where}"
    yield f"file       {subject.path}"
    shape = " x ".join(map(str, subject.shape)) or "scalar"
    layout = f", {subject.format}" if subject.format else ""
    yield f"type       {subject.dtype}, {shape}, {plural(int(np.prod(subject.shape)), 'element')}{layout}"
    yield from _statistics(subject)
    if inspection is None:
        yield "           its elements were not saved, only its statistics"
        return
    yield from _places(inspection)
    if inspection.histogram is not None:
        yield from _bars(inspection.histogram)
    yield from _slice(inspection)


def _statistics(subject: InspectedTensor) -> Iterator[str]:
    cells = {name: cell for name, cell in subject.statistics.items() if cell is not None}
    counts = {name: cell for name, cell in cells.items() if name.endswith(_COUNT)}
    rest = [f"{name} {statistic_csv.text(cell)}" for name, cell in cells.items() if name not in counts]
    if rest:
        yield f"statistics {', '.join(rest)}"
    told = [f"{cell:,} {name.removesuffix(_COUNT)}" for name, cell in counts.items() if cell]
    if told:
        yield f"counts     {', '.join(told)}"


def _places(inspection: Inspection) -> Iterator[str]:
    for name, extreme in (("smallest", inspection.smallest), ("largest", inspection.largest)):
        if extreme is not None:
            yield f"{name:<10} {statistic_csv.text(extreme.value)} at {_at(extreme.place)}"
    for name, strangers in inspection.strangers.items():
        if strangers.count:
            yield f"{name:<10} {_listed(strangers)}"


def _listed(strangers: Strangers) -> str:
    more = strangers.count - len(strangers.places)
    rest = f" and {more:,} more" if more else ""
    return f"{strangers.count:,} at {', '.join(map(_at, strangers.places))}{rest}"


def _at(place: Place) -> str:
    return f"[{', '.join(map(str, place))}]"


def _bars(histogram: Histogram) -> Iterator[str]:
    bar = _BAR if can_print(_BAR) else _PLAIN_BAR
    most = max(histogram.counts)
    edges = [f"{edge:.6g}" for edge in histogram.edges]
    width = max(map(len, edges))
    yield "histogram"
    for low, high, count in zip(edges, edges[1:], histogram.counts, strict=False):
        # a bin with a single element is told from an empty one
        length = -(-count * _WIDEST // most)
        yield f"  {low:>{width}} to {high:>{width}}  {bar * length} {count:,}".rstrip()


def _slice(inspection: Inspection) -> Iterator[str]:
    corner = inspection.slice
    if not corner.size:
        return
    starts = inspection.slice_at
    ranges = [
        f"{start}:{start + size}" for start, size in zip(inspection.slice_from, corner.shape, strict=True)
    ]
    yield f"slice      [{', '.join([*map(str, starts), *ranges])}]" if corner.ndim else "slice      []"
    printed = np.array2string(corner, precision=6, max_line_width=140, threshold=sys.maxsize)
    for line in printed.splitlines():
        yield f"  {line}"


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
        _show(of_file(path), png)
    elif operator is not None and os.path.isdir(path):
        chosen = tuple(map(trend.slot, slots))
        moment = of_operator(open_dump(path, execution), operator, chosen, iteration, rank)
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
        leave(REFUSED)
    first, statistics = first_tensor(folder), first_statistics(folder)
    if documents.wanted():
        directories = [
            DumpDirectory(path, [DumpFile(file.name, file_size(file)) for file in files])
            for path, files in list_folders(folder)
        ]
        output = None if first is None else _first_tensor(first)
        table = None if statistics is None else _first_statistics(statistics)
        documents.put(DOCUMENT, ShownDump(str(folder), directories, output, table))
    else:
        print(f"{folder}/")
        for line in tree_lines(folder, "    "):
            print(line)
        for path, lines_of in ((first, tensor_lines), (statistics, table_lines)):
            if path is not None:
                print()
                for line in lines_of(path):
                    print(line)
    if first is None and statistics is None:
        messages.say(f"error: {dump}: no tensor of an operator's output was dumped")
        leave(FAILED)


def _first_tensor(path: Path) -> FirstTensor:
    array = read_elements(path)
    is_real, elements = array.dtype.kind in "biuf", array.ravel()[:SHOWN].tolist()
    return FirstTensor(
        str(path), str(array.dtype), array.shape, [float(each) if is_real else str(each) for each in elements]
    )


def _first_statistics(path: Path) -> FirstStatistics:
    titles, *rows = table_rows(path)
    return FirstStatistics(str(path), titles, rows[:SHOWN], len(rows))


def _show(tensors: Sequence[InspectedTensor], png: str | None) -> None:
    """Print tensors, or put their document; draw the only one."""
    if png is not None and len(tensors) > 1:
        names = ", ".join(tensor.name for tensor in tensors)
        raise click.UsageError(f"--png is a picture of one tensor, here are {len(tensors)} (--slot): {names}")
    inspected = ((each, None if each.load is None else inspect(each.load())) for each in tensors)
    if documents.wanted():
        shown = [ShownTensor(*each) for each in inspected]
        documents.put(DOCUMENT, ShownDump(tensors[0].path, tensors=shown))
    else:
        for number, (tensor, seen) in enumerate(inspected):
            if number:
                print()
            for line in lines(tensor, seen):
                print(line)
    if png is not None:
        _draw(tensors[0], png)


def _draw(tensor: InspectedTensor, png: str) -> None:
    array = None if tensor.load is None else tensor.load()
    if array is None or not array.size or array.dtype.kind not in "biuf":
        reason = (
            "its elements were not saved" if array is None else f"{tensor.dtype} of {array.size} elements"
        )
        raise ToolError(ReturnCode.PARAMETER, f"{tensor.name}: there is nothing to draw: {reason}")
    folder, name = os.path.split(png)
    write_stream(folder or ".", name, (draw(array),))
    print(f"picture    {png}")
