"""Observes the operators of one graph, and hands the files and rows of their tensors to a sink."""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

import numpy as np

from msdump import tracing
from msdump.capture.pipeline import operator_records, pipeline, shows_outputs_as_run
from msdump.capture.selection import GraphRefusals
from msdump.capture.triggers import OverflowTrigger
from msdump.device import Ascend, Task
from msdump.graph import Graph
from msdump.graph.files import arguments
from msdump.observer import Arrays, ElementsNeededError, Interest, NodeRun, Observer, places_of, tensors_of
from msdump.plan import DeviceTarget, DumpPlan, Trigger
from msdump.reasons import Reason
from msdump.record import Artifact, OperatorRef, TensorRecord
from msdump.statistics import StatisticNeed, TotalsArray
from msdump.store import Clock, layouts, names, operator_names
from msdump.store.write import Sink

if TYPE_CHECKING:
    from msdump.capture.statistics import RowSheet
    from msdump.capture.watch import GraphWatch


class Marks:
    """The operators of one network that are marked; any thread may change them."""

    def __init__(self) -> None:
        self._marked: set[str] = set()
        self._changes: deque[tuple[tuple[str, ...], bool]] = (
            deque()
        )  # any thread appends, a run pops: both are atomic

    def change(self, full_names: tuple[str, ...], *, enabled: bool) -> None:
        """Mark operators by their full names, or take their marks away.

        A change takes effect in the next run; a run in progress keeps its marks.
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
        self._enabled: dict[str, bool] = {}
        self._met: set[str] = set()
        self._hints: dict[str, str] = {}  # hint by name

    def add(self, name: str, *, enabled: bool) -> None:
        """Add a name, of which the last call counts; networks that are loaded later take it, too."""
        self._enabled[name] = enabled

    def all(self) -> tuple[tuple[str, bool], ...]:
        """Return every name and whether it is to be dumped, in the order of their first calls."""
        return tuple(self._enabled.items())

    def meet(self, name: str) -> None:
        """Record that an operator or a scope of some network has the name."""
        self._met.add(name)

    def miss(self, name: str, hint: str) -> None:
        """Record a hint at similar names for a name that a network lacks; "" without similar names."""
        self._hints[name] = hint

    def unmet(self) -> list[str]:
        """Return the names that no network has, sorted, each with its hint."""
        return [f"{name}{self._hints.get(name, '')}" for name in sorted(self._enabled.keys() - self._met)]


_NO_TASK: Final = Task(0, 0)  # tasks are numbered only in graphs compiled as a whole

_Kinds = list[tuple[np.dtype, tuple[int, ...]] | None]
"""Types and shapes of the tensors of operators, None for a value that is no tensor."""


@dataclass(slots=True, eq=False)
class MeasuredTogether:
    """A batch of operators that a session measures, prepared once: each step passes the same batch object."""

    batch: Sequence[NodeRun]  # the operators as the session passes them
    shown: Sequence[NodeRun]  # the operators without their useless outputs
    # indices of the remaining tensors among all tensors of the batch; None: all of them remain
    places: Sequence[int] | None
    skipped: Mapping[Reason, int]  # number of tensors without a row, by reason
    # rows of the tensors without timestamps and statistics; None if rows cannot be prepared
    sheet: RowSheet | None


class Capture(Observer):
    """The dump of one graph: an observer of its operators while an iteration runs.

    Files are handed to the sink before ``ran`` returns, operator by operator, inputs first, each with a
    timestamp of its own.
    """

    def __init__(
        self,
        graph: Graph,
        plan: DumpPlan,
        refusals: GraphRefusals,
        sink: Sink,
        clock: Clock,
        *,
        device: Ascend | None = None,
        trigger: OverflowTrigger | None = None,
        watch: GraphWatch | None = None,
    ) -> None:
        self._positions = tuple(refusal is None for refusal in refusals.operators)
        # op_debug_mode 4 dumps failing operators alone: only ``failed`` is called
        self._takes_failures = plan.when.trigger is Trigger.EXCEPTION
        # CPU and GPU write weights and constants of branches and bodies that ran, after the iteration
        self._records_entries = (
            plan.what.keeps_outputs and plan.context.device_target is not DeviceTarget.ASCEND
        )
        self._plan = plan
        self._graph = graph
        self._operators = tuple(node.operator for node in graph.nodes)
        self._sink = sink
        self._clock = clock  # vendor: each file has a time of its own, also among the files of one operator
        self._trigger = trigger
        self._watch = watch
        self._writer = pipeline(plan, sink, watch)
        self._records = operator_records(plan, device)
        slots = [[*refusals.slots(position)] for position in range(len(graph.nodes))]
        self._no_tensors = tuple([sum(why is Reason.NO_TENSOR for _, why in each) for each in slots])
        useless = [{slot for (_, slot), why in each if why is Reason.USELESS} for each in slots]
        self._useless = {position: each for position, each in enumerate(useless) if each}
        # under op_debug_mode 3 each operator decides by itself
        self._has_sheets = self._writer.need is not None and watch is None and trigger is None
        self._has_sheets &= not plan.what.saves_kernel_args
        self._parts = tuple(node.kernel_graph for node in graph.nodes)
        self._is_cut = len({*self._parts} - {None}) > 1
        self._directories: Mapping[int | None, str] = {}
        self._iteration = 0
        # the observers of branches and loops directly inside the graph, by their index
        self.bodies: Mapping[int, Capture] = {}
        self.entered = False  # whether the graph, as a branch or a body, ran in this iteration
        self._started: int | None = None  # running collective: its inputs are written
        self._measured: dict[int, MeasuredTogether] = {}  # by the position of the first operator
        self._sheets: dict[tuple[int, ...], tuple[_Kinds, RowSheet | None]] = {}  # by positions

    @functools.cached_property
    def interest(self) -> Interest:  # type: ignore[override]  # mypy calls it read-only
        """The operators that are dumped, in the order of the graph."""
        what, need = self._plan.what, self._need
        # a trace has the time of each dumped operator: operators run one by one, not in segments
        one_by_one = need is None and tracing.active() is not None
        return Interest(self._positions, what.keeps_inputs, what.keeps_outputs, need, one_by_one)

    @property
    def _need(self) -> StatisticNeed | None:
        """The statistics that rows and rules need; None if they need the tensors' elements.

        Elements are needed where the device holds tensors in another type than the host, such as most inputs.
        """
        what = self._plan.what
        if self._trigger is not None or what.keeps_inputs or what.saves_kernel_args or self._graph.declared:
            return None
        if self._is_cut:  # one session may run operators of several kernel graphs
            return None
        watched = (position for position, is_watched in enumerate(self._positions) if is_watched)
        if not shows_outputs_as_run(self._plan) or not self._records.has_host_types(watched):
            return None
        return self._writer.need if self._watch is None else self._watch.need

    def begin(self, directories: Mapping[int | None, str], iteration: int) -> None:
        """Direct the files of the operators that run from now on into an iteration's directories.

        ``directories`` are by number of the kernel graph, None where the graph is one.
        """
        self._directories = directories
        self._iteration = iteration
        if self._watch is not None:
            self._watch.begin(iteration)
        self._started = None
        self.entered = False

    def starting(self, position: int, inputs: Arrays) -> None:
        """Write the inputs of a collective before it runs: it may never return."""
        if self._trigger is None:  # a trigger decides by the results, after the run
            self.ran((NodeRun(position, inputs, ()),))
            self._started = position

    def _directory_of(self, position: int) -> str:
        return self._directories[self._parts[position]]

    def ran(self, batch: Sequence[NodeRun], found: TotalsArray | None = None) -> None:
        """Write the tensors of operators that have just run, or the rows of their statistics."""
        if found is not None:
            self._write_measured(batch, found)
            return
        watch, now = self._watch, self._clock.now
        by_graph = groupby(batch, lambda run: self._parts[run.position])
        for part in [[*runs] for _, runs in by_graph] if self._is_cut else (batch,):
            shown = self._shown(part)
            if not shown:
                continue
            directory, is_whole = self._directory_of(shown[0].position), self._started is None
            sheet = self._sheet_of(shown) if self._has_sheets and is_whole else None
            if sheet is not None:
                self._skip(Reason.NO_TENSOR, sum(self._no_tensors[run.position] for run in shown))
                self._write_rows(directory, sheet, sheet.rows(tensors_of(shown), self._clock))
                continue
            is_screened = watch is not None and self._trigger is None and is_whole
            screened = self._screened(watch, shown) if watch is not None and is_screened else ()
            try:
                for place, (position, inputs, outputs, saturated) in enumerate(shown):
                    operator = self._operators[position]
                    is_begun = self._started == position  # ``starting`` has written the inputs
                    if is_begun:
                        self._started = None
                    elif self._plan.what.saves_kernel_args:
                        self._write_arguments(position)
                    if self._no_tensors[position] and not is_begun:
                        self._sink.skip(Reason.NO_TENSOR, self._no_tensors[position])
                    hits_none = bool(screened) and screened[place] and not saturated
                    if hits_none and watch is not None and watch.dumps_hits_alone:
                        self._skip(Reason.NO_HIT, len(tensors_of((shown[place],))))
                        continue
                    records = self._records.of(operator, position, () if is_begun else inputs, outputs, now)
                    self._writer.take(
                        directory, operator, _NO_TASK, records, is_saturated=saturated, hits_none=hits_none
                    )
            finally:  # also after an error: earlier operators keep their rows
                self._writer.finish()

    def _shown(self, part: Sequence[NodeRun]) -> Sequence[NodeRun]:
        """Return the operators that are dumped, with the outputs and in the types that files have."""
        shown = part
        if self._trigger is not None:
            shown = [run for run in part if self._is_triggered(self._trigger, run)]
        if self._graph.declared:
            shown = [self._as_declared(run) for run in shown]
        if self._useless:
            count = len(tensors_of(shown))
            shown = [self._without_useless(run) for run in shown]
            self._skip(Reason.USELESS, count - len(tensors_of(shown)))
        return shown

    def _write_arguments(self, position: int) -> None:
        """Write the file of an operator's arguments."""
        node = self._graph.nodes[position]
        # vendor: the name has no time, so that an operator that runs again replaces its file
        name, data = operator_names.kernel_args(node.operator), arguments.kernel_args_json(node, self._graph)
        self._sink.replace(Artifact(self._directory_of(position), name, (data,)))

    def _as_declared(self, run: NodeRun) -> NodeRun:
        """Return tensors in the element types that the model declares, where kernels hold others."""
        node, declared = self._graph.nodes[run.position], self._graph.declared
        inputs, outputs = (
            [
                array if array is None or name not in declared else array.astype(declared[name].numpy)
                for name, array in zip(names, arrays, strict=False)
            ]
            for names, arrays in ((node.inputs, run.inputs), (node.outputs, run.outputs))
        )
        return run._replace(inputs=inputs, outputs=outputs)

    def _is_triggered(self, trigger: OverflowTrigger, run: NodeRun) -> bool:
        node = self._graph.nodes[run.position]
        saturated = run.is_saturated
        return trigger.refusal(node, self._iteration, run.inputs, run.outputs, saturated=saturated) is None

    def _without_useless(self, run: NodeRun) -> NodeRun:
        useless = self._useless.get(run.position)
        if useless is None:
            return run
        # None keeps the slot numbers of other outputs
        outputs = [None if slot in useless else array for slot, array in enumerate(run.outputs)]
        return run._replace(outputs=outputs)

    def _skip(self, reason: Reason, count: int) -> None:
        if count:
            self._sink.skip(reason, count)

    def _sheet_of(self, shown: Sequence[NodeRun]) -> RowSheet | None:
        """Return the row sheet of operators, reused while types and shapes of their tensors stay the same."""
        kinds = [
            None if array is None else (array.dtype, array.shape)
            for _, inputs, outputs, _ in shown
            for array in (*inputs, *outputs)
        ]
        positions = tuple([run[0] for run in shown])
        known = self._sheets.get(positions)
        if known is None or known[0] != kinds:
            known = self._sheets[positions] = kinds, self._writer.sheet(self._records_of(shown))
        return known[1]

    def _write_rows(self, directory: str, sheet: RowSheet, rows: bytes) -> None:
        self._sink.append(f"{directory}/{layouts.STATISTICS}", rows, sheet.header)

    def _write_measured(self, batch: Sequence[NodeRun], found: TotalsArray) -> None:
        first = batch[0].position
        together = self._measured.get(first)
        if together is None or together.batch is not batch:
            shown = [self._without_useless(run) for run in batch]
            all_tensors, tensors = tensors_of(batch), tensors_of(shown)
            is_whole = len(tensors) == len(all_tensors)
            missing = sum(self._no_tensors[run.position] for run in batch)
            skipped = Counter({Reason.USELESS: len(all_tensors) - len(tensors), Reason.NO_TENSOR: missing})
            places = None if is_whole else places_of(tensors, all_tensors)
            sheet = self._writer.sheet(self._records_of(shown)) if self._has_sheets else None
            together = self._measured[first] = MeasuredTogether(batch, shown, places, +skipped, sheet)
        if together.places is not None:
            found = found.at(together.places)
        if together.sheet is not None:
            rows = together.sheet.rows_of(found, self._clock)
            self._write_rows(self._directory_of(first), together.sheet, rows)
        elif self._watch is None or not all(self._screened(self._watch, together.shown, found)):
            raise ElementsNeededError
        else:  # no rule hits, and only hits are dumped: no elements are needed
            self._skip(Reason.NO_HIT, len(tensors_of(together.shown)))
        for reason, count in together.skipped.items():
            self._sink.skip(reason, count)

    def _screened(
        self, watch: GraphWatch, shown: Sequence[NodeRun], found: TotalsArray | None = None
    ) -> Sequence[bool]:
        """Return for each operator whether sums of squares (``found``, else computed) exclude a hit."""
        if not shown:
            return ()
        operators = [(self._operators[position], inputs, outputs) for position, inputs, outputs, _ in shown]
        squares = None if found is None else np.asarray(found.squares)
        hits_none: list[bool] = watch.cleared(
            operators, lambda place: self._records_of((shown[place],)), squares
        ).tolist()
        return hits_none

    def _records_of(self, shown: Sequence[NodeRun]) -> Iterator[TensorRecord]:
        for position, inputs, outputs, _ in shown:
            yield from self._records.of(self._operators[position], position, inputs, outputs, lambda: 0)

    def looks_into(self, body: Graph) -> bool:
        """Return whether to observe a branch or loop body: its operators are dumped, or its run is noted."""
        capture = self.bodies.get(body.index)
        return capture is not None and (
            self._records_entries
            or not capture.interest.is_empty
            or any(capture.looks_into(inner) for inner in body.bodies)
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
        records = self._records.of(operator, position, inputs, (), self._clock.now)
        try:
            self._writer.take(self._directory_of(position), operator, _NO_TASK, records)
        finally:
            self._writer.finish()

    def write_parameters(self, arrays: Mapping[str, np.ndarray], number: int | None) -> None:
        """Write weights and graph inputs of a kernel graph as ``Parameter.{name}``."""
        values = ((OperatorRef(names.PARAMETER, name), name, array) for name, array in arrays.items())
        self._take_values(self._directories[number], values)

    def write_constants(self, arrays: Mapping[int, np.ndarray], directory: str) -> None:
        """Write constants by their numbers as ``Parameter.data-{number}``."""
        values = ((names.constant(number), "", array) for number, array in arrays.items())
        self._take_values(directory, values)

    def _take_values(self, directory: str, values: Iterable[tuple[OperatorRef, str, np.ndarray]]) -> None:
        """Write weights, graph inputs or constants, each as the output of a ``Parameter`` operator."""
        try:
            for operator, name, array in values:
                record = self._records.of_graph_input(operator, name, array, self._clock.now())
                self._writer.take(directory, operator, _NO_TASK, (record,))
        finally:
            self._writer.finish()
