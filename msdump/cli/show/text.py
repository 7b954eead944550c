"""A tensor as lines of text: header, statistics, places of what stands out, histogram, a slice."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

import numpy as np

from msdump.cli.counts import plural
from msdump.cli.terminal import can_print, visible
from msdump.encode import statistic_csv
from msdump.tools.inspection.inspection import Histogram, Inspection, Place, Strangers
from msdump.tools.inspection.subjects import InspectedTensor

_WIDEST: Final = 40  # columns of a bar
_COUNT: Final = " count"
_BAR: Final = "█"
_PLAIN_BAR: Final = "#"  # for terminals that know ASCII alone


def lines(subject: InspectedTensor, inspection: Inspection | None) -> Iterator[str]:
    """Yield the lines on a tensor.

    Args:
        subject: The tensor.
        inspection: What its elements look like; None where they were not saved.
    """
    where = f", {subject.where}" if subject.where else ""
    yield visible(f"{subject.name}{where}")
    yield visible(f"file       {subject.path}")
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
        yield visible(f"  {line}")
