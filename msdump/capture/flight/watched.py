"""What watches the runs of a configuration that has rules or a history."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from msdump import dtypes
from msdump.capture.flight.history import (
    NOTHING_AHEAD,
    SQUARES,
    Flight,
    HistoryNote,
    HistorySink,
    HitLog,
    MeasuredAhead,
    RankComparison,
    Wanted,
    stop_error,
)
from msdump.capture.steps import held_elements, held_in
from msdump.capture.triggers import overflows
from msdump.communication import current
from msdump.dtypes import STRING
from msdump.errors import DumpWriteError, RankError
from msdump.graph import Graph, Node
from msdump.observer import Arrays, tensors_of
from msdump.plan import DumpPlan, OnHit, WatchPlan
from msdump.record import IO, OperatorRef, TensorRecord
from msdump.selector import IterationSet
from msdump.statistics import StatisticNeed, TotalsArray, is_measurable, measure, rough_squares
from msdump.store.write import Sink, exits
from msdump.watch import (
    PARAMETER,
    Finding,
    Hit,
    Known,
    RuleWatch,
    Screen,
    Screens,
    Seen,
    Sighting,
    WatchedTensor,
    WatchRule,
    need_of,
    state_of,
    subject,
)


class KeptElements:
    """Copies elements for the next step, as many as the memory allows."""

    def __init__(self, most_bytes: int) -> None:
        """Keep nothing yet.

        Args:
            most_bytes: Most memory of all copies together.
        """
        self._most_bytes = most_bytes
        self._bytes = 0

    def remember(self, seen: Seen, needs_elements: bool) -> Seen:  # noqa: FBT001 - as RuleWatch calls it
        """Return a tensor as it is kept: its statistics, and a copy of its elements where they are needed."""
        if not needs_elements or seen.elements is None:
            return replace(seen, elements=None)
        array = seen.elements()
        if self._bytes + array.nbytes > self._most_bytes:
            return replace(seen, elements=None)
        copy: np.ndarray = array.copy()
        self._bytes += copy.nbytes
        weakref.finalize(copy, self._give_back, copy.nbytes).atexit = False
        return replace(seen, elements=lambda: copy)

    def _give_back(self, size: int) -> None:
        self._bytes -= size


RanOperator = tuple[OperatorRef, Arrays, Arrays]
"""An operator that has run, with its inputs and outputs as an observer is shown them."""


class TensorWatch:
    """A tensor with the rules that look at it, and how often it was seen in this iteration.

    Attributes:
        subject: The tensor.
        rules: The rules, but those that compare ranks.
        rank_rules: Those that compare ranks.
        screen: The rules that a sum of squares may show to have nothing to tell.
        need: What a pass over its elements finds out for the rules.
        first_need: What finds out whether the rules have anything to tell.
        is_as_shown: Whether rules looked last at the elements that the operator was shown with.
    """

    __slots__ = (
        *("_iteration", "_runs", "first_need", "is_as_shown", "need", "rank_rules", "rules", "screen"),
        "subject",
    )

    def __init__(self, tensor: WatchedTensor, rules: Sequence[WatchRule]) -> None:
        """Look at nothing yet.

        Args:
            tensor: The tensor.
            rules: The rules that look at it.
        """
        self.subject = tensor
        self.rules = tuple(rule for rule in rules if not rule.compares_ranks)
        self.rank_rules = tuple(rule for rule in rules if rule.compares_ranks)
        self.screen = Screen(self.rules)
        self.need = need_of(self.rules)
        self.first_need = SQUARES if self.screen.decides_all else self.need
        self.is_as_shown = False
        self._iteration = -1
        self._runs = 0

    @property
    def is_screened(self) -> bool:
        """Whether it has no rules, or its screen decides all of them."""
        if self.rank_rules:
            return False
        return not self.rules or (self.screen.decides_all)

    def clears(self, array: np.ndarray, ahead: MeasuredAhead) -> bool:
        """Tell whether its screen shows that the rules it decides do not hit."""
        squares = _squares(array, ahead)
        return squares is not None and self.screen.clears(squares, array.size)

    def run_number(self, iteration: int) -> int:
        """Return which run of its operator within an iteration this is, from 0."""
        if iteration != self._iteration:
            self._iteration, self._runs = iteration, 0
        self._runs += 1
        return self._runs - 1


class ScreenedOperators:
    """Operators that run together, of whose tensors screens decide everything.

    It is kept from step to step, and holds while the same operators are shown.

    Attributes:
        shown: The operators.
        watched: Those of their tensors that are there, inputs of each first.
    """

    __slots__ = ("_ruled", "_screens", "shown", "watched")

    def __init__(self, shown: Sequence[RanOperator], watched: Sequence[TensorWatch]) -> None:
        """Take in what is the same in every step."""
        self.shown = shown
        self.watched = watched
        arrays = tensors_of(shown)
        self._ruled = [place for place, each in enumerate(watched) if each.rules]
        self._screens = Screens(
            [watched[place].screen for place in self._ruled], [arrays[place].size for place in self._ruled]
        )

    def clear(self, squares: np.ndarray) -> bool:
        """Tell whether screens clear all tensors.

        Args:
            squares: The sum of the squares of the elements of each, in float64.
        """
        return self._screens.clear(squares[self._ruled])


def _squares(array: np.ndarray, ahead: MeasuredAhead) -> float | None:
    """Return a sum of the squares of a tensor's elements for its screen, None for types that have none."""
    squares = ahead.squares(array)
    return rough_squares(array) if squares is None else squares


