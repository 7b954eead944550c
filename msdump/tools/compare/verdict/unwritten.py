"""Operators of compiled graphs whose files one side has lost: others read what nobody there wrote.

Where a dump has no graph file, its tensors tell who reads whom. A value that an operator reads, that another
one wrote on the other side, and that nobody wrote on its own, was written by an operator whose file is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msdump.record import IO
from msdump.store.read.graphs.operator_graph import GraphOperator, OperatorGraph, SourceKind
from msdump.tools.compare.pairing.dump_folder import COMPILED, Folder
from msdump.tools.compare.verdict.surroundings import FolderSurroundings

_WRITTEN = frozenset({SourceKind.OPERATOR, SourceKind.INPUT})

_Dumped = tuple[Folder, FolderSurroundings]


def lost(side: _Dumped, other: _Dumped, names: Mapping[str, str]) -> Mapping[str, tuple[tuple[IO, int], ...]]:
    """Return the operators of which one side has lost the files, each with its tensors.

    Args:
        side: The side whose files may be lost, and what is known around it.
        other: The other side.
        names: The side's names of operators by the other's; what is not among them has one name on both.

    Returns:
        Tensors by the other side's name of the operator; none where a side's graph is not told by tensors.
    """
    (folder, known), (other_folder, other_known) = side, other
    graph, other_graph = known.graph, other_known.graph
    if not {folder.kind, other_folder.kind} <= COMPILED or graph is None or other_graph is None:
        return {}
    own_names = {name: names.get(name, name) for name in other_folder.operators}
    common = sum(own in folder.operators for own in own_names.values())
    if not known.is_inferred or (known.expectation.selects_all is None and 2 * common < len(own_names)):
        return {}
    absent = (each for each, own in own_names.items() if own not in folder.operators)
    operators = ((name, other_graph.find(name)) for name in absent)
    return {
        name: tuple(_tensors(operator))
        for name, operator in operators
        if operator is not None
        and not known.expectation.excludes(operator.full_name, operator.op_type)
        and _has_run(operator)
        and _is_read_unwritten(operator, other_graph, graph, own_names)
    }


def _has_run(operator: GraphOperator) -> bool:
    """Tell whether compilation cannot have folded an operator, all of whose inputs are known."""
    kinds = {source.kind for source in operator.inputs}
    return SourceKind.ABSENT not in kinds and not kinds.isdisjoint(_WRITTEN)


def _is_read_unwritten(
    operator: GraphOperator, other: OperatorGraph, graph: OperatorGraph, names: Mapping[str, str]
) -> bool:
    """Tell whether a graph has a reader of an operator's output, whose input there nobody wrote."""
    for reader in other.used_by(operator.full_name):
        own = graph.find(names.get(reader.file_name, ""))
        if own is None or own.op_type != reader.op_type or len(own.inputs) != len(reader.inputs):
            continue
        pairs = zip(reader.inputs, own.inputs, strict=True)
        if any(each.name == operator.full_name and mine.kind not in _WRITTEN for each, mine in pairs):
            return True
    return False


def _tensors(operator: GraphOperator) -> Iterator[tuple[IO, int]]:
    yield from ((IO.INPUT, slot) for slot in range(len(operator.inputs)))
    yield from ((IO.OUTPUT, slot) for slot in range(len(operator.outputs)))
