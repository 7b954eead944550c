"""Observes the operators of one graph, and hands files and rows of their tensors to a sink or a session."""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from msdump import dtypes
from msdump.capture.pipeline import (
    Pipeline,
    completes_operators,
    operator_records,
    pipeline,
    shows_outputs_as_run,
    writes_at_once,
)
from msdump.capture.selection import Selection, drops_useless, has_useless, is_useless
from msdump.capture.steps import OperatorRecords, count_no_tensors, held_in
from msdump.capture.triggers import OverflowTrigger
from msdump.device import Ascend, Task, c0
from msdump.graph import Graph, ValueType
from msdump.graph.files import arguments
from msdump.graph.kernel import FLOAT32, HALVES
from msdump.observer import Arrays, Observer, RanNode, TensorSlot, places_of, tensors_of
from msdump.plan import DeviceTarget, DumpPlan, Trigger
from msdump.reasons import Reason
from msdump.record import IO, Artifact, OperatorRef, TensorRecord
from msdump.statistics import StatisticNeed, TotalsArray
from msdump.store import Clock, SessionFiles, WantedFile, WantedFiles, names, session_files
from msdump.store.write import Sink, SyncSink

if TYPE_CHECKING:
    from msdump.capture.statistics import RowSheet, RowSheets
    from msdump.capture.watch import GraphWatch, RanOperator


_OperatorFiles = Mapping[TensorSlot, WantedFile]
"""The files of an operator."""


class SessionWriter:
    """Has tensors of one graph written in the sessions that run it, where that gives the same files."""

    def __init__(
        self,
        graph: Graph,
        plan: DumpPlan,
        pipeline: Pipeline,
        records: OperatorRecords,
        *,
        sink: SyncSink,
        clock: Clock,
    ) -> None:
        """Set the graph.

        Args:
            graph: The graph.
            plan: What is dumped, a plan of which ``may_write`` tells.
            pipeline: What tensors walk through elsewhere.
            records: Makes their records.
            sink: Where files go.
            clock: Gives timestamps.
        """
        self._graph = graph
        self._plan = plan
        self._pipeline = pipeline
        self._records = records
        self._sink = sink
        self._clock = clock
        self._files: dict[int, _OperatorFiles | None] = {}
        self._by_session: dict[Sequence[TensorSlot], WantedFiles] = {}

    def takes(self, position: int) -> bool:
        """Tell whether a session may write the tensors of the operator at a position."""
        if position not in self._files:
            self._files[position] = self._files_of(position)
        return self._files[position] is not None

    def _files_of(self, position: int) -> _OperatorFiles | None:
        """Return the files of an operator; None where one of its tensors needs more than writing."""
        node, what = self._graph.nodes[position], self._plan.what
        if what.keeps_inputs and node.update.new_values:  # of these, what is there once it has run is shown
            return None
        sides = {
            IO.INPUT: node.inputs_after_run if what.keeps_inputs else (),
            IO.OUTPUT: node.declared_outputs if what.keeps_outputs else (),
        }
        files: dict[TensorSlot, WantedFile] = {}
        for io, values in sides.items():
            types = [self._graph.type_of(name) if name else None for name in values]
            if not all(session_files.takes(each.dtype) for each in types if each is not None):
                return None
            arrays = [None if each is None else _stand_in(each) for each in types]
            for record in self._records.of(node.operator, position, io, arrays, lambda: 0):
                is_known = self._graph.type_of(values[record.slot]).shape is not None
                file = self._file_of(record, record.array.ndim if is_known else None)
                if file is None:
                    return None
                files[TensorSlot(position, io, record.slot)] = file
        return files

    def _file_of(self, record: TensorRecord, rank: int | None) -> WantedFile | None:
        """Return the file of tensors like one whose elements mean nothing, None where no session writes it.

        Args:
            record: The tensor.
            rank: Number of its dimensions, None where only a run tells.
        """
        part, host, held = record.device, record.dtype, held_in(record)
        if part is not None and self._plan.what.keeps_device_format and part.groups > 1:
            return None
        shown = self._pipeline.shown(record)
        if shown is None or not (held is host or (host is FLOAT32 and held in HALVES)):
            return None
        tensor, name = shown
        layout = None
        if tensor.format != record.format:
            layout = None if rank is None else session_files.layout(tensor.format, rank, c0(held))
            if layout is None:
                return None
        saved = dtypes.from_numpy(tensor.array.dtype)
        if part is None or held is host:
            return WantedFile(name, host, saved, layout=layout)
        # vendor: a file in the host's type holds what has been through the device's, too
        return WantedFile(name, host, saved, held, part.saturates(held), layout)

    def begin(self, directory: str, tensors: Sequence[TensorSlot]) -> SessionFiles | None:
        """Return the files of a run of a session, None where it cannot write them now.

        Args:
            directory: Where they go.
            tensors: What it may write; it writes none of operators that ``takes`` does not tell of.
        """
        place = self._sink.for_session(directory)
        if place is None:
            return None
        wanted = self._by_session.get(tensors)
        if wanted is None:
            wanted = self._by_session[tensors] = WantedFiles([*map(self._file, tensors)])
        return SessionFiles(wanted, place, self._clock)

    def _file(self, tensor: TensorSlot) -> WantedFile | None:
        files = self._files.get(tensor.position)
        return None if files is None else files.get(tensor)

    def count(self, directory: str, files: SessionFiles) -> None:
        """Count what a session has written into a directory, which goes where that is nothing."""
        count, size = files.written
        self._sink.count(count, size)
        if not count:
            self._sink.leave(directory)
        for _ in range(files.empty):
            self._pipeline.skip(Reason.NO_ELEMENTS)