_log = logging.getLogger("msdump.capture")


class WatchedFlight(Flight):
    """The rules and the history of a configuration; any thread may use it.

    Attributes:
        sink: Where the files of its networks go.
        networks: Gives each of its networks a number, from 0.
    """

    def __init__(self, plan: DumpPlan, sink: Sink) -> None:
        """Watch nothing yet.

        Args:
            plan: The plan of the first network.
            sink: Takes what is written.
        """
        super().__init__(sink)
        watch = plan.watch
        self._plan = watch
        self._inner = sink
        self._history: HistorySink | None = None
        self._note: HistoryNote | None = None
        compares_ranks = any(rule.compares_ranks for rule in watch.rules)
        self._ranks = RankComparison() if compares_ranks else None
        if watch.history:
            self.sink = self._history = HistorySink(sink, watch.history, watch.history_bytes)
            limits = (watch.history, watch.history_bytes)
            rank = current().identity.rank
            self._note = HistoryNote(plan.files.path, rank, self._history, limits)
        self._hits = HitLog(plan, self._history, self._note)
        self._kept = KeptElements(watch.history_bytes)
        if watch.history:
            exits.register(self)

    @property
    def written(self) -> IterationSet:
        """Iterations that are on disk whole, of those that are dumped: what is kept or dropped is not."""
        if self._history is not None:
            return self._history.account.written
        return self._hits.iterations if self._plan.writes_hits_alone else IterationSet()

    def graph_watch(self, graphs: Iterable[Graph]) -> GraphWatch | None:
        """Return what checks the rules on some graphs, None without rules."""
        if not self._plan.rules:
            return None
        return GraphWatch(graphs, self._plan, self._hits, self._kept, self._ranks)

    def begin(self, iteration: int) -> None:
        """Begin a step of this thread."""
        if self._history is not None:
            self._history.begin(iteration)
            exits.activate(self)
        if self._ranks is not None:
            self._ranks.begin()

    def compare_ranks(self, network: int, iteration: int) -> None:
        """Check the rules that compare what ranks hold at the end of a step of this thread.

        A hit is told on the rank that holds something else than most; the kept steps are written on all.

        Args:
            network: Number of the network.
            iteration: Number of the iteration.

        Raises:
            WatchHitError: This rank holds something else than most, and a hit is to end the run.
            RankError: Others cannot be asked, and a hit is to end the run.
            DumpWriteError: The steps that a hit releases could not be written.
        """
        if self._ranks is None:
            return
        try:
            findings, elsewhere = self._ranks.findings(network, iteration)
        except RankError as error:
            if self._plan.on_hit is OnHit.STOP:
                raise
            _log.warning("watch rules compare ranks no more: %s", error)
            return
        hit = self._hits.take(findings)
        if hit is not None and self._plan.on_hit is OnHit.STOP:
            raise stop_error(hit)
        if hit is None and elsewhere and self._plan.on_hit is not OnHit.LOG:
            self._release(elsewhere, iteration)

    def end(self) -> None:
        """End the step of this thread."""
        if self._history is not None:
            self._history.end()

    def broken_off(self, iteration: int, error: BaseException) -> None:
        """Write the kept steps and what the one that failed has dumped; what goes wrong is only logged."""
        if self._ranks is not None:  # the others would wait for what it holds
            current().fail(f"{type(error).__name__}: {error}")
        if self._history is None:
            return
        with contextlib.suppress(DumpWriteError):
            self._release(f"{type(error).__name__}: {error}", iteration)
        self._history.end()

    def _release(self, reason: str, iteration: int | None, *, of_all_threads: bool = False) -> None:
        if self._history is None or self._note is None:
            return
        written = self._history.release(of_all_threads=of_all_threads)
        if written:
            self._note.released(reason, iteration, written)
        self._inner.flush()

    def complete(self) -> None:
        """Write the kept steps of all threads: the process is told to end."""
        with contextlib.suppress(DumpWriteError):
            self._release(exits.heard[-1], None, of_all_threads=True)

    def forget(self) -> None:
        """Drop what is kept in a forked child: the parent has it."""
        if self._history is not None:
            self._history.forget()

    def close(self) -> None:
        """Drop the history, or write it where an exception ends the program, and close the sink.

        Raises:
            DumpWriteError: A file could not be written and the plan wants to know.
        """
        self._hits.close()
        if self._history is None or self._note is None:
            self._inner.close()
            return
        try:
            error = getattr(sys, "last_value", None)  # set where the interpreter ends with a traceback
            if error is not None:
                self._release(f"{type(error).__name__}: {error}", None)
            self._history.drop()
            self._note.write(self._inner)
        finally:
            exits.deactivate(self)
            self._history.close()


