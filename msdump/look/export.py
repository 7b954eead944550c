"""Reports in the formats of other tools: TensorBoard, Model Explorer, Netron."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from msdump.errors import DumpWriteError, NotAvailableError, ToolError
from msdump.judge.verdict import ACCUSING, INNOCENT, Verdict
from msdump.look.report import STRUCK, DumpReport, ReportedOperator, ReportedTensor, TensorState
from msdump.read import SourceKind
from msdump.record import IO
from msdump.return_codes import ReturnCode


@dataclass(frozen=True, slots=True)
class OperatorMetric:
    """One metric of the operators of a report, such as their distance from golden.

    Attributes:
        name: ``verdict``, ``distance``, ``own error``, ``state``, ``time in microseconds``, or a statistic by
            its category.
        values: By the operator's place in the report: a number, which is finite, or a word.
    """

    name: str
    values: Mapping[int, float | str]

    @property
    def is_numeric(self) -> bool:
        """Whether all values are numbers."""
        return not any(isinstance(value, str) for value in self.values.values())


def of_operators(report: DumpReport) -> Iterator[OperatorMetric]:
    """Yield the metrics of a report's operators; a metric that no operator has is left out.

    Statistics are of the outputs over all iterations: the smallest ``min``, of everything else the
    largest. Numbers are finite; ``state`` names the others.
    """
    verdicts = {place: verdict for place, verdict in report.verdicts.items() if place >= 0}
    found: dict[str, dict[int, float | str]] = {
        "verdict": {place: str(each.worst.verdict) for place, each in verdicts.items()},
        "distance": _finite({place: each.distance for place, each in verdicts.items()}),
        "own error": _finite({place: each.own_error for place, each in verdicts.items()}),
        "state": dict(_states(report)),
        **{name: _statistic(report, name) for name in report.series.numbers},
        "time in microseconds": _finite(report.times),
    }
    yield from (OperatorMetric(name, values) for name, values in found.items() if values)


def _finite(values: Mapping[int, float]) -> dict[int, float | str]:
    return {place: float(value) for place, value in values.items() if np.isfinite(value)}


def _states(report: DumpReport) -> Iterator[tuple[int, str]]:
    series = report.series
    states = series.of_operators(len(report.operators))
    for place, of_iterations in enumerate(states):
        state = TensorState(int(np.bitwise_or.reduce(of_iterations)) if len(of_iterations) else 0)
        if TensorState.THERE in state:
            yield place, " and ".join(state.words).lower() or "finite"


def _statistic(report: DumpReport, name: str) -> dict[int, float | str]:
    table = report.series.numbers[name]
    join: Callable[[float, float], float] = min if name == "min" else max
    values: dict[int, float] = {}
    for row, tensor in enumerate(report.series.tensors):
        if tensor.io is not IO.OUTPUT:
            continue
        known = table[row][np.isfinite(table[row])]
        if len(known):
            number = float(known.min() if name == "min" else known.max())
            values[tensor.operator] = join(values.get(tensor.operator, number), number)
    return _finite(values)


MOST_TENSORS: Final = 200
"""Tensors that have scalars, unless more are asked for."""

_CATEGORIES: Final = ("max", "min", "avg", "l2norm", "nan count", "positive inf count")
_BINS: Final = 30
_ALL: Final = "all operators"
_COUNT: Final = "count"


@dataclass(frozen=True, slots=True)
class ScalarPoint:
    """A number at an iteration, under a tag of scope, operator, tensor and statistic."""

    tag: str
    iteration: int
    value: float


@dataclass(frozen=True, slots=True)
class HistogramPoint:
    """A histogram of a statistic of all operators' outputs, or of a tensor's elements, at an iteration."""

    tag: str
    iteration: int
    edges: tuple[float, ...]
    counts: tuple[int, ...]


def scalars(report: DumpReport, most: int = MOST_TENSORS) -> Iterator[ScalarPoint]:
    """Yield the statistics of outputs, as ``chosen``, over the iterations, then losses and gradient norms."""
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
    """Return the rows of exported tensors: with NaN or inf first, others evenly spread over the execution."""
    series, rows = report.series, known(report)
    if len(rows) <= most:
        return rows
    struck = [row for row in rows if (series.states[row] & STRUCK).any()][:most]
    others = [row for row in rows if row not in {*struck}]
    room = most - len(struck)
    picked = {others[number * len(others) // room] for number in range(room)}
    return sorted({*struck} | picked)


def known(report: DumpReport) -> list[int]:
    """Return the rows of exportable tensors: outputs, and inputs that no dumped operator wrote."""
    return [row for row, tensor in enumerate(report.series.tensors) if tensor.is_shown]


def tag_of(report: DumpReport, tensor: ReportedTensor, *, has_ranks: bool) -> str:
    """Return a tag for TensorBoard, ``Default.conv1-Conv2d/Conv2D-op0 output 0``: group, then tensor.

    TensorBoard makes a group of all tags that are the same up to the first ``/``: here the scope.
    """
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
    """Write events into the folder of a run, below TensorBoard's ``--logdir``; return their number.

    Raises:
        NotAvailableError: The package tensorboard is not installed.
        DumpWriteError: The folder cannot be written.
    """
    try:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.plugins.histogram import metadata as of_histograms
        from tensorboard.plugins.scalar import metadata as of_scalars
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
        from tensorboard.util.tensor_util import make_tensor_proto
    except ImportError as error:
        raise NotAvailableError(
            f'files for TensorBoard need its package: pip install "msdump[tensorboard]" ({error})'
        ) from error

    def event(point: ScalarPoint | HistogramPoint, metadata: Any, array: np.ndarray) -> Any:
        summary = summary_pb2.Summary()
        summary.value.add(tag=point.tag, metadata=metadata, tensor=make_tensor_proto(array))
        return event_pb2.Event(wall_time=time.time(), step=point.iteration, summary=summary)

    try:
        writer = EventFileWriter(folder)
        metadata = of_scalars.create_summary_metadata("", "")
        for point in points:
            writer.add_event(event(point, metadata, np.array(point.value, np.float32)))
        metadata = of_histograms.create_summary_metadata("", "")
        for each in spread:
            edges, counts = np.array(each.edges), np.array(each.counts, np.float64)
            writer.add_event(event(each, metadata, np.stack((edges[:-1], edges[1:], counts), axis=1)))
        writer.close()
    except OSError as error:
        raise DumpWriteError(f"cannot write {folder!r}: {error.strerror or error}") from error
    return len(points) + len(spread)


_LOW, _HIGH = "#fde725", "#440154"  # distinguishable in all kinds of colour vision, and in grey
_BAD, _DOUBTFUL, _GOOD = "#d55e00", "#f0e442", "#56b4e9"
_STATE_COLOURS: Final = {"finite": _GOOD, "-inf": _DOUBTFUL}
_INPUTS: Final = "inputs"


def files(report: DumpReport) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the files: the graphs first, then the data of each metric."""
    ids = node_ids(report.operators)
    graphs = _graph_ids(report.operators)
    collection = {"label": "msdump", "graphs": [*_graphs(report.operators, ids, graphs)]}
    yield "graph.json", json.dumps(collection, indent=1)
    for metric in of_operators(report):
        name = re.sub(r"[^a-z0-9]+", "_", metric.name.lower()).strip("_")
        yield f"{name}.json", json.dumps(_data(metric, report.operators, ids, graphs), indent=1)


