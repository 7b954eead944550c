"""What a dump tells around its directories of operators: rank, iteration, and the graph that ran there."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final

from msdump.device.tasks import INSERTED_PREFIX
from msdump.errors import DumpReadError
from msdump.graph.updates import written_inputs
from msdump.store import names
from msdump.store.layouts import Key
from msdump.store.read.graphs.operator_graph import (
    ABSENT,
    GraphOperator,
    OperatorGraph,
    SourceKind,
    ValueSource,
)
from msdump.store.read.reader import Dump, open_dump
from msdump.store.read.tensor_directories import Iteration
from msdump.tools.compare.pairing import content_graph
from msdump.tools.compare.pairing.dump_folder import Folder
from msdump.tools.compare.verdict.expectations import DumpExpectation, FileSlot
from msdump.tools.judge.evidence import OperatorPlace

_log = logging.getLogger("msdump.tools")

LEFTOVER: Final = {"BatchNorm": frozenset({1, 2})}
"""Outputs, by type, that a kernel leaves as the memory was.

vendor: MindSpore 2.10's BatchNorm on the CPU writes the statistics of the batch to outputs 3 and 4 alone; its
gradient reads output 2 and makes no use of it.
"""


def _no_graph() -> OperatorGraph | None:
    return None


@dataclass(frozen=True)
class FolderSurroundings:
    """What is known of one directory.

    Attributes:
        rank: Number of the rank, None where the path does not tell.
        iteration: Number of the iteration, None where the path does not tell.
        expectation: What the directory should hold files of.
        is_inferred: Whether files of tensors tell the graph, which so has the dumped operators alone.
    """

    rank: int | None = None
    iteration: int | None = None
    expectation: DumpExpectation = field(default=DumpExpectation(), repr=False, compare=False)
    is_inferred: bool = False
    _graph: Callable[[], OperatorGraph | None] = field(default=_no_graph, repr=False, compare=False)
    _runs: Callable[[], Mapping[int, Counter[str]]] = field(default=dict, repr=False, compare=False)

    @cached_property
    def graph(self) -> OperatorGraph | None:
        """The graph that ran, None without a graph file, or where that cannot be read or tells too little."""
        graph = self._read_graph
        return graph if graph is None or (graph.is_whole and graph.tells_weights) else None

    @property
    def is_graph_torn(self) -> bool:
        """Whether the file of its graph breaks off, so that the graph is not used."""
        return self._read_graph is not None and not self._read_graph.is_whole

    @property
    def is_graph_restored(self) -> bool:
        """Whether the file of its graph breaks off, and another one stands for it."""
        return self._read_graph is not None and self._read_graph.is_restored

    @property
    def is_ours(self) -> bool:
        """Whether its graph file tells nodes of a model, as msdump's do: its names are those of files."""
        graph = self._read_graph
        return graph is not None and any(each.onnx_names for each in graph.operators.values())

    @cached_property
    def _read_graph(self) -> OperatorGraph | None:
        try:
            return self._graph()
        except DumpReadError:  # it explains verdicts, it is not compared
            return None

    @cached_property
    def runs(self) -> Mapping[int, Counter[str]]:
        """How often operators of each type ran in each graph of the same iteration."""
        return self._runs()

    def with_graph(self, graph: OperatorGraph | None) -> FolderSurroundings:
        """Return the same around another graph."""
        return self if graph is self.graph else replace(self, _graph=lambda: graph)

    def with_inferred(self, graph: OperatorGraph | None) -> FolderSurroundings:
        """Return the same around a graph that tensors tell, where it is not the one that is known."""
        return self if graph is self.graph else replace(self.with_graph(graph), is_inferred=True)

    def leaves_out(self, place: OperatorPlace, own_name: str) -> bool:
        """Tell whether the configuration leaves out an operator that the network has.

        Args:
            place: The same operator in the other dump.
            own_name: Its name here.
        """
        operator = self.operator(own_name)
        if operator is None and self.graph is not None and not self.is_inferred:
            return False
        full_name = place.full_name if operator is None else operator.full_name
        return self.expectation.excludes(full_name, place.op_type)

    def operator(self, name: str) -> GraphOperator | None:
        """Return an operator by its name in files, None where no graph tells of it."""
        return None if self.graph is None else self.graph.find(name)

    def is_fixed(self, name: str) -> bool:
        """Tell whether an operator, as files call it, gives the same in every run; no graph: it does not."""
        return self.graph is not None and self.graph.is_fixed(name)

    def reads(self, name: str, casts: frozenset[str] = frozenset()) -> tuple[ValueSource, ...]:
        """Return where the inputs of an operator come from; nothing where no graph tells.

        Args:
            name: The operator, as files call it.
            casts: Full names of operators that are looked through, as ``behind`` does.
        """
        operator = self.operator(name)
        if operator is None or self.graph is None:
            return ()
        return tuple(
            in_its_graph(behind(source, self.graph, casts), self.graph) for source in operator.inputs
        )

    def unread(self, name: str) -> frozenset[int]:
        """Return the outputs of an operator that nothing reads, where others are read or it writes inputs."""
        operator, graph = self.operator(name), self.graph
        if operator is None or graph is None or any(each.bodies for each in graph.operators.values()):
            return frozenset()  # a branch or a body may read values of the graph around it
        slots = range(len(operator.outputs))
        unread = frozenset(slot for slot in slots if not graph.is_read(operator.full_name, slot))
        has_effects = len(unread) < len(slots) or bool(written_inputs(operator.op_type))
        return unread if has_effects else frozenset()


