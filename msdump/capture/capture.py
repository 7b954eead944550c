"""Observes the operators of one graph, and hands the files and rows of their tensors to a sink."""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from msdump import tracing
from msdump.capture.pipeline import (
    operator_records,
    pipeline,
    shows_outputs_as_run,
)
from msdump.capture.selection import Selection, drops_useless, has_useless, is_useless
from msdump.capture.steps import count_no_tensors
from msdump.capture.triggers import OverflowTrigger
from msdump.device import Ascend, Task
from msdump.graph import Graph
from msdump.graph.files import arguments
from msdump.observer import Arrays, ElementsNeededError, Interest, NodeRun, Observer, places_of, tensors_of
from msdump.plan import DeviceTarget, DumpPlan, Trigger
from msdump.reasons import Reason
from msdump.record import Artifact, OperatorRef, TensorRecord
from msdump.statistics import StatisticNeed, TotalsArray
from msdump.store import Clock, names
from msdump.store.write import Sink

if TYPE_CHECKING:
    from msdump.capture.statistics import RowSheet, RowSheets
    from msdump.capture.watch import GraphWatch, RanOperator


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


@dataclass(slots=True, eq=False)
class MeasuredTogether:
    """Operators that a session has measured, as they are in each step in which it is shown the same object.

    Attributes:
        batch: The operators as they were shown.
        shown: The same without what is not kept of their tensors.
        operators: The same by their names.
        places: Which of the tensors that are there are kept, None: all.
        skipped: How many tensors get no row, by the reason.
        sheet: Their rows but for timestamps and statistics, None where none was made.
    """

    batch: Sequence[NodeRun]
    shown: Sequence[NodeRun]
    operators: Sequence[tuple[OperatorRef, Arrays, Arrays]]
    places: Sequence[int] | None
    skipped: Mapping[Reason, int]
    sheet: RowSheet | None = None


_NO_TASK: Final = Task(0, 0)  # only graphs that are compiled as a whole number tasks