def _stand_in(value_type: ValueType) -> np.ndarray | None:
    """Return an array of the type and rank of a value, None where the type is not known."""
    dtype, shape = value_type.dtype, value_type.shape
    rank = 1 if shape is None else len(shape)  # 1: every format has a place for it
    return None if dtype is None else np.zeros((1,) * rank, dtype.numpy)


def may_write(plan: DumpPlan, pipeline: Pipeline) -> bool:
    """Tell whether a plan wants files of tensors and nothing else, whatever becomes of the run."""
    return (
        pipeline.is_in_sessions
        and plan.when.trigger is Trigger.ALWAYS
        and not plan.what.saves_kernel_args
        and writes_at_once(plan)
    )


class Marks:
    """The operators of one network that are marked; any thread may change them."""

    def __init__(self) -> None:
        """Mark no operator yet."""
        self._marked: set[str] = set()
        self._changes: deque[tuple[tuple[str, ...], bool]] = (
            deque()
        )  # any thread appends, a run pops: both are atomic

    def change(self, full_names: tuple[str, ...], *, enabled: bool) -> None:
        """Mark operators by their full names, or take their marks away.

        A run that goes on ends as it began: the next one takes the change.
        """
        self._changes.append((full_names, enabled))

    def take(self) -> frozenset[str] | None:
        """Return the full names that are marked now; None where nothing has changed since the last call."""
        if not self._changes:
            return None
        while self._changes:
            full_names, enabled = self._changes.popleft()
            change = self._marked.update if enabled else self._marked.difference_update
            change(full_names)
        return frozenset(self._marked)


