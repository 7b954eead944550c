"""Device memory over a step, as the shapes in a graph file and in the dump tell it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msdump.device.memory import DeviceMemory
from msdump.graph.updates import written_inputs
from msdump.store.read.graphs.operator_graph import OperatorGraph, SourceKind, ValueForm
from msdump.tools.query import tensors


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """Device memory while the operators of a graph run.

    Attributes:
        rank: Number of the rank.
        place: Network and graph.
        weights: Bytes of weights and graph inputs, which lie there all the time.
        in_use: Bytes that are reserved while each operator runs, in the order of execution.
        unknown: Number of outputs whose size the graph file does not tell; they are left out.
    """

    rank: int
    place: str
    weights: int
    in_use: tuple[int, ...]
    unknown: int


DumpedForms = Mapping[tuple[str, int], tuple[str, str]]
"""Element type and shape of outputs that were dumped, by operator and number."""


def curve(rank: int, place: str, graph: OperatorGraph, dumped: DumpedForms) -> MemoryCurve:
    """Return the memory of a graph: results lie there from their operator to the last one that reads them.

    Args:
        rank: Number of the rank.
        place: Network and graph.
        graph: The graph.
        dumped: What was dumped, which tells the sizes that the graph file leaves open.
    """
    memory, unknown = DeviceMemory(), 0
    for name, form in (*graph.weights.items(), *graph.inputs.items()):
        unknown += not _reserve(memory, ("", name), form)
    weights = memory.in_use
    last = {name: place for place, names in enumerate(_read_names(graph)) for name in names}
    kept = {each.name for each in graph.outputs if each.kind is SourceKind.OPERATOR}
    in_use = []
    held: dict[int, list[tuple[str, int]]] = {}
    for number, (name, operator) in enumerate(graph.operators.items()):
        if not written_inputs(operator.op_type):  # results in the place of inputs take no memory
            for slot, form in enumerate(operator.device_outputs or operator.outputs):
                is_known = _reserve(memory, (name, slot), form) or _reserve(
                    memory, (name, slot), _form(dumped.get((name, slot)))
                )
                unknown += not is_known
                if is_known and name not in kept:
                    held.setdefault(last.get(name, number), []).append((name, slot))
        in_use.append(memory.in_use)
        for key in held.pop(number, ()):
            memory.release(key)
    return MemoryCurve(rank, place, weights, tuple(in_use), unknown)


def _form(dumped: tuple[str, str] | None) -> ValueForm:
    if dumped is None or not dumped[0]:
        return ValueForm()
    dtype, shape = dumped
    return ValueForm(dtype, tuple(int(size) for size in shape.split("x") if size.isdigit()))


def _read_names(graph: OperatorGraph) -> Iterator[list[str]]:
    for operator in graph.operators.values():
        yield [source.name for source in operator.inputs if source.kind is SourceKind.OPERATOR]


def _reserve(memory: DeviceMemory, key: tuple[str, str | int], form: ValueForm) -> bool:
    if not form.dtype or form.shape is None or any(size < 0 for size in form.shape):
        return False
    nbytes = tensors.size(form.dtype.lower(), form.shape)
    if nbytes is None:
        return False
    memory.allocate(key, nbytes)
    return True
