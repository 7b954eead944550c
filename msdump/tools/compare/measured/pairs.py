"""The statistics of two directories that belong together: each side's rows, else what its tensors measure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from msdump.plan import StatisticSpec
from msdump.tools.compare.measured import rows, tensors
from msdump.tools.compare.measured.differences import SUMS
from msdump.tools.compare.measured.rows import Place, RowSide
from msdump.tools.compare.measured.tensors import MeasuredSide


@dataclass(frozen=True, slots=True)
class RowPair:
    """The rows of two directories.

    Attributes:
        dumped: The rows that are examined.
        golden: The rows that they are compared with.
        unreadable: Tensors of the examined side whose file cannot be read, and why.
        unreadable_golden: Messages about golden tensors whose file cannot be read.
    """

    dumped: RowSide
    golden: RowSide
    unreadable: Mapping[Place, str]
    unreadable_golden: tuple[str, ...] = ()


def read(dumped: str, golden: str, executions: tuple[int | None, int | None]) -> RowPair:
    """Return the rows of two directories; those of tensors are measured as the other side's were.

    Args:
        dumped: The directory that is examined.
        golden: The directory that it is compared with.
        executions: Number of the execution of each side, None: the last one that is whole.

    Raises:
        DumpReadError: A table cannot be read, or there was no such execution.
    """
    mine, theirs = rows.read(dumped, executions[0]), rows.read(golden, executions[1])
    if mine.rows and not theirs.rows:
        measured = measured_like(mine, golden, executions[1])
        faults = measured.unreadable.items()
        messages = tuple(f"{name} {io} {slot}: {fault}" for (name, io, slot, _), fault in faults)
        return RowPair(mine, measured.side, {}, messages)
    if theirs.rows and not mine.rows:
        measured = measured_like(theirs, dumped, executions[0])
        return RowPair(measured.side, theirs, measured.unreadable)
    return RowPair(mine, theirs, {})


def measured_like(side: RowSide, path: str, execution: int | None) -> MeasuredSide:
    """Return the statistics of tensors, computed as the rows seem to have been.

    No file of a dump tells whether a device computed them (``stat_calc_mode``), which rounds sums otherwise.

    Args:
        side: The rows.
        path: Directory of the tensors.
        execution: Number of the execution, None: the last one that is whole.

    Raises:
        DumpReadError: The directory cannot be read, or there was no such execution.
    """
    hosted = tensors.measure(path, execution, StatisticSpec(side.categories), side.rows)
    sums = StatisticSpec(tuple(category for category in SUMS if category in side.categories))
    fits = [_same(side, hosted.side, sums)]
    if fits[0] == sum(len(row.cells.keys() & {*sums.categories}) for row in side.rows.values()):
        return hosted
    for is_high in (True, False):
        spec = replace(sums, on_device=True, high_precision=is_high)
        fits.append(_same(side, tensors.measure(path, execution, spec, side.rows).side, sums))
    if max(fits) == fits[0]:
        return hosted
    spec = StatisticSpec(side.categories, on_device=True, high_precision=fits[1] == max(fits))
    return tensors.measure(path, execution, spec, side.rows)


def _same(side: RowSide, other: RowSide, sums: StatisticSpec) -> int:
    """Return how many statistics of two sides are the same."""
    both = (
        (row.cells.get(category), other.rows[place].cells.get(category))
        for place, row in side.rows.items()
        if place in other.rows
        for category in sums.categories
    )
    return sum(mine is not None and mine == theirs for mine, theirs in both)