class NamedMarks:
    """The names that ``set_dump`` was given: they mark operators and scopes of every network of a process."""

    def __init__(self) -> None:
        """Start without names."""
        self._enabled: dict[str, bool] = {}
        self._met: set[str] = set()
        self._hints: dict[str, str] = {}  # by name: what may have been meant

    def add(self, name: str, *, enabled: bool) -> None:
        """Add a name, of which the last call counts; networks that are loaded later take it, too."""
        self._enabled[name] = enabled

    def all(self) -> tuple[tuple[str, bool], ...]:
        """Return every name and whether it is to be dumped, in the order of their first calls."""
        return tuple(self._enabled.items())

    def meet(self, name: str) -> None:
        """Note that some network has an operator or a scope of the name."""
        self._met.add(name)

    def miss(self, name: str, hint: str) -> None:
        """Note what may have been meant by a name that a network does not have, "" where nothing is close."""
        self._hints[name] = hint

    def unmet(self) -> list[str]:
        """Return the names that no network has, sorted, each with what may have been meant."""
        return [f"{name}{self._hints.get(name, '')}" for name in sorted(self._enabled.keys() - self._met)]


NodeRun = tuple[int, Arrays, Arrays, bool]
"""Of an operator that has run its place in the execution order, inputs, outputs, and the overflow status."""


@dataclass(slots=True, eq=False)
class MeasuredTogether:
    """Operators that a session has measured, as they are in each step in which it is shown the same object.

    Attributes:
        ran: The operators as they were shown.
        shown: The same without what is not kept of their tensors.
        operators: The same by their names.
        places: Which of the tensors that are there are kept, None: all.
        skipped: How many tensors get no row, by the reason.
        sheet: Their rows but for timestamps and statistics, None where none was made.
    """

    ran: Sequence[RanNode]
    shown: Sequence[NodeRun]
    operators: Sequence[tuple[OperatorRef, Arrays, Arrays]]
    places: Sequence[int] | None
    skipped: Mapping[Reason, int]
    sheet: RowSheet | None = None


_NO_TASK: Final = Task(0, 0)  # only graphs that are compiled as a whole number tasks


