"""Outputs of operators that the session which makes them writes to their files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msdump.capture.pipeline import Pipeline, completes_operators, shows_outputs_as_run
from msdump.capture.steps.records import OperatorRecords
from msdump.graph.graph import Graph
from msdump.observer import OutputSlot
from msdump.plan import DumpPlan, Trigger
from msdump.reasons import Reason
from msdump.record import IO
from msdump.store import session_files
from msdump.store.clock import Clock
from msdump.store.session_files import FileNames, NameParts, SessionFiles
from msdump.store.write.sinks import SyncSink

_Names = tuple[NameParts | None, ...]
"""The names of an operator's files by output, None for one without."""


class SessionWriter:
    """Has outputs of one graph written in the sessions that make them, where that gives the same files."""

    def __init__(
        self, graph: Graph, pipeline: Pipeline, records: OperatorRecords, sink: SyncSink, clock: Clock
    ) -> None:
        """Set the graph.

        Args:
            graph: The graph.
            pipeline: What outputs walk through elsewhere.
            records: Makes their records.
            sink: Where files go.
            clock: Gives timestamps.
        """
        self._graph = graph
        self._pipeline = pipeline
        self._records = records
        self._sink = sink
        self._clock = clock
        self._names: dict[int, _Names | None] = {}
        self._sheets: dict[Sequence[OutputSlot], FileNames] = {}

    def takes(self, position: int) -> bool:
        """Tell whether a session may write the outputs of the operator at a position."""
        if position not in self._names:
            self._names[position] = self._names_of(position)
        return self._names[position] is not None

    def _names_of(self, position: int) -> _Names | None:
        """Return the names of an operator's files; None where one of its outputs needs more than writing."""
        node = self._graph.nodes[position]
        dtypes = [self._graph.type_of(name).dtype if name else None for name in node.outputs]
        used = [dtype for name, dtype in zip(node.outputs, dtypes, strict=True) if name]
        if not all(map(session_files.takes, used)) or not self._records.has_host_types((position,)):
            return None
        arrays = [None if dtype is None else np.zeros(1, dtype.numpy) for dtype in dtypes]
        records = self._records.of(node.operator, position, IO.OUTPUT, arrays, lambda: 0)
        names = {record.slot: self._pipeline.name_parts(record) for record in records}
        return None if None in names.values() else tuple(map(names.get, range(len(arrays))))

    def begin(self, directory: str, outputs: Sequence[OutputSlot]) -> SessionFiles | None:
        """Return the files of a run of a session, None where it cannot write them now.

        Args:
            directory: Where they go.
            outputs: What it writes; of operators that ``takes`` does not tell of it writes nothing.
        """
        place = self._sink.for_session(directory)
        if place is None:
            return None
        names = self._sheets.get(outputs)
        if names is None:
            names = self._sheets[outputs] = FileNames([*map(self._name, outputs)])
        return SessionFiles(names, place, self._clock)

    def _name(self, output: OutputSlot) -> NameParts | None:
        names = self._names.get(output.position)
        return None if names is None else names[output.slot]

    def count(self, files: SessionFiles) -> None:
        """Count what a session has written."""
        self._sink.count(*files.written)
        for _ in range(files.empty):
            self._pipeline.skip(Reason.NO_ELEMENTS)


def may_write(plan: DumpPlan) -> bool:
    """Tell whether a plan wants of outputs their files, as they are made, and nothing else."""
    what = plan.what
    return (
        plan.when.trigger is Trigger.ALWAYS
        and what.keeps_outputs
        and not what.keeps_inputs
        and not what.saves_kernel_args
        and completes_operators(plan)
        and shows_outputs_as_run(plan)
    )