def with_graphs(
    dumped: tuple[Folder | None, FolderSurroundings], golden: tuple[Folder | None, FolderSurroundings]
) -> tuple[FolderSurroundings, FolderSurroundings]:
    """Return what is known of two directories, with graphs that tensors tell where there are no others.

    Args:
        dumped: The tensors of the side that is examined, None where it has none, and what is known of it.
        golden: The same of the golden side.
    """
    (folder, mine), (golden_folder, theirs) = dumped, golden
    if mine.graph and theirs.graph:
        return mine, theirs
    own = mine.graph or (content_graph.of_folder(folder, theirs.graph) if folder else None)
    other = theirs.graph or (content_graph.of_folder(golden_folder, mine.graph) if golden_folder else None)
    return mine.with_inferred(own), theirs.with_inferred(other)


def are_cut_otherwise(op_type: str, mine: FolderSurroundings, theirs: FolderSurroundings) -> bool:
    """Tell whether one side ran as many operators of a type as the other one, but in other graphs.

    Control flow cuts a network into graphs, which two systems do at other places.
    """
    own, other = (
        {graph: types[op_type] for graph, types in side.runs.items() if types[op_type]}
        for side in (mine, theirs)
    )
    return len({*own, *other}) > 1 and own != other and sum(own.values()) >= sum(other.values())


def behind(source: ValueSource, graph: OperatorGraph, casts: frozenset[str]) -> ValueSource:
    """Return where a value comes from that was brought into another type or format on the way.

    Args:
        source: Where the value as it is read comes from.
        graph: The graph around it.
        casts: Full names of the casts that the other side lacks; what the device inserts it lacks anyway.
    """
    while source.kind is SourceKind.OPERATOR and (
        source.name.startswith(INSERTED_PREFIX) or source.name in casts
    ):
        operator = graph.operators.get(source.name)
        if operator is None or not operator.inputs:
            break
        source = operator.inputs[0]
    return source


def in_its_graph(source: ValueSource, graph: OperatorGraph) -> ValueSource:
    """Return a source; what a branch or a body gets from outside is not known in its graph."""
    return ABSENT if source.kind is SourceKind.INPUT and graph.caller else source


def described(place: OperatorPlace, operator: GraphOperator | None) -> OperatorPlace:
    """Return a place with what a graph tells of its operator, None: nothing."""
    if operator is None:
        return place
    return replace(
        place,
        op_type=place.op_type or operator.op_type,
        full_name=operator.full_name,
        onnx_name=operator.onnx_name,
        scope=operator.scope,
        source=operator.source_line,
    )


class SurroundedDump:
    """The directories of one side of a comparison."""

    def __init__(self, root: str) -> None:
        """Open what lies below a path, or around it."""
        self._known = _listed(root)

    def of(self, path: str) -> FolderSurroundings:
        """Return what is known of a directory of operators; nothing where it is no part of a dump."""
        path = os.path.realpath(path)
        if path not in self._known:
            self._known |= {path: FolderSurroundings(), **_listed(path)}
        return self._known[path]


def _listed(root: str) -> dict[str, FolderSurroundings]:
    try:
        dump = open_dump(root)
    except DumpReadError:  # golden tensors, or several dumps below one path
        return {}
    told: set[Key] = set()
    known = {number for number, rank in dump.ranks.items() if rank.is_known}
    return {
        os.path.realpath(iteration.path): FolderSurroundings(
            iteration.key.rank if iteration.key.rank in known else None,
            iteration.number,
            _expectation(dump, iteration),
            _graph=partial(_told_graph, iteration, told),
            _runs=partial(_runs, dump, iteration),
        )
        for iteration in dump.all_iterations
    }


def _told_graph(iteration: Iteration, told: set[Key]) -> OperatorGraph | None:
    graph = iteration.operator_graph
    place = replace(iteration.key, iteration=None)
    if graph is not None and (graph.is_restored or not graph.is_whole) and place not in told:
        told.add(place)
        _log.warning("%s: the file of its graph breaks off and is not used", iteration.path)
    return graph


def _runs(dump: Dump, iteration: Iteration) -> dict[int, Counter[str]]:
    runs: dict[int, Counter[str]] = {}
    for each in dump.all_iterations:
        if replace(each.key, graph=None) != replace(iteration.key, graph=None):
            continue
        files = Counter(replace(record.name, timestamp=0) for record in each.tensor_files)
        most: Counter[tuple[str, str]] = Counter()
        for name, count in files.items():
            most[name.op_type, name.op_name] = max(count, most[name.op_type, name.op_name])
        types = runs.setdefault(each.key.graph or 0, Counter())
        for (op_type, _), count in most.items():
            types[op_type] += count
    return runs


def _expectation(dump: Dump, iteration: Iteration) -> DumpExpectation:
    def dumped_elsewhere() -> frozenset[FileSlot]:
        place = replace(iteration.key, iteration=None)
        others = (
            each
            for each in dump.all_iterations
            if each is not iteration and replace(each.key, iteration=None) == place
        )
        files = (record.name for each in others for record in each.tensor_files)
        return frozenset((names.sanitize(name.op_name), name.io, name.slot) for name in files)

    return DumpExpectation(_config(dump, iteration), iteration.key.model is not None, dumped_elsewhere)


def _config(dump: Dump, iteration: Iteration) -> object:
    try:
        if iteration.key.device is not None:
            return dump.acl_config(iteration.key.device)
        rank = None if iteration.key.rank is None else dump.ranks.get(iteration.key.rank)
        config = None if rank is None else rank.config
    except DumpReadError:  # then it tells nothing
        return None
    return config
