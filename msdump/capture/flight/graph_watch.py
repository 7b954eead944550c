"""Checks rules on the tensors of a graph while it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from msdump import dtypes
from msdump.capture.flight.ahead import NOTHING_AHEAD, SQUARES, MeasuredAhead, Wanted
from msdump.capture.flight.elements import KeptElements
from msdump.capture.flight.hits import HitLog, stop_error
from msdump.capture.flight.shared import RankComparison
from msdump.capture.flight.tensor_watch import RanOperator, ScreenedOperators, TensorWatch
from msdump.capture.steps.device import held_elements, held_in
from msdump.capture.triggers import overflows
from msdump.communication.world import current
from msdump.dtypes import STRING
from msdump.graph.graph import Graph, Node
from msdump.observer import tensors_of
from msdump.plan import OnHit, WatchPlan
from msdump.record import IO, OperatorRef, TensorRecord
from msdump.statistics.passes import is_measurable, measure
from msdump.statistics.totals import SeveralTotals, StatisticNeed
from msdump.watch.known import Known
from msdump.watch.quantities import Seen
from msdump.watch.rules import WatchRule
from msdump.watch.screen import Screen
from msdump.watch.subjects import PARAMETER, WatchedTensor, state_of, subject
from msdump.watch.watch import Finding, Hit, RuleWatch, Sighting


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
        decides = Screen(self._plan.rules).decides_all and not any(map(_compares_ranks, self._plan.rules))
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
        found: SeveralTotals,
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


def _compares_ranks(rule: WatchRule) -> bool:
    return rule.compares_ranks


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