class Capture(Observer):
    """The dump of one graph: an observer of its operators while an iteration runs.

    Files of an operator are handed to the sink before ``ran`` returns, inputs
    first, each with a timestamp of its own.

    Attributes:
        bodies: The observers of branches and loops directly inside the graph, by their index.
        entered: Whether the graph, as a branch or a body, ran in this iteration.
    """

    def __init__(
        self,
        graph: Graph,
        plan: DumpPlan,
        selection: Selection,
        sink: Sink,
        clock: Clock,
        *,
        device: Ascend | None = None,
        trigger: OverflowTrigger | None = None,
        watch: GraphWatch | None = None,
    ) -> None:
        """Prepare the dump of a graph.

        Args:
            graph: The graph, fused where the level fuses.
            plan: What is dumped.
            selection: Its operators and parameters.
            sink: Where files and rows go.
            clock: Gives timestamps.
            device: The emulated device, None on CPU and GPU.
            trigger: Decides operator by operator under ``op_debug_mode`` 3.
            watch: Checks rules on its tensors.
        """
        on_failure = plan.when.trigger is Trigger.EXCEPTION
        # what runs well leaves no files under op_debug_mode 4: only ``failed`` is called
        self.watched = (False,) * len(graph.nodes) if on_failure else selection.watched
        self.completes_before_next = self.watched if completes_operators(plan) else ()
        self.wants_inputs = plan.what.keeps_inputs
        self.wants_outputs = plan.what.keeps_outputs
        self._takes_failures = on_failure
        # on CPU and GPU the weights and constants of a body that ran are written after the iteration
        self._tells_entered = self.wants_outputs and plan.context.device_target is not DeviceTarget.ASCEND
        self._plan = plan
        self._graph = graph
        self._operators = tuple(node.operator for node in graph.nodes)
        self._sink = sink
        self._clock = clock  # vendor: each file has a time of its own, also those of one operator
        self._trigger = trigger
        self._pipeline = pipeline(plan, sink, watch)
        self._records = operator_records(plan, device)
        is_dropping = drops_useless(plan)
        self._has_useless = tuple(is_dropping and has_useless(node) for node in graph.nodes)
        self._no_tensors = tuple(
            count_no_tensors(graph, node, inputs=self.wants_inputs, outputs=self.wants_outputs)
            for node in graph.nodes
        )
        # under op_debug_mode 3 each operator decides by itself
        self._gathers = trigger is None and self._pipeline.gathers
        self._directory = ""
        self._iteration = 0
        self.bodies: Mapping[int, Capture] = {}
        self.entered = False
        self._started: int | None = None  # the collective that goes on, its inputs written
        self._shown: list[NodeRun] | None = None  # operators that have run together
        self._measured: dict[int, MeasuredTogether] = {}  # by the position of the first operator

    @functools.cached_property
    def _sheets(self) -> RowSheets | None:
        """What is the same in every step of rows; None where other things are written beside them."""
        if not self._pipeline.has_sheets or self._plan.what.saves_kernel_args:
            return None
        from msdump.capture.statistics import RowSheets

        return RowSheets()

    @functools.cached_property
    def _session_writer(self) -> SessionWriter | None:
        sink, clock = self._sink, self._clock
        if not isinstance(sink, SyncSink) or not sink.is_open_to_sessions:
            return None
        if not may_write(self._plan, self._pipeline) or not clock.is_of_system:
            return None
        return SessionWriter(self._graph, self._plan, self._pipeline, self._records, sink=sink, clock=clock)

    @functools.cached_property
    def saves(self) -> Sequence[bool]:  # type: ignore[override]  # mypy calls it read-only
        """By position, whether a session may write the outputs of an operator; empty: nowhere."""
        writer = self._session_writer
        if writer is None:
            return ()
        return tuple(
            is_watched
            and not self._has_useless[position]
            and not self._no_tensors[position]
            and writer.takes(position)
            for position, is_watched in enumerate(self.watched)
        )

    def begin_saving(self, tensors: Sequence[TensorSlot]) -> SessionFiles | None:
        """Return the files that a session is about to write, None where it cannot now."""
        assert self._session_writer is not None, "else nothing is saved"
        return self._session_writer.begin(self._directory, tensors)

    def saved(
        self,
        tensors: Sequence[TensorSlot],  # noqa: ARG002 - the signature of an observer
        files: SessionFiles,
    ) -> None:
        """Count what a session has written."""
        assert self._session_writer is not None, "else nothing is saved"
        self._session_writer.count(self._directory, files)

    @functools.cached_property
    def need(self) -> StatisticNeed | None:  # type: ignore[override]  # the same
        """What is to be known of tensors, None where their elements are needed.

        They are where the device holds them in another type, as it does most inputs.
        """
        what = self._plan.what
        if not self._gathers or self.wants_inputs or what.saves_kernel_args:
            return None
        watched = (position for position, is_watched in enumerate(self.watched) if is_watched)
        if not shows_outputs_as_run(self._plan) or not self._records.has_host_types(watched):
            return None
        return self._pipeline.need

    def begin(self, directory: str, iteration: int) -> None:
        """Direct the files of the operators that run from now on into an iteration's directory."""
        self._directory = directory
        self._iteration = iteration
        self._pipeline.begin(iteration)
        self._started = None
        self.entered = False

    def starting(self, position: int, inputs: Arrays) -> None:
        """Write the inputs of a collective, which then are there, whatever becomes of the other ranks."""
        if self._trigger is None:  # else its results decide whether it is dumped
            self._write(position, inputs, ())
            self._started = position

    def together(self) -> AbstractContextManager[None]:
        """Return a context for operators that have run together; they are dumped at its end."""
        return self._gathering() if self._gathers else self._pipeline.together()

    @contextmanager
    def _gathering(self) -> Iterator[None]:
        shown = self._shown = []
        try:
            yield
        finally:  # also where an operator cannot be shown: those before it were
            self._shown = None
            self._write_together(shown)

    def ran(self, position: int, inputs: Arrays, outputs: Arrays, *, saturated: bool = False) -> None:
        """Write the tensors of an operator that has just run."""
        if self._trigger is not None:
            node = self._graph.nodes[position]
            refusal = self._trigger.refusal(node, self._iteration, inputs, outputs, saturated=saturated)
            if refusal is not None:
                return
        kept = self._kept(position, outputs)
        self._count_useless(outputs, kept)
        if self._shown is None:
            self._write(position, inputs, kept, saturated=saturated)
        else:
            self._shown.append((position, inputs, kept, saturated))

    def measured(self, ran: Sequence[RanNode], found: TotalsArray) -> bool:
        """Write the rows of operators that have run together; tell whether nothing else is to be written."""
        if not ran:
            return True
        first = ran[0][0]
        together = self._measured.get(first)
        if together is None or together.ran is not ran:
            together = self._measured[first] = self._together(ran)
        if together.places is not None:
            found = found.at(together.places)
        if not self._has_written(together, found):
            return False
        for reason, count in together.skipped.items():
            self._pipeline.skip(reason, count)
        return True

    def _together(self, ran: Sequence[RanNode]) -> MeasuredTogether:
        shown = [
            (position, inputs, self._kept(position, outputs), False) for position, inputs, outputs in ran
        ]
        all_tensors, tensors = tensors_of(ran), tensors_of(each[:3] for each in shown)
        is_whole = len(tensors) == len(all_tensors)
        missing = sum(self._no_tensors[position] for position, *_ in ran)
        skipped = Counter({Reason.USELESS: len(all_tensors) - len(tensors), Reason.NO_TENSOR: missing})
        operators = [(self._operators[position], inputs, outputs) for position, inputs, outputs, _ in shown]
        return MeasuredTogether(
            ran, shown, operators, None if is_whole else places_of(tensors, all_tensors), +skipped
        )

    def _has_written(self, together: MeasuredTogether, found: TotalsArray) -> bool:
        if self._sheets is None:
            cleared = self._cleared(together.shown, together.operators, found)
            return all(cleared) and self._pipeline.skips_cleared(together.operators)
        if together.sheet is None:
            together.sheet = self._sheet(together.shown)
        if together.sheet is None:
            return False
        self._pipeline.add_rows(self._directory, together.sheet.rows_of(found, self._clock))
        return True

    def _kept(self, position: int, outputs: Arrays) -> Arrays:
        if not self._has_useless[position]:
            return outputs
        node = self._graph.nodes[position]  # slots stay
        return [None if is_useless(node, slot) else array for slot, array in enumerate(outputs)]

    def _count_useless(self, outputs: Arrays, kept: Arrays) -> None:
        if kept is outputs:
            return
        for array, left in zip(outputs, kept, strict=True):
            if array is not None and left is None:
                self._pipeline.skip(Reason.USELESS)

    def _write_together(self, shown: Sequence[NodeRun]) -> None:
        """Write the tensors of operators that have run together."""
        if self._sheets is not None and self._write_rows(self._sheets, shown):
            return
        operators = [(self._operators[position], inputs, outputs) for position, inputs, outputs, _ in shown]
        cleared = self._cleared(shown, operators)
        with self._pipeline.together():
            for (position, inputs, outputs, saturated), is_cleared in zip(shown, cleared, strict=True):
                self._write(position, inputs, outputs, saturated=saturated, is_cleared=is_cleared)

    def _cleared(
        self, shown: Sequence[NodeRun], operators: Sequence[RanOperator], found: TotalsArray | None = None
    ) -> Sequence[bool]:
        return self._pipeline.cleared(operators, lambda place: self._records_of((shown[place],)), found)

    def _write_rows(self, sheets: RowSheets, shown: Sequence[NodeRun]) -> bool:
        """Write the rows of operators at once, where types and shapes are those of the last time.

        Args:
            sheets: What was the same the last time.
            shown: The operators.
        """
        arrays = [array for _, inputs, outputs, _ in shown for array in (*inputs, *outputs)]
        positions = tuple(position for position, *_ in shown)
        sheet = sheets.find(positions, arrays, lambda: self._sheet(shown))
        if sheet is None:
            return False
        self._count_no_tensors(positions)
        present = [array for array in arrays if array is not None]
        self._pipeline.add_rows(self._directory, sheet.rows(present, self._clock))
        return True

    def _sheet(self, shown: Sequence[NodeRun]) -> RowSheet | None:
        """Return what is the same in every step of the rows of operators."""
        return self._pipeline.sheet(self._records_of(shown))

    def _records_of(self, shown: Sequence[NodeRun]) -> Iterator[TensorRecord]:
        """Yield the records of operators that have run together, without a time."""
        for position, inputs, outputs, _ in shown:
            yield from self._records.of_both(self._operators[position], position, inputs, outputs, lambda: 0)

    def _write(
        self,
        position: int,
        inputs: Arrays,
        outputs: Arrays,
        *,
        saturated: bool = False,
        is_cleared: bool = False,
    ) -> None:
        operator = self._operators[position]
        if self._started == position:  # what comes before the outputs is written
            self._started, inputs = None, ()
        else:
            if self._plan.what.saves_kernel_args:
                self._write_args(position)
            self._count_no_tensors((position,))
        if is_cleared and self._pipeline.skips_cleared([(operator, inputs, outputs)]):
            return
        records = self._records.of_both(operator, position, inputs, outputs, self._clock.now)
        self._pipeline.take(
            self._directory, operator, _NO_TASK, records, saturated=saturated, is_cleared=is_cleared
        )

    def _count_no_tensors(self, positions: Iterable[int]) -> None:
        for position in positions:
            if self._no_tensors[position]:
                self._pipeline.skip(Reason.NO_TENSOR, self._no_tensors[position])

    def looks_into(self, body: Graph) -> bool:
        """Tell whether an operator in a branch or loop body is watched, or it counts that the body ran."""
        capture = self.bodies.get(body.index)
        return capture is not None and (
            self._tells_entered or any(capture.watched) or any(map(capture.looks_into, body.bodies))
        )

    def enter(self, body: Graph) -> Capture | None:
        """Return the observer of a branch or the body of a loop, which is about to run once."""
        capture = self.bodies.get(body.index)
        if capture is not None:
            capture.entered = True
        return capture

    def failed(self, position: int, inputs: Arrays) -> None:
        """Write the inputs of an operator that has just failed (``op_debug_mode`` 4)."""
        if not self._takes_failures:
            return
        operator = self._operators[position]
        records = self._records.of(operator, position, IO.INPUT, inputs, self._clock.now)
        self._pipeline.take(self._directory, operator, _NO_TASK, records)

    def write_parameter(self, name: str, array: np.ndarray) -> None:
        """Write a weight or graph input as ``Parameter.{name}``."""
        self._write_value(OperatorRef(names.PARAMETER, name), name, array, self._directory)

    def write_constant(self, number: int, array: np.ndarray, directory: str) -> None:
        """Write a constant as ``Parameter.data-{number}``."""
        self._write_value(names.constant(number), "", array, directory)

    def _write_value(self, operator: OperatorRef, name: str, array: np.ndarray, directory: str) -> None:
        """Write a value of the graph as the output of the operator that stands for it."""
        record = self._records.of_graph_input(operator, name, array, self._clock.now())
        self._pipeline.take(directory, operator, _NO_TASK, (record,))

    def _write_args(self, position: int) -> None:
        from msdump.store import operator_names

        # vendor: the name has no time, so that an operator that runs again replaces its file
        node = self._graph.nodes[position]
        data = arguments.kernel_args_json(node, self._graph)
        self._sink.replace(Artifact(self._directory, operator_names.kernel_args(node.operator), (data,)))