def node_ids(operators: Sequence[ReportedOperator]) -> list[str]:
    """Return an id for each operator: never empty, and unique within its rank and graph.

    Ids are full names; one that several operators have gets a number, an operator without one its type.
    """
    taken: dict[tuple[int, str], set[str]] = {}
    ids = []
    for operator in operators:
        names = taken.setdefault((operator.rank, operator.place), set())
        name = operator.name or operator.key[3] or operator.op_type or "operator"
        unique, number = name, 1
        while unique in names:
            number += 1
            unique = f"{name}#{number}"
        names.add(unique)
        ids.append(unique)
    return ids


def _graph_ids(operators: Sequence[ReportedOperator]) -> dict[tuple[int, str], str]:
    """Return the id of each graph by rank and place; ranks are named where there are several."""
    places = dict.fromkeys((operator.rank, operator.place) for operator in operators)
    has_ranks = len({rank for rank, _ in places}) > 1
    return {
        (rank, place): f"rank {rank}, {place}" if has_ranks else place or "graph" for rank, place in places
    }


def _graphs(
    operators: Sequence[ReportedOperator], ids: Sequence[str], graphs: Mapping[tuple[int, str], str]
) -> Iterator[dict[str, Any]]:
    nodes: dict[str, list[dict[str, Any]]] = {name: [] for name in graphs.values()}
    given: dict[str, dict[str, None]] = {name: {} for name in graphs.values()}
    for place, operator in enumerate(operators):
        graph = graphs[operator.rank, operator.place]
        nodes[graph].append(_node(operator, ids[place], ids, operators, given[graph]))
    for graph, members in nodes.items():
        known = {node["id"] for node in members}
        inputs = [_parameter(name) for name in given[graph] if name not in known]
        yield {"id": graph, "nodes": [*inputs, *members]}