class GraphWatch:
    """The rules on the tensors of one graph, or of a compiled one with its branches and loops."""

    def __init__(
        self,
        graphs: Iterable[Graph],
        plan: WatchPlan,
        hits: HitLog,
        kept: KeptElements,
        ranks: RankComparison | None,
    ) -> None:
        """Look at nothing yet.

        Args:
            graphs: The graphs.
            plan: The rules.
            hits: Takes what is found.
            kept: Keeps elements for the next step.
            ranks: Takes what ranks should share, None where no rule compares them.
        """
        self._plan = plan
        self._hits = hits
        self._reads_overflows = any(rule.reads_overflows for rule in plan.rules)
        self._ranks = ranks
        self._watch = RuleWatch(plan.rules, kept.remember)
        watched = tuple(graphs)
        self._place = watched[0].index
        self._nodes = {node.operator: (graph, node) for graph in watched for node in graph.nodes}
        self._weights = {graph.index: _weights(graph) for graph in watched}
        self._watched: dict[OperatorRef, dict[tuple[bool, int], TensorWatch]] = {}
        # what ``passes_over`` looks up by operator and number of inputs (a collective's outputs come after
        # them): the tensors of operators of which screens decide everything
        self._screened: dict[tuple[OperatorRef, int], tuple[TensorWatch, ...]] = {}
        self._together: dict[OperatorRef, ScreenedOperators] = {}  # by the first operator
        self._iteration = -1  # before the first one
        self._rank: int | None = None  # in this iteration, once it was asked for
        self._hit: Hit | None = None
        self._ahead = NOTHING_AHEAD

    def begin(self, iteration: int) -> None:
        """Take what is seen from now on for an iteration's; branches and loops begin with their graph's."""
        if iteration != self._iteration:
            self._iteration = iteration
            self._rank = None

    @property
    def need(self) -> StatisticNeed | None:
        """What shows whether rules have anything to tell, None where only elements do."""
        decides = Screen(self._plan.rules).decides_all and not any(
            rule.compares_ranks for rule in self._plan.rules
        )
        return SQUARES if self._plan.writes_hits_alone and decides else None

    def _see(self, tensors: Sequence[TensorRecord]) -> None:
        """Look at an operator, not at its elements: screens may decide of it from now on."""
        if tensors:
            watched = self._watched.setdefault(tensors[0].operator, {})
            watched |= {(each.io is IO.INPUT, each.slot): self._look_up(each) for each in tensors}
            self._screen(tensors, watched)

    @contextmanager
    def looking_ahead(self, shown: Iterable[RanOperator]) -> Iterator[None]:
        """Measure the tensors of operators that have run together, which are looked at in this context.

        What rules find is the same; tensors that they look at for the first time are measured then.

        Args:
            shown: The operators.
        """
        self._ahead = MeasuredAhead(self._wanted(shown))
        try:
            yield
        finally:
            self._ahead = NOTHING_AHEAD

    def _wanted(self, shown: Iterable[RanOperator]) -> Iterator[Wanted]:
        for operator, inputs, outputs in shown:
            known = self._watched.get(operator, {})
            for is_input, arrays in ((True, inputs), (False, outputs)):
                for slot, array in enumerate(arrays):
                    watched = known.get((is_input, slot))
                    if array is not None and watched is not None and watched.is_as_shown:
                        yield array, watched.first_need

    def passes_over(
        self, operator: OperatorRef, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> bool:
        """Tell at once whether no rule hits at an operator seen before, so that nothing is written.

        Args:
            operator: The operator.
            inputs: Its inputs that are there, in the order of their records.
            outputs: Its outputs that are there.

        Returns:
            False where that is not so, or not known without records.
        """
        screened = self._screened.get((operator, len(inputs)))
        arrays = (*inputs, *outputs)
        if screened is None or len(screened) != len(arrays):
            return False
        return self._clear(screened, arrays)

    def pass_over_all(self, shown: Sequence[RanOperator]) -> int | None:
        """Return how many tensors operators have of which none hits; None where that is not known at once.

        Args:
            shown: Operators that have run together, in ``looking_ahead`` of them.
        """
        watched = self._all_screened(shown)
        if watched is None:
            return None
        arrays = tensors_of(shown)
        return len(arrays) if self._clear(watched, arrays) else None

    def pass_over_measured(
        self,
        shown: Sequence[RanOperator],
        found: TotalsArray,
        records: Callable[[int], Iterable[TensorRecord]],
    ) -> int | None:
        """Return what ``pass_over_all`` does, of operators of whose tensors is known what ``need`` asks for.

        Args:
            shown: The operators; equal ones are the same object from step to step.
            found: What was found of their tensors that are there.
            records: Returns the records of the one at a place among them.
        """
        together = self._found_together(shown, records)
        if together is None or not together.clear(np.asarray(found.squares)):
            return None
        return len(together.watched)

    def _found_together(
        self, shown: Sequence[RanOperator], records: Callable[[int], Iterable[TensorRecord]]
    ) -> ScreenedOperators | None:
        """Return the tensors of operators that have run together, None where screens do not decide all."""
        known = self._together.get(shown[0][0])
        if known is not None and known.shown is shown:
            return known
        for place, (operator, *_) in enumerate(shown):
            if operator not in self._watched:
                self._see([*records(place)])
        watched = self._all_screened(shown)
        if watched is None:
            return None
        found = self._together[shown[0][0]] = ScreenedOperators(shown, watched)
        return found

    def _all_screened(self, shown: Iterable[RanOperator]) -> list[TensorWatch] | None:
        """Return the tensors of operators in order, None where screens do not decide everything of all."""
        watched: list[TensorWatch] = []
        for operator, inputs, outputs in shown:
            count = sum(array is not None for array in inputs)
            screened = self._screened.get((operator, count))
            if screened is None or len(screened) != count + sum(array is not None for array in outputs):
                return None
            watched += screened
        return watched

    def _clear(self, watched: Sequence[TensorWatch], arrays: Sequence[np.ndarray]) -> bool:
        """Tell whether screens clear tensors; no rule that a screen decides minds which run this is."""
        pairs = zip(watched, arrays, strict=True)
        return all(not each.rules or each.clears(array, self._ahead) for each, array in pairs)

    def keeps(self, tensors: Sequence[TensorRecord], *, saturated: bool) -> bool:
        """Check the tensors of an operator; return whether they are dumped: hits alone may be.

        Args:
            tensors: Its tensors, or those of one side.
            saturated: The device's overflow status after the operator.

        Raises:
            DumpWriteError: The steps that a hit releases could not be written.
            ConfigValueError: Matching the regular expression of a rule takes too long.
        """
        findings: list[Finding] = []
        watched: dict[tuple[bool, int], TensorWatch] = {}
        if tensors:  # all of one operator
            watched = self._watched.setdefault(tensors[0].operator, watched)
        count: Callable[[], int] = _no_overflow
        if self._reads_overflows:
            count = functools.cache(lambda: int(saturated or any(map(_overflowed, tensors))))
        for record in tensors:
            key = (record.io is IO.INPUT, record.slot)
            findings += self._check(
                record, watched.get(key) or watched.setdefault(key, self._look_up(record)), count
            )
        if self._plan.writes_hits_alone and tensors:
            self._screen(tensors, watched)
        self._hit = self._hits.take(findings) if findings else None
        return self._hit is not None or not self._plan.writes_hits_alone

    def stop(self) -> None:
        """End the run where a rule hit at the last operator and a hit is to end it.

        Raises:
            WatchHitError: That is so.
        """
        hit = self._hit
        if hit is not None and self._plan.on_hit is OnHit.STOP:
            self._hit = None
            raise stop_error(hit)

    def _check(
        self, record: TensorRecord, watched: TensorWatch, overflows: Callable[[], int]
    ) -> Sequence[Finding]:
        rules = watched.rules
        if not rules and not watched.rank_rules:
            return ()
        number = watched.run_number(self._iteration)
        if record.dtype is STRING or not record.array.size or not is_measurable(record.dtype):
            return ()
        array, dtype = held_elements(record)
        watched.is_as_shown = bool(rules) and dtype is record.dtype
        sighting = Sighting(self._iteration, self._own_rank, number, record.timestamp)
        if watched.rank_rules and self._ranks is not None:
            self._ranks.add(self._place, watched.subject, sighting, watched.rank_rules, array)
        if watched.screen.decides and watched.clears(array, self._ahead):
            rules = watched.screen.others
        if not rules:
            return ()
        totals = self._ahead.totals(array, watched.need) if watched.is_as_shown else None
        known = Known.of(totals or measure(array, dtype, watched.need), watched.need)
        is_written = record.io is IO.OUTPUT and record.operator.op_type != PARAMETER
        seen = Seen(dtype.name, known, lambda: array, overflows if is_written else _no_overflow)
        return self._watch.check(rules, watched.subject, sighting, seen)

    @property
    def _own_rank(self) -> int:
        if self._rank is None:
            self._rank = current().identity.rank
        return self._rank

    def _screen(
        self, tensors: Sequence[TensorRecord], watched: Mapping[tuple[bool, int], TensorWatch]
    ) -> None:
        """Let screens decide of an operator from now on, where they decide everything of all its tensors."""
        key = (tensors[0].operator, sum(each.io is IO.INPUT for each in tensors))
        if key in self._screened:
            return
        in_order = tuple(watched[each.io is IO.INPUT, each.slot] for each in tensors)
        is_host_type = all(held_in(each) is each.dtype for each in tensors)
        if is_host_type and all(each.is_screened for each in in_order):
            self._screened[key] = in_order

    def _look_up(self, record: TensorRecord) -> TensorWatch:
        tensor = self._subject(record)
        return TensorWatch(tensor, self._watch.rules_for(tensor))

    def _subject(self, record: TensorRecord) -> WatchedTensor:
        operator, io = record.operator, record.io
        is_weight = is_loss = False
        if operator.op_type == PARAMETER:
            is_weight = any(operator.full_name in names for names in self._weights.values())
        elif operator in self._nodes:
            graph, node = self._nodes[operator]
            slot = record.slot if record.device is None else record.device.slot
            name = node.inputs[slot] if io is IO.INPUT and slot < len(node.inputs) else ""
            # one that an optimizer writes is looked at there, once it is written
            is_weight = name not in graph.bindings and name in self._weights[graph.index]
            is_loss = io is IO.OUTPUT and _gives_loss(graph, node, slot)
        return subject(
            operator.op_type, operator.full_name, io, record.slot, is_weight=is_weight, is_loss=is_loss
        )


def _overflowed(record: TensorRecord) -> bool:
    """Tell whether a tensor shows that its operator overflowed, as ``op_debug_mode`` 3 looks at it."""
    return record.io is IO.OUTPUT and overflows(record.array)


def _no_overflow() -> int:
    return 0


def _weights(graph: Graph) -> frozenset[str]:
    """Return the names of the weights: floating-point numbers with dimensions, but no optimizer's state."""
    state = state_of((node.operator.op_type, node.inputs) for node in graph.nodes)
    return frozenset(
        name
        for name, array in graph.weights.items()
        if array.ndim and dtypes.from_numpy(array.dtype).saved.kind == "f"
    ) - {*state, *graph.constants}


def _gives_loss(graph: Graph, node: Node, slot: int) -> bool:
    """Tell whether an output is the loss: a floating-point number that a training step returns."""
    name = node.outputs[slot] if slot < len(node.outputs) else ""
    returned = {value.name for value in graph.outputs} - {*graph.bindings.values()}
    if not graph.bindings or name not in returned:
        return False
    value_type = graph.type_of(name)
    is_float = value_type.dtype is not None and value_type.dtype.saved.kind == "f"
    return is_float and value_type.shape in {(), (1,)}
