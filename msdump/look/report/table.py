"""A report by operator: tensors over the iterations, as rows of a csv table, as texts of ONNX nodes."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.errors import ToolError
from msdump.judge import reports
from msdump.look.report.collecting import DumpReport
from msdump.look.report.operators import ReportedOperator
from msdump.look.report.problems import OperatorVerdict
from msdump.look.report.series import TensorState
from msdump.record import IO
from msdump.return_codes import ReturnCode

_TITLES: Final = (
    *("Rank", "Network", "Order", "Operator", "Type", "Scope", "Source", "Tensor", "DataType", "Shape"),
    *("Iteration", "Verdict", "Distance", "OwnError", "Problem", "Holds"),
)


@dataclass(frozen=True, slots=True)
class TensorOverTime:
    """The statistics of a tensor over the iterations.

    Attributes:
        tensor: Which input or output, "output:0".
        dtype: Element type, "" where it is not known.
        shape: Its shape, "2x3"; empty of a scalar.
        holds: By iteration: NaN and infinities in it, "" for none; null where it was not dumped.
        statistics: By category and iteration; null where a statistic was not computed.
    """

    tensor: str
    dtype: str
    shape: str
    holds: list[str | None]
    statistics: dict[str, list[float | None]]


@dataclass(frozen=True, slots=True)
class OperatorOverTime:
    """An operator of the dump, or of a graph of which nothing was dumped.

    Attributes:
        operator: The operator.
        verdict: The gravest of its verdicts; None without a comparison.
        distances: Distance of its outputs from golden's by iteration; None without a comparison.
        tensors: Its tensors, outputs first.
    """

    operator: ReportedOperator
    verdict: OperatorVerdict | None
    distances: list[float | None] | None
    tensors: list[TensorOverTime]


def operators_over_time(report: DumpReport) -> Iterator[OperatorOverTime]:
    """Yield all operators in the order of execution."""
    series = report.series
    tensors: list[list[TensorOverTime]] = [[] for _ in report.operators]
    for row, tensor in enumerate(series.tensors):
        states = [TensorState(state) for state in series.states[row].tolist()]
        statistics: dict[str, list[float | None]] = {}
        for category, values in series.numbers.items():
            # NaN stands for a statistic that was not computed, unless the tensor has NaN
            is_count = category.endswith("count")
            statistics[category] = [
                None if math.isnan(value) and (is_count or TensorState.NAN not in state) else value
                for value, state in zip(values[row].tolist(), states, strict=True)
            ]
        holds = [" ".join(state.words) if state else None for state in states]
        tensors[tensor.operator].append(
            TensorOverTime(f"{tensor.io}:{tensor.slot}", tensor.dtype, tensor.shape, holds, statistics)
        )
    for number, operator in enumerate(report.operators):
        distances = None
        if report.distances is not None:
            distances = [None if math.isnan(value) else value for value in report.distances[number].tolist()]
        yield OperatorOverTime(operator, report.verdicts.get(number), distances, tensors[number])


def lines(report: DumpReport) -> Iterator[str]:
    """Return the lines of the csv file: titles, then operators in their order, tensor by tensor.

    An operator without a tensor has one row. ``Problem`` and ``Verdict`` are the operator's,
    ``Distance`` is that of the iteration, ``Holds`` names NaN and infinities.
    """
    titles = (*_TITLES, *report.series.numbers)
    rows = ((*row, *("",) * (len(titles) - len(row))) for row in _rows(report))
    return reports.csv_lines(itertools.chain((titles,), rows), "\r\n")


def _rows(report: DumpReport) -> Iterator[tuple[object, ...]]:
    faults: dict[int, str] = {}
    for problem in report.problems:
        faults.setdefault(problem.operator, problem.text)
        if problem.operator < 0:  # a problem without an operator of the dump
            yield ("", "", "", problem.name, *("",) * (_TITLES.index("Problem") - 4), problem.text)
    for number, each in enumerate(operators_over_time(report)):
        operator = each.operator
        named = (
            *(operator.rank, operator.place, operator.order, operator.name),
            *(operator.op_type, operator.scope, operator.source_line),
        )
        verdict, own_error = "", ""
        if each.verdict is not None:
            verdict, own_error = each.verdict.worst.verdict, _text(each.verdict.own_error)
        rest = (own_error, faults.get(number, ""))
        if not each.tensors:
            yield (*named, "", "", "", "", verdict, "", *rest)
        for tensor in each.tensors:
            form = (tensor.tensor, tensor.dtype, tensor.shape)
            for column, iteration in enumerate(report.series.iterations):
                holds = tensor.holds[column]
                if holds is not None:
                    distance = _text(None if each.distances is None else each.distances[column])
                    statistics = (_text(values[column]) for values in tensor.statistics.values())
                    yield (*named, *form, iteration, verdict, distance, *rest, holds, *statistics)


def _text(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.6g}"


_PREFIX: Final = "msdump "


def node_texts(report: DumpReport) -> dict[str, dict[str, str]]:
    """Return texts by their names by the name of the ONNX node, which Netron shows.

    A node that a fused operator was made of has the texts of that operator. Of several ranks and graphs with
    the node the first one counts.
    """
    verdicts = {place: verdict for place, verdict in report.verdicts.items() if place >= 0}
    states = np.bitwise_or.reduce(report.series.of_operators(len(report.operators)), axis=1, initial=0)
    words = {place: TensorState(state).words for place, state in enumerate(states.tolist()) if state}
    metrics: dict[str, Mapping[int, float | str]] = {
        "verdict": {place: str(each.worst.verdict) for place, each in verdicts.items()},
        "note": {place: each.worst.note for place, each in verdicts.items() if each.worst.note},
        "distance": {place: each.distance for place, each in verdicts.items()},
        "own error": {place: each.own_error for place, each in verdicts.items()},
        "state": {place: " and ".join(each).lower() or "finite" for place, each in words.items()},
    }
    # of the outputs over all iterations: the smallest min, of everything else the largest finite number
    for name, table in report.series.numbers.items():
        known: dict[int, list[float]] = defaultdict(list)
        for numbers, tensor in zip(table, report.series.tensors, strict=True):
            if tensor.io is IO.OUTPUT:
                known[tensor.operator] += numbers[np.isfinite(numbers)].tolist()
        join = min if name == "min" else max
        metrics[name] = {place: join(numbers) for place, numbers in known.items() if numbers}
    texts: dict[int, dict[str, str]] = defaultdict(dict)
    for name, values in metrics.items():
        for place, value in values.items():
            if isinstance(value, str) or np.isfinite(value):
                texts[place][f"{_PREFIX}{name}"] = value if isinstance(value, str) else f"{value:.6g}"
    nodes: dict[str, dict[str, str]] = {}
    for place, operator in enumerate(report.operators):
        for name in () if operator.described is None else operator.described.onnx_names:
            if place in texts:
                nodes.setdefault(name, {f"{_PREFIX}operator": operator.name, **texts[place]})
    if not nodes:
        raise ToolError(
            ReturnCode.PARAMETER,
            f"{report.dump}: no graph file names the ONNX nodes; the dumps of msdump have such a file",
        )
    return nodes
