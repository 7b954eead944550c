"""The view ``operators``: the operators of every graph of a dump, in the order of execution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msdump.errors import DumpReadError
from msdump.store import names
from msdump.store.read.graphs.operator_graph import GraphOperator, OperatorGraph
from msdump.store.read.ranks import Rank
from msdump.store.read.tensor_directories import Iteration
from msdump.tools.query import tables
from msdump.tools.query.places import OpenedDump


def rows(opened: OpenedDump) -> Iterator[dict[str, Any]]:
    """Yield a row for each operator; of a graph without a graph file what its execution order tells."""
    for rank in opened.dump.ranks.values():
        yield from _of_rank(opened, rank)
    for model in (*opened.dump.all_models, *opened.dump.captured):
        place = {"dump": opened.label, "rank": model.device, "network": model.name, "graph": model.model_id}
        try:
            graph = model.operator_graph
        except DumpReadError as error:
            opened.fault(str(error))
            continue
        if graph is not None:
            yield from _operators(graph, place, _names(model.iterations))


def _of_rank(opened: OpenedDump, rank: Rank) -> Iterator[dict[str, Any]]:
    with_tensors = {
        number: graph for network in rank.networks.values() for number, graph in network.graphs.items()
    }
    try:
        graphs = rank.operator_graphs
    except DumpReadError as error:
        opened.fault(str(error))
        graphs = {}
    for number in rank.compiled_graphs:
        dumped = with_tensors.get(number)
        network = dumped.network if dumped is not None else _only(rank)
        place = {"dump": opened.label, "rank": rank.number, "network": network, "graph": number}
        spelled = _names(() if dumped is None else dumped.iterations.values())
        if number in graphs:
            yield from _operators(graphs[number], place, spelled)
        else:
            yield from _listed(opened, rank, number, place, spelled)


def _only(rank: Rank) -> str | None:
    """Return the network of a rank that has one: of a graph of which nothing was dumped."""
    return next(iter(rank.networks)) if len(rank.networks) == 1 else None


def _names(iterations: Iterable[Iteration]) -> frozenset[str]:
    """Return names of operators as the files of the first iteration spell them; none where it has none."""
    for iteration in iterations:
        try:
            in_files = frozenset(name.op_name for name, _ in iteration.named_files)
            return in_files or frozenset(tables.first_names(iteration.statistic_files.values()))
        except DumpReadError:  # told where its tensors are read
            continue
    return frozenset()


def _listed(
    opened: OpenedDump, rank: Rank, number: int, place: dict[str, Any], spelled: frozenset[str]
) -> Iterator[dict[str, Any]]:
    """Yield the operators of a graph that has only a list of their full names."""
    try:
        order = rank.order_unless_damaged(number) or ()
    except DumpReadError as error:
        opened.fault(str(error))
        return
    for position, full_name in enumerate(order):
        yield place | {"execution_order": position} | _named(full_name, spelled)


def _named(full_name: str, spelled: frozenset[str]) -> dict[str, Any]:
    """Return an operator's names; files of the ``classic`` generation hold the last component alone."""
    full, last = names.sanitize(full_name), names.sanitize(full_name.rpartition("/")[2])
    return {
        "full_name": full_name,
        "scope": full_name.rpartition("/")[0],
        "op_name": last if full not in spelled and last in spelled else full,
    }


def _operators(
    graph: OperatorGraph, place: dict[str, Any], spelled: frozenset[str]
) -> Iterator[dict[str, Any]]:
    for position, operator in enumerate(graph.operators.values()):
        numbers = {"execution_order": position, "caller": graph.caller or None}
        yield place | numbers | _named(operator.full_name, spelled) | _told(operator)


def _told(operator: GraphOperator) -> dict[str, Any]:
    return {
        "op_type": operator.op_type,
        "source": operator.source_line or None,
        "inputs": [source.name for source in operator.inputs],
        "input_kinds": [str(source.kind) for source in operator.inputs],
        "input_slots": [source.slot for source in operator.inputs],
        "output_dtypes": [form.dtype for form in operator.outputs],
        "onnx_name": operator.onnx_name or None,
        "attributes": operator.attributes or None,
    }
