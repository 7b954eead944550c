"""The surroundings of a directory of operators in its dump: rank, iteration, configuration, graph."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final

from msdump import capture, config  # modules: their doors load pydantic and ONNX where they are used
from msdump.device import INSERTED_PREFIX
from msdump.errors import DumpReadError, MsdumpError
from msdump.graph import written_inputs
from msdump.judge.verdict import OperatorPlace
from msdump.plan import Context, DeviceTarget, DumpPlan, JitLevel, Trigger
from msdump.read import (
    Dump,
    GraphOperator,
    Iteration,
    OperatorGraph,
    SourceKind,
    ValueSource,
    open_dump,
    read_bytes,
)
from msdump.reasons import Reason
from msdump.record import IO
from msdump.store import names

_NUMBER: Final = "-op0"
"""Behind a type that stands for an operator whose name is not known: types are parts of such names."""

FileSlot = tuple[str, IO, int]
"""Operator as files call it, side and number of one of its tensors."""


@dataclass(frozen=True)
class DumpExpectation:
    """The operators, and the inputs or outputs, that a directory of a dump should have files of."""

    place: tuple[Dump, Iteration] | None = None

    @cached_property
    def plan(self) -> DumpPlan | None:
        """The plan of the configuration that the directory was dumped with; None without a readable copy."""
        if self.place is None:
            return None
        dump, key = self.place[0], self.place[1].key
        rank = dump.ranks.get(key.rank or 0)
        path = None if rank is None else rank.config_file
        if key.device is not None:
            path = dump.acl_config_file(key.device)
        if path is None:
            return None
        try:
            device = rank.device if rank is not None else None
            named = device.get("device_target") if isinstance(device, dict) else None
            # only an Ascend's metadata names no device
            context = Context(DeviceTarget(named or DeviceTarget.ASCEND))
            if context.device_target is DeviceTarget.ASCEND:
                context = replace(context, jit_level=JitLevel.O0)
            with config.saved.silence():
                return config.saved.parse(read_bytes(path), path, context, dump.path)
        except (MsdumpError, ValueError):  # counts as no configuration
            return None

    @cached_property
    def elsewhere(self) -> frozenset[FileSlot]:
        """The tensors that other iterations have files of."""
        if self.place is None:
            return frozenset()
        dump, iteration = self.place
        place = replace(iteration.key, iteration=None)
        others = (
            each
            for each in dump.all_iterations
            if each is not iteration and replace(each.key, iteration=None) == place
        )
        files = (record.name for each in others for record in each.tensor_files)
        return frozenset((names.sanitize(name.op_name), name.io, name.slot) for name in files)

    @property
    def sides(self) -> frozenset[IO] | None:
        """Whether inputs, outputs or both were to be dumped; None without a configuration."""
        plan = self.plan
        if plan is None:
            return None
        return frozenset(io for io in IO if capture.refuse_by_name(plan, "", io) is not Reason.SIDE_NOT_ASKED)

    def expects(self, full_name: str, op_type: str) -> bool | None:
        """Return whether an operator should have files; None without a configuration that decides it.

        It should if it is listed, if all operators are to be dumped in every run, or if another iteration has
        files of it. The full name is "" if unknown.
        """
        plan = self.plan
        if plan is not None:
            reason = capture.refuse_by_name(plan, "")
            if reason is Reason.NOT_IN_KERNELS:  # the configuration lists operators
                reason = capture.refuse_by_name(plan, full_name or f"{op_type}{_NUMBER}")
                is_always = True
            else:
                is_limited = plan.watch.writes_hits_alone or plan.watch.history or plan.files.max_bytes
                is_always = plan.when.trigger is Trigger.ALWAYS and plan.compiled.scene is None
                is_always &= not is_limited
            if reason is None and is_always:
                return True
        if any(name == names.sanitize(full_name) for name, *_ in self.elsewhere):
            return True
        return None if plan is None else False


LEFTOVER: Final = {"BatchNorm": frozenset({1, 2})}
"""Outputs, by type, that a kernel leaves as the memory was.