class Capture(Observer):
    """The dump of one graph: an observer of its operators while an iteration runs.

    Files are handed to the sink before ``ran`` returns, operator by operator, inputs first, each with a
    timestamp of its own.

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
            plan: The dump plan.
            selection: Its operators and parameters.
            sink: Where files and rows go.
            clock: Gives timestamps.
            device: The emulated device, None on CPU and GPU.
            trigger: Decides operator by operator under ``op_debug_mode`` 3.
            watch: Checks rules on its tensors.
        """
        on_failure = plan.when.trigger is Trigger.EXCEPTION
        # an operator that does not fail leaves no files under op_debug_mode 4: only ``failed`` is called
        self._positions = () if on_failure else tuple(selection.watched)
        self._takes_failures = on_failure
        # on CPU and GPU the weights and constants of a body that ran are written after the iteration
        self._tells_entered = (
            plan.what.keeps_outputs and plan.context.device_target is not DeviceTarget.ASCEND
        )
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
            count_no_tensors(graph, node, inputs=plan.what.keeps_inputs, outputs=plan.what.keeps_outputs)
            for node in graph.nodes
        )
        # under op_debug_mode 3 each operator decides by itself
        self._gathers = trigger is None and self._pipeline.gathers
        self._directory = ""
        self._iteration = 0
        self.bodies: Mapping[int, Capture] = {}
        self.entered = False
        self._started: int | None = None  # the collective that goes on, its inputs written
        self._measured: dict[int, MeasuredTogether] = {}  # by the position of the first operator

    @functools.cached_property
    def _sheets(self) -> RowSheets | None:
        """The parts of rows that are the same in every step; None where more than rows is written."""
        if not self._pipeline.has_sheets or self._plan.what.saves_kernel_args:
            return None
        from msdump.capture.statistics import RowSheets

        return RowSheets()

    @functools.cached_property
    def interest(self) -> Interest:  # type: ignore[override]  # mypy calls it read-only
        """The operators that are dumped, in the order of the graph."""
        what, need = self._plan.what, self._need
        # a trace shows the time of each operator that is dumped, not of a segment
        one_by_one = need is None and tracing.active() is not None
        return Interest(self._positions, what.keeps_inputs, what.keeps_outputs, need, one_by_one)

    @property
    def _need(self) -> StatisticNeed | None:
        """The statistics that rows and rules tell, None where elements are needed.

        They are where the device holds tensors in another type, as it does most inputs.
        """
        what = self._plan.what
        if not self._gathers or what.keeps_inputs or what.saves_kernel_args:
            return None
        watched = (position for position, is_watched in enumerate(self._positions) if is_watched)
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
        """Write the inputs of a collective before it runs: it may never return."""
        if self._trigger is None:  # else its results decide whether it is dumped
            self._write(NodeRun(position, inputs, ()))
            self._started = position

    def ran(self, batch: Sequence[NodeRun], found: TotalsArray | None = None) -> None:
        """Write the tensors of operators that have just run, or the rows of their statistics."""
        if found is not None:
            self._write_measured(batch, found)
            return
        if self._trigger is not None:
            batch = [run for run in batch if self._is_triggered(self._trigger, run)]
        if any(self._has_useless):
            batch = [*map(self._kept, batch)]
        if self._gathers and batch and self._started is None:  # the inputs of a collective are written
            self._write_together(batch)
            return
        for run in batch:
            self._write(run)

    def _is_triggered(self, trigger: OverflowTrigger, run: NodeRun) -> bool:
        node = self._graph.nodes[run.position]
        saturated = run.is_saturated
        return trigger.refusal(node, self._iteration, run.inputs, run.outputs, saturated=saturated) is None

    def _write_measured(self, batch: Sequence[NodeRun], found: TotalsArray) -> None:
        first = batch[0].position
        together = self._measured.get(first)
        if together is None or together.batch is not batch:
            together = self._measured[first] = self._together(batch)
        if together.places is not None:
            found = found.at(together.places)
        if not self._has_written(together, found):
            raise ElementsNeededError
        for reason, count in together.skipped.items():
            self._pipeline.skip(reason, count)

    def _together(self, batch: Sequence[NodeRun]) -> MeasuredTogether:
        shown = [*map(self._without_useless, batch)]
        all_tensors, tensors = tensors_of(batch), tensors_of(shown)
        is_whole = len(tensors) == len(all_tensors)
        missing = sum(self._no_tensors[run.position] for run in batch)
        skipped = Counter({Reason.USELESS: len(all_tensors) - len(tensors), Reason.NO_TENSOR: missing})
        operators = [(self._operators[position], inputs, outputs) for position, inputs, outputs, _ in shown]
        return MeasuredTogether(
            batch, shown, operators, None if is_whole else places_of(tensors, all_tensors), +skipped
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

    def _kept(self, run: NodeRun) -> NodeRun:
        """Return an operator without useless outputs, which are counted."""
        if not self._has_useless[run.position]:
            return run
        kept = self._without_useless(run)
        useless = len(tensors_of((run,))) - len(tensors_of((kept,)))
        if useless:
            self._pipeline.skip(Reason.USELESS, useless)
        return kept

    def _without_useless(self, run: NodeRun) -> NodeRun:
        if not self._has_useless[run.position]:
            return run
        node = self._graph.nodes[run.position]  # slots stay
        outputs = [None if is_useless(node, slot) else array for slot, array in enumerate(run.outputs)]
        return run._replace(outputs=outputs)

    def _write_together(self, shown: Sequence[NodeRun]) -> None:
        """Write the rows of operators at once, or have rules look at all of them first."""
        if self._sheets is not None and self._write_rows(self._sheets, shown):
            return
        operators = [(self._operators[position], inputs, outputs) for position, inputs, outputs, _ in shown]
        cleared = self._cleared(shown, operators)
        with self._pipeline.together():
            for run, is_cleared in zip(shown, cleared, strict=True):
                self._write(run, is_cleared=is_cleared and not run.is_saturated)

    def _cleared(
        self, shown: Sequence[NodeRun], operators: Sequence[RanOperator], found: TotalsArray | None = None
    ) -> Sequence[bool]:
        return self._pipeline.cleared(operators, lambda place: self._records_of((shown[place],)), found)

    def _write_rows(self, sheets: RowSheets, shown: Sequence[NodeRun]) -> bool:
        """Write the rows of operators at once, where types and shapes are the same as the last time.

        Args:
            sheets: The sheets of earlier steps.
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
        return self._pipeline.sheet(self._records_of(shown))

    def _records_of(self, shown: Sequence[NodeRun]) -> Iterator[TensorRecord]:
        for position, inputs, outputs, _ in shown:
            yield from self._records.of(self._operators[position], position, inputs, outputs, lambda: 0)

    def _write(self, run: NodeRun, *, is_cleared: bool = False) -> None:
        position, inputs, outputs, saturated = run
        operator = self._operators[position]
        if self._started == position:  # the inputs of a collective are written
            self._started, inputs = None, ()
        else:
            if self._plan.what.saves_kernel_args:
                self._write_args(position)
            if self._no_tensors[position]:
                self._pipeline.skip(Reason.NO_TENSOR, self._no_tensors[position])
        if is_cleared and self._pipeline.skips_cleared([(operator, inputs, outputs)]):
            return
        records = self._records.of(operator, position, inputs, outputs, self._clock.now)
        self._pipeline.take(
            self._directory, operator, _NO_TASK, records, saturated=saturated, is_cleared=is_cleared
        )

    def _count_no_tensors(self, positions: Iterable[int]) -> None:
        for position in positions:
            if self._no_tensors[position]:
                self._pipeline.skip(Reason.NO_TENSOR, self._no_tensors[position])

    def looks_into(self, body: Graph) -> bool:
        """Return whether an operator in a branch or loop body is watched, or it counts that the body ran."""
        capture = self.bodies.get(body.index)
        return capture is not None and (
            self._tells_entered or not capture.interest.is_empty or any(map(capture.looks_into, body.bodies))
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
