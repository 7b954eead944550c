"""The document of ``msdump trend --json``."""

from __future__ import annotations

from msdump.cli.documents.document import JsonDocument, Number, Part
from msdump.store.read.cells import Cell
from msdump.tools.trend import TensorTrend, TrendPoint, TrendReport


class TrendMoment(Part):
    """The statistics of a tensor at one moment."""

    iteration: int
    """Number of the iteration."""

    execution: int
    """Number of the execution, where several left something in one directory; else 0."""

    pass_number: int
    """Which run of the operator in the execution it is, from 0."""

    values: dict[str, Number | None]
    """The statistics by category; null where one was not saved and cannot be measured, or read."""


class TrendSeries(Part):
    """The statistics of a tensor over time."""

    operator: str
    """Full name of its operator; the name that files have where that is all that is known."""

    op_type: str
    """Type of its operator."""

    tensor: str
    """Which input or output it is, "output:0"."""

    rank: int
    """Number of the rank, or of the device."""

    network: str
    """Network or model, "" for operators that were called alone."""

    points: list[TrendMoment]
    """By iteration and pass; of one execution, where several left something in one directory."""


class TrendDocument(JsonDocument):
    """Statistics of tensors over the iterations of a dump."""

    series: list[TrendSeries]
    """The tensors."""

    unreadable: list[str]
    """What is wrong with files that cannot be read; their statistics are null."""


def document(report: TrendReport) -> TrendDocument:
    """Return the document of trends."""
    return TrendDocument(series=[_series(trend) for trend in report.series], unreadable=report.unreadable)


def _series(trend: TensorTrend) -> TrendSeries:
    io, slot = trend.slot
    return TrendSeries(
        operator=trend.operator,
        op_type=trend.op_type,
        tensor=f"{io}:{slot}",
        rank=trend.rank,
        network=trend.network,
        points=[_moment(point) for point in trend.points],
    )


def _moment(point: TrendPoint) -> TrendMoment:
    return TrendMoment(
        iteration=point.iteration,
        execution=point.execution,
        pass_number=point.pass_number,
        values={name: _number(cell) for name, cell in point.values.items()},
    )


def _number(cell: Cell) -> float | None:
    return float(cell) if isinstance(cell, int | float) else None
