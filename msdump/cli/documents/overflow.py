"""The document of ``msdump overflow --json``."""

from __future__ import annotations

from typing import Any

import numpy as np

from msdump.cli.documents.document import JsonDocument, Number, Part
from msdump.tools.overflow.overflows import OperatorOverflow, TensorSummary
from msdump.tools.overflow.report import OverflowReport


class OverflowTensor(Part):
    """A tensor of an operator that overflowed."""

    tensor: str
    """Which, "output:0"."""

    file: str
    """File of its elements, in the directory of results."""

    format: str
    """Memory format."""

    shape: list[int]
    """Shape in that format."""

    dtype: str | None
    """Element type of the file; null where it cannot be read."""

    max: Number | None
    """The largest element, NaN where one is NaN; null without elements."""

    min: Number | None
    """The smallest element, NaN where one is NaN; null without elements."""

    mean: Number | None
    """The mean of the elements; null without elements."""

    fault: str | None
    """Why its elements cannot be read; null where they can."""


class OverflowingUnit(Part):
    """A unit of the device that reports an overflow."""

    unit: str
    """AIC, AIV, AICPU or SDMA; of older devices the name of a section, "AI Core"."""

    fields: dict[str, Any]
    """What the record says: task_id, stream_id, status, ..."""


class OperatorOverflowed(Part):
    """An overflow."""

    operator: str | None
    """Full name of the operator; null where it was not dumped."""

    op_type: str | None
    """Its type; null where it was not dumped."""

    pass_number: int | None
    """Number of its pass of a loop, from 0; null where it ran once or was not dumped."""

    timestamp: int
    """When, in microseconds since the epoch."""

    units: list[OverflowingUnit]
    """The units of the device that report it."""

    tensors: list[OverflowTensor]
    """The operator's tensors, inputs first."""


class OverflowDocument(JsonDocument):
    """The operators of a dump that overflowed."""

    records: int
    """Number of records of overflows in the directory and below."""

    overflows: list[OperatorOverflowed]
    """What the records tell, oldest first."""

    faults: list[str]
    """Records and dump files that cannot be read, and why."""

    summary: str | None
    """File of the summary; null where there are no records."""


def document(report: OverflowReport, summary: str | None) -> OverflowDocument:
    """Return a report, given the file that holds its text."""
    return OverflowDocument(
        records=report.record_count,
        overflows=[_overflow(overflow) for overflow in report.overflows],
        faults=[*report.errors],
        summary=summary,
    )


def _overflow(overflow: OperatorOverflow) -> OperatorOverflowed:
    return OperatorOverflowed(
        operator=overflow.name or None,
        op_type=overflow.op_type or None,
        pass_number=overflow.pass_number,
        timestamp=overflow.timestamp,
        units=[OverflowingUnit(unit=unit.unit, fields=dict(unit.fields)) for unit in overflow.units],
        tensors=[_tensor(tensor) for tensor in overflow.tensors],
    )


def _tensor(tensor: TensorSummary) -> OverflowTensor:
    high, low, mean = (None, None, None) if tensor.extremes is None else map(_number, tensor.extremes)
    return OverflowTensor(
        tensor=f"{tensor.io}:{tensor.slot}",
        file=tensor.file,
        format=tensor.format,
        shape=[*tensor.shape],
        dtype=tensor.dtype or None,
        max=high,
        min=low,
        mean=mean,
        fault=tensor.fault or None,
    )


def _number(element: np.generic) -> float | None:
    """Return a number of the report; complex ones have no place on JSON's line of numbers."""
    return None if element.dtype.kind == "c" else float(element.item())
