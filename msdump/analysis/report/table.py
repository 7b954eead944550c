"""The report as a table: a row for each tensor and iteration."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from msdump.analysis import reports
from msdump.analysis.report.collecting import DumpReport
from msdump.analysis.report.series import TensorState

_TITLES: Final = (
    *("Rank", "Network", "Order", "Operator", "Type", "Scope", "Source", "Tensor", "DataType", "Shape"),
    *("Iteration", "Verdict", "Distance", "OwnError", "Microseconds", "Problem", "Holds"),
)


def lines(report: DumpReport) -> Iterator[str]:
    """Return the lines of the csv file: titles, then operators in their order, tensor by tensor.

    An operator without a tensor has one row. ``Problem`` and ``Verdict`` are the operator's,
    ``Distance`` is that of the iteration, ``Holds`` names NaN and infinities.
    """
    width = len(_TITLES) + len(report.series.numbers)
    rows = ((*row, *("",) * (width - len(row))) for row in _rows(report))
    return reports.csv_lines(rows, "\r\n")


def _rows(report: DumpReport) -> Iterator[tuple[object, ...]]:
    series = report.series
    yield (*_TITLES, *series.numbers)
    faults: dict[int, str] = {}
    for problem in report.problems:
        faults.setdefault(problem.operator, problem.text)
        if problem.operator < 0:  # the problem of something that is no operator of the dump
            nothing = ("",) * (len(_TITLES) - len(_TITLES[:4]) - 2)
            yield ("", "", "", problem.name, *nothing, problem.text, "")
    of_operator: dict[int, list[int]] = {}
    for row, tensor in enumerate(series.tensors):
        of_operator.setdefault(tensor.operator, []).append(row)
    for number in range(len(report.operators)):
        rows = of_operator.get(number, [])
        if not rows:
            yield (*_named(report, number), "", "", "", "", *_judged(report, number, None, faults), "")
        for row in rows:
            yield from _of_tensor(report, number, row, faults)


def _of_tensor(
    report: DumpReport, number: int, row: int, faults: dict[int, str]
) -> Iterator[tuple[object, ...]]:
    series, tensor = report.series, report.series.tensors[row]
    for column, iteration in enumerate(series.iterations):
        state = TensorState(int(series.states[row, column]))
        if not state:
            continue
        yield (
            *_named(report, number),
            *(f"{tensor.io}:{tensor.slot}", tensor.dtype, tensor.shape, iteration),
            *_judged(report, number, column, faults),
            holds(state),
            *(_text(table[row, column]) for table in series.numbers.values()),
        )


def _named(report: DumpReport, number: int) -> tuple[object, ...]:
    each = report.operators[number]
    return (each.rank, each.place, each.order, each.name, each.op_type, each.scope, each.source_line)


def _judged(
    report: DumpReport, number: int, column: int | None, faults: dict[int, str]
) -> tuple[object, ...]:
    verdict = report.verdicts.get(number)
    distance = math.nan
    if report.distances is not None:
        distance = report.distances[number, column] if column is not None else math.nan
    time = report.times.get(number)
    return (
        "" if verdict is None else verdict.worst.verdict,
        _text(distance),
        "" if verdict is None else _text(verdict.own_error),
        "" if time is None else f"{time:.6g}",
        faults.get(number, ""),
    )


def holds(state: TensorState) -> str:
    """Return the special contents of a tensor in words, "" for none."""
    words = ((TensorState.NAN, "NaN"), (TensorState.INF, "inf"), (TensorState.NEGATIVE_INF, "-inf"))
    return " ".join(word for flag, word in words if flag & state)


def _text(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"
