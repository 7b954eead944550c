"""Files for Google's Model Explorer: the graphs of a dump, and a file of node data for each metric.

``graph.json`` is a collection of graphs, the others are data for their nodes, by graph and node. The ids of
nodes are the full names of operators; a name that several operators of a graph have gets a number, an
operator without one its type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msdump.store.read.graphs.operator_graph import SourceKind
from msdump.tools.export.metrics import OperatorMetric, of_operators
from msdump.tools.judge.verdicts import ACCUSING, INNOCENT, Verdict
from msdump.tools.report.collecting import DumpReport
from msdump.tools.report.operators import ReportedOperator

GRAPHS: Final = "graph.json"
"""Name of the file with the graphs."""

_LOW, _HIGH = "#fde725", "#440154"  # told apart in all kinds of colour vision, and in grey
_BAD, _DOUBTFUL, _GOOD = "#d55e00", "#f0e442", "#56b4e9"
_STATE_COLOURS: Final = {"finite": _GOOD, "-inf": _DOUBTFUL}
_INPUTS: Final = "inputs"


def files(report: DumpReport) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the files: the graphs first, then the data of each metric."""
    ids = node_ids(report.operators)
    graphs = _graph_ids(report.operators)
    collection = {"label": "msdump", "graphs": [*_graphs(report.operators, ids, graphs)]}
    yield GRAPHS, json.dumps(collection, indent=1)
    for metric in of_operators(report):
        name = re.sub(r"[^a-z0-9]+", "_", metric.name.lower()).strip("_")
        yield f"{name}.json", json.dumps(_data(metric, report.operators, ids, graphs), indent=1)


def node_ids(operators: Sequence[ReportedOperator]) -> list[str]:
    """Return an id for each operator: never empty, and unique within its rank and graph."""
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
