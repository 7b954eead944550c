"""Scalars and histograms of a dump over its iterations, as files of events that TensorBoard reads.

They are written by the package tensorboard. TensorBoard makes a group of all tags that are the same up to the
first ``/``: here the scope of the operator, its modules joined by points.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from msdump.errors import DumpWriteError, NotAvailableError
from msdump.tools.report.collecting import DumpReport
from msdump.tools.report.series import STRUCK, ReportedTensor

MOST_TENSORS: Final = 200
"""Tensors that have scalars, unless more are asked for."""

_CATEGORIES: Final = ("max", "min", "avg", "l2norm", "nan count", "positive inf count")
_BINS: Final = 30
_ALL: Final = "all operators"
_COUNT: Final = "count"


@dataclass(frozen=True, slots=True)
class ScalarPoint:
    """A number at an iteration.

    Attributes:
        tag: Scope, operator, tensor and statistic.
        iteration: Number of the iteration.
        value: The number, NaN and infinities too.
    """

    tag: str
    iteration: int
    value: float


@dataclass(frozen=True, slots=True)
class HistogramPoint:
    """How numbers are spread at an iteration.

    Attributes:
        tag: What is shown: a statistic of all operators' outputs, or the elements of a tensor.
        iteration: Number of the iteration.
        edges: Bounds of the bins.
        counts: Numbers in each bin.
    """

    tag: str
    iteration: int
    edges: tuple[float, ...]
    counts: tuple[int, ...]


def scalars(report: DumpReport, most: int = MOST_TENSORS) -> Iterator[ScalarPoint]:
    """Yield the statistics of outputs over the iterations, then losses and gradient norms.

    Args:
        report: The report.
        most: Tensors that are told: those with NaN or inf first, the others evenly spread over the execution.
    """
    series = report.series
    has_ranks = len({operator.rank for operator in report.operators}) > 1
    for row in chosen(report, most):
        for category in _CATEGORIES:
            if category not in series.numbers:
                continue
            tag = f"{tag_of(report, series.tensors[row], has_ranks=has_ranks)} {category}"
            values = series.numbers[category][row]
            yield from (
                ScalarPoint(tag, iteration, float(value))
                for iteration, value, is_there in zip(
                    series.iterations, values, series.states[row], strict=True
                )
                if is_there
            )
    for curve in report.curves:
        rank = f", rank {curve.rank}" if has_ranks else ""
        yield from (
            ScalarPoint(f"training/{curve.name}{rank}", iteration, value)
            for iteration, value in zip(series.iterations, curve.values, strict=True)
            if not np.isnan(value)
        )


def chosen(report: DumpReport, most: int) -> list[int]:
    """Return the rows of the tensors that are told, in the order of execution."""
    series, rows = report.series, known(report)
    if len(rows) <= most:
        return rows
    struck = [row for row in rows if (series.states[row] & STRUCK).any()][:most]
    others = [row for row in rows if row not in {*struck}]
    room = most - len(struck)
    picked = {others[number * len(others) // room] for number in range(room)}
    return sorted({*struck} | picked)


def known(report: DumpReport) -> list[int]:
    """Return the rows of all tensors that could be told: outputs, and what no operator of the dump wrote."""
    return [row for row, tensor in enumerate(report.series.tensors) if tensor.is_shown]


def tag_of(report: DumpReport, tensor: ReportedTensor, *, has_ranks: bool) -> str:
    """Return ``Default.conv1-Conv2d/Conv2D-op0 output 0``: the group, and what stands in it."""
    operator = report.operators[tensor.operator]
    scope, _, name = operator.name.rpartition("/")
    rank = f"rank {operator.rank}." if has_ranks else ""
    group = scope.replace("/", ".") or operator.op_type or _ALL
    return f"{rank}{group}/{name or operator.op_type} {tensor.io} {tensor.slot}"


def histograms(report: DumpReport) -> Iterator[HistogramPoint]:
    """Yield how each statistic is spread over all operators, and the elements of the report's histograms."""
    series = report.series
    outputs = known(report)
    for category in _CATEGORIES:
        if category not in series.numbers or category.endswith(_COUNT):
            continue
        for column, iteration in enumerate(series.iterations):
            numbers = series.numbers[category][outputs, column]
            numbers = numbers[np.isfinite(numbers)]
            if len(numbers):
                counts, edges = np.histogram(numbers, _BINS)
                tag = f"{_ALL}/{category} of their outputs"
                yield HistogramPoint(tag, iteration, tuple(edges.tolist()), tuple(counts.tolist()))
    for shown in report.histograms:
        operator = report.operators[shown.operator]
        scope, _, name = operator.name.rpartition("/")
        edges = np.linspace(shown.low, shown.high, len(shown.counts) + 1)
        tag = f"{scope.replace('/', '.') or operator.op_type}/{name} {shown.tensor} elements"
        yield HistogramPoint(tag, shown.iteration, tuple(edges.tolist()), shown.counts)


def write(folder: str, points: Sequence[ScalarPoint], spread: Sequence[HistogramPoint]) -> int:
    """Write the events of a dump into a folder; return their number.

    Args:
        folder: The folder, one for each run, as TensorBoard's ``--logdir`` has them below it.
        points: Scalars.
        spread: Histograms.

    Raises:
        NotAvailableError: The package tensorboard is not installed.
        DumpWriteError: The folder cannot be written.
    """
    modules = _package()
    try:
        writer = modules.writer.EventFileWriter(folder)
        for point in points:
            writer.add_event(modules.scalar(point))
        for each in spread:
            writer.add_event(modules.histogram(each))
        writer.close()
    except OSError as error:
        raise DumpWriteError(f"cannot write {folder!r}: {error.strerror or error}") from error
    return len(points) + len(spread)


@dataclass(frozen=True, slots=True)
class _Package:
    """The modules of tensorboard that make events.

    Attributes:
        writer: Writes files of events.
        events: The messages of events.
        summaries: The messages of what they tell.
        tensors: Makes tensors.
        of_scalars: Tells that a tensor is a scalar.
        of_histograms: Tells that a tensor is a histogram.
    """

    writer: Any
    events: Any
    summaries: Any
    tensors: Any
    of_scalars: Any
    of_histograms: Any

    def scalar(self, point: ScalarPoint) -> Any:
        metadata = self.of_scalars.create_summary_metadata("", "")
        return self._event(point.tag, point.iteration, np.array(point.value, np.float32), metadata)

    def histogram(self, point: HistogramPoint) -> Any:
        edges = np.array(point.edges)
        bins = np.stack((edges[:-1], edges[1:], np.array(point.counts, np.float64)), axis=1)
        metadata = self.of_histograms.create_summary_metadata("", "")
        return self._event(point.tag, point.iteration, bins, metadata)

    def _event(self, tag: str, step: int, array: np.ndarray, metadata: Any) -> Any:
        summary = self.summaries.Summary()
        summary.value.add(tag=tag, metadata=metadata, tensor=self.tensors.make_tensor_proto(array))
        return self.events.Event(wall_time=time.time(), step=step, summary=summary)


def _package() -> _Package:
    try:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.plugins.histogram import metadata as of_histograms
        from tensorboard.plugins.scalar import metadata as of_scalars
        from tensorboard.summary.writer import event_file_writer
        from tensorboard.util import tensor_util
    except ImportError as error:
        raise NotAvailableError(
            f'files for TensorBoard need its package: pip install "msdump[tensorboard]" ({error})'
        ) from error
    return _Package(event_file_writer, event_pb2, summary_pb2, tensor_util, of_scalars, of_histograms)