def _node(
    operator: ReportedOperator,
    name: str,
    ids: Sequence[str],
    operators: Sequence[ReportedOperator],
    given: dict[str, None],
) -> dict[str, Any]:
    """Return a node; the weights and graph inputs that it reads are added to ``given``."""
    sources = () if operator.described is None else operator.described.inputs
    read = {operators[place].name: ids[place] for place in operator.reads}
    edges = []
    for slot, source in enumerate(sources):
        origin = read.get(source.name) if source.kind is SourceKind.OPERATOR else None
        if source.kind in {SourceKind.WEIGHT, SourceKind.INPUT} and source.name:
            origin = source.name
            given.setdefault(source.name)
        if origin is not None:
            edges.append(
                {
                    "sourceNodeId": origin,
                    "sourceNodeOutputId": str(source.slot),
                    "targetNodeInputId": str(slot),
                }
            )
    told = {
        "type": operator.op_type,
        "source": operator.source_line,
        "ONNX node": "" if operator.described is None else operator.described.onnx_name,
        "dumped": "yes" if operator.is_dumped else "no",
    }
    return {
        "id": name,
        "label": operator.op_type or name,
        "namespace": operator.scope,
        "attrs": [{"key": key, "value": value} for key, value in told.items() if value],
        "incomingEdges": edges,
    }


def _parameter(name: str) -> dict[str, Any]:
    return {"id": name, "label": name, "namespace": _INPUTS, "attrs": [], "incomingEdges": []}


def _data(
    metric: OperatorMetric,
    operators: Sequence[ReportedOperator],
    ids: Sequence[str],
    graphs: Mapping[tuple[int, str], str],
) -> dict[str, Any]:
    """Return the data of a metric by graph: numbers with a ramp of colours, words each with its own."""
    data: dict[str, dict[str, Any]] = {}
    for place, value in metric.values.items():
        operator = operators[place]
        graph = graphs[operator.rank, operator.place]
        if graph not in data:
            data[graph] = {"name": metric.name, "results": {}}
            if metric.is_numeric:
                data[graph]["gradient"] = [{"stop": 0, "bgColor": _LOW}, {"stop": 1, "bgColor": _HIGH}]
        colour = {} if metric.is_numeric else {"bgColor": _colour(str(value))}
        data[graph]["results"][ids[place]] = {"value": value} | colour
    return data


def _colour(word: str) -> str:
    """Return the colour of a verdict or of a state."""
    if word in _STATE_COLOURS:
        return _STATE_COLOURS[word]
    if word in {*Verdict}:
        verdict = Verdict(word)
        return _BAD if verdict in ACCUSING else _GOOD if verdict in INNOCENT else _DOUBTFUL
    return _BAD


_PREFIX: Final = "msdump "


def properties(report: DumpReport) -> dict[str, dict[str, str]]:
    """Return texts by their names by the name of the ONNX node.

    A node that a fused operator was made of has the texts of that operator. Of several ranks and graphs with
    the node the first one counts.

    Raises:
        ToolError: The dump has no graph file with names of nodes.
    """
    told: dict[int, dict[str, str]] = {}
    for metric in of_operators(report):
        for place, value in metric.values.items():
            text = value if isinstance(value, str) else f"{value:.6g}"
            told.setdefault(place, {})[f"{_PREFIX}{metric.name}"] = text
    nodes: dict[str, dict[str, str]] = {}
    for place, operator in enumerate(report.operators):
        names = () if operator.described is None else operator.described.onnx_names
        for name in names:
            if place in told and name not in nodes:
                verdict = report.verdicts.get(place)
                nodes[name] = {f"{_PREFIX}operator": operator.name, **told[place]}
                if verdict is not None and verdict.worst.note:
                    nodes[name][f"{_PREFIX}note"] = verdict.worst.note
    if not nodes:
        raise ToolError(
            ReturnCode.PARAMETER,
            f"{report.dump}: no graph file names the ONNX nodes; the dumps of msdump have such a file",
        )
    return nodes