vendor: MindSpore 2.10's BatchNorm on the CPU writes the statistics of the batch to outputs 3 and 4 alone; its
gradient reads output 2 and makes no use of it.
"""


@dataclass(frozen=True)
class FolderSurroundings:
    """The surroundings of one directory."""

    rank: int | None = None  # number of the rank, None if the path does not contain it
    iteration: int | None = None  # number of the iteration, None if the path does not contain it
    expectation: DumpExpectation = field(default=DumpExpectation(), repr=False, compare=False)
    # the directory in its dump, None outside of a dump
    directory: Iteration | None = field(default=None, repr=False, compare=False)
    _graph: Callable[[], OperatorGraph | None] = field(default=lambda: None, repr=False, compare=False)

    @cached_property
    def graph(self) -> OperatorGraph | None:
        """The graph that ran, None without a readable graph file that is whole and identifies weights."""
        graph = self._read_graph
        return graph if graph is None or (graph.is_whole and graph.separates_weights) else None

    @property
    def is_graph_torn(self) -> bool:
        """Whether the graph file is cut off, so that the graph is not used."""
        return self._read_graph is not None and not self._read_graph.is_whole

    @property
    def is_ours(self) -> bool:
        """Whether msdump wrote the graph file."""
        return self._read_graph is not None and self._read_graph.is_ours

    @cached_property
    def _read_graph(self) -> OperatorGraph | None:
        try:
            return self._graph()
        except DumpReadError:  # a graph only explains verdicts, so that none is needed
            return None

    def with_graph(self, graph: OperatorGraph | None) -> FolderSurroundings:
        """Return the surroundings with another graph."""
        return self if graph is self.graph else replace(self, _graph=lambda: graph)

    def place(self, name: str, op_type: str = "", **known: Any) -> OperatorPlace:
        """Return the place of an operator in this rank and iteration."""
        return OperatorPlace(name, op_type, iteration=self.iteration, rank=self.rank, **known)

    def leaves_out(self, place: OperatorPlace, own_name: str) -> bool:
        """Return whether the configuration leaves out an operator that the other dump has at a place.

        ``own_name`` is the operator's name on this side.
        """
        operator = self.operator(own_name)
        if operator is None and self.graph is not None:
            return False
        full_name = place.full_name if operator is None else operator.full_name
        return self.expectation.expects(full_name, place.op_type) is False

    def operator(self, name: str) -> GraphOperator | None:
        """Return an operator by its name in files, None if no graph has it."""
        return None if self.graph is None else self.graph.find(name)

    def is_fixed(self, name: str) -> bool:
        """Return whether an operator (name in files) has the same outputs in every run; no graph: False."""
        return self.graph is not None and self.graph.is_fixed(name)

    def reads(self, operator: GraphOperator | None, casts: frozenset[str]) -> tuple[ValueSource, ...]:
        """Return the sources of the inputs of an operator; empty without a graph.

        ``casts`` are full names of casts that are skipped, as by ``behind``.
        """
        graph = self.graph
        if operator is None or graph is None:
            return ()
        return tuple([in_its_graph(behind(source, graph, casts), graph) for source in operator.inputs])

    def returned(self, casts: frozenset[str] = frozenset()) -> tuple[ValueSource, ...]:
        """Return the outputs of operators that the network returns; empty for a branch or a body."""
        graph = self.graph
        if graph is None or graph.caller:
            return ()
        sources = (behind(each, graph, casts) for each in graph.outputs)
        return tuple(each for each in sources if each.kind is SourceKind.OPERATOR)

    @cached_property
    def _has_bodies(self) -> bool:
        return self.graph is not None and any(each.bodies for each in self.graph.operators.values())

    def unread(self, operator: GraphOperator | None) -> frozenset[int]:
        """Return the unread outputs of an operator that has other outputs with readers, or writes inputs."""
        graph = self.graph
        if operator is None or graph is None or self._has_bodies:
            return frozenset()  # a branch or a body may read values of the graph around it
        slots = range(len(operator.outputs))
        unread = frozenset(slot for slot in slots if not graph.is_read(operator.full_name, slot))
        has_effects = len(unread) < len(slots) or bool(written_inputs(operator.op_type))
        return unread if has_effects else frozenset()


def behind(source: ValueSource, graph: OperatorGraph, casts: frozenset[str]) -> ValueSource:
    """Return the source of a value before it was brought into another type or format.

    Skips operators that the device inserted, and ``casts``: full names of casts that the other side lacks.
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
    """Return a source; for a value from outside of a branch or a body, the operator around it, as absent."""
    is_outer = source.kind is SourceKind.INPUT and graph.caller
    return ValueSource(SourceKind.ABSENT, graph.caller) if is_outer else source


def described(place: OperatorPlace, operator: GraphOperator | None) -> OperatorPlace:
    """Return a place with names, scope and source line of its operator; without operator, as it is."""
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
        """Open the dump that a path contains, or is a part of."""
        self._known = _listed(root)

    def of(self, path: str) -> FolderSurroundings:
        """Return the surroundings of a directory of operators; empty ones where it is no part of a dump."""
        path = os.path.realpath(path)
        if path not in self._known:
            self._known |= {path: FolderSurroundings(), **_listed(path)}
        return self._known[path]


def _listed(root: str) -> dict[str, FolderSurroundings]:
    try:
        dump = open_dump(root)
    except DumpReadError:  # golden tensors, or several dumps below one path
        return {}
    known = {number for number, rank in dump.ranks.items() if rank.is_known}
    return {
        os.path.realpath(iteration.path): FolderSurroundings(
            iteration.key.rank if iteration.key.rank in known else None,
            iteration.number,
            DumpExpectation((dump, iteration)),
            directory=iteration,
            _graph=partial(getattr, iteration, "operator_graph"),
        )
        for iteration in dump.all_iterations
    }
