"""Watch rules and the history on the runs of a configuration: tensors are checked before they are dumped."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import logging
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from msdump import dtypes
from msdump.capture.history import HistorySink
from msdump.capture.steps import held_elements, held_in
from msdump.capture.triggers import overflows
from msdump.communication import CallPlace, current, shared
from msdump.dtypes import STRING
from msdump.errors import DumpWriteError, RankError, WatchHitError
from msdump.graph import WORLD_GROUP, Graph, Node
from msdump.observer import Arrays, tensors_of
from msdump.plan import DumpPlan, OnHit
from msdump.record import IO, OperatorRef, TensorRecord
from msdump.selector import IterationSet
from msdump.statistics import StatisticNeed, is_measurable, passes
from msdump.store.write import Sink, Summary
from msdump.threads import new_lock
from msdump.watch import (
    OVERFLOW_COUNT,
    PARAMETER,
    Elements,
    Finding,
    Hit,
    RuleWatch,
    SharedTensor,
    Sighting,
    WatchedTensor,
    WatchRule,
    are_cleared,
    cleared_squares,
    compare_ranks,
    measured_row,
    need_of,
    state_of,
    subject,
)

_log = logging.getLogger("msdump.capture")

_MOST_LINES: Final = 1000  # warnings of one process about hits; the rest is counted
_KIND: Final = "comparison of ranks"


class RankComparison(threading.local):
    """Compares the statistics of tensors of this thread's step with the other ranks' ones."""

    def __init__(self) -> None:
        self.tensors: dict[str, SharedTensor] = {}
        self._is_given_up = False

    def findings(self, network: int, iteration: int) -> tuple[list[Finding], str]:
        """Exchange the rows of an iteration with the other ranks and compare them.

        Returns:
            The findings on this rank, and a sentence on another rank that differs from most ranks, else "".

        Raises:
            RankError: Another rank does not answer or is in another iteration; later steps compare nothing.
        """
        if self._is_given_up:
            return [], ""
        tensors, self.tensors = self.tensors, {}
        world = current()
        place = CallPlace(f"the end of iteration {iteration}", _KIND, WORLD_GROUP)
        rows = {key: tensor.row for key, tensor in tensors.items()}
        self._is_given_up = True  # reset below: a missing rank is waited for only once
        packed = shared(world, f"watch {network}", json.dumps([iteration, rows]).encode(), place)
        found: dict[int, dict[str, str]] = {}
        for rank, data in packed.items():
            number, found[rank] = json.loads(data)
            if number != iteration:
                raise RankError(place.operator, f"rank {rank} is in iteration {number}", rank)
        self._is_given_up = False
        findings: list[Finding] = []
        elsewhere = ""
        own = world.identity.rank
        for key, tensor in tensors.items():
            held = {rank: of_rank[key] for rank, of_rank in found.items() if key in of_rank}
            of_tensor, apart = compare_ranks(held, {own: tensor})
            findings += of_tensor
            if apart and own not in apart and not elsewhere:
                elsewhere = f"{tensor.subject}: {next(iter(apart.values()))}"
        return findings, elsewhere


class RunWatch:
    """The rules and the history of a configuration, which may have neither; any thread may use it."""

    def __init__(self, plan: DumpPlan, sink: Sink) -> None:
        watch = self.plan = plan.watch  # the rules, and the effect of hits
        self.networks = itertools.count()  # numbers the networks of the configuration
        self.sink = sink  # takes the files of the networks
        self._history: HistorySink | None = None
        if watch.history:
            rank = current().identity.rank
            self._history = HistorySink(sink, plan.files.path, rank, watch.history, watch.history_bytes)
            self.sink = self._history
        self._room = watch.history_bytes  # bytes of elements that are kept for the next step
        # compares tensors that should be equal on all ranks; None without rules on them
        self.ranks = RankComparison() if any(rule.compares_ranks for rule in watch.rules) else None
        self._source = plan.source
        self._lock = new_lock()
        self._hits: Counter[tuple[str, str]] = Counter()  # hits by rule and operator
        self._hit_iterations = IterationSet(())
        self._written = IterationSet(())  # without a history
        self._undecided: set[tuple[str, str]] = set()
        self._lines: Counter[str] = Counter()  # by rule
        self._logged: dict[tuple[str, int], int] = {}  # the last iteration with a line, by rule and rank

    @property
    def written(self) -> IterationSet:
        """Iterations on disk: from the history, or with hits if only hits are dumped, else all that ran.

        An iteration without a single file, since all were lost, is not among them.
        """
        return self._written if self._history is None else self._history.written

    def graph_watch(self, graphs: Iterable[Graph]) -> GraphWatch | None:
        """Return the check of the rules on some graphs, None without rules."""
        return GraphWatch(graphs, self) if self.plan.rules else None

    def begin(self, iteration: int) -> None:
        """Begin a step of this thread."""
        if self._history is not None:
            self._history.begin(iteration)
        if self.ranks is not None:
            self.ranks.tensors.clear()

    def remember(self, elements: Elements) -> Elements | None:
        """Return a copy of a tensor's elements for the next step, None where there is no room for it."""
        array = elements()
        if array.nbytes > self._room:
            return None
        copy: np.ndarray = array.copy()
        self._make_room(-copy.nbytes)
        weakref.finalize(copy, self._make_room, copy.nbytes).atexit = False
        return lambda: copy

    def _make_room(self, size: int) -> None:
        self._room += size

    def take(self, findings: Sequence[Finding]) -> Hit | None:
        """Log findings; return the first hit, at which the history is released, with a DumpWriteError."""
        hits = [finding for finding in findings if isinstance(finding, Hit)]
        with self._lock:
            for finding in findings:
                if isinstance(finding, Hit):
                    self._log_hit(finding)
                elif (key := (finding.rule.name, finding.reason)) not in self._undecided:
                    self._undecided.add(key)
                    _log.warning("watch rule %r cannot be checked at %s: %s", key[0], finding.subject, key[1])
        if not hits:
            return None
        hit = hits[0]
        if self._history is not None and self.plan.on_hit is not OnHit.LOG:
            reason = f"watch rule {hit.rule.name!r} hit at {hit.subject.name}: {hit}"
            self._history.release(reason, hit.moment.iteration)
        return hit

    def stop_at(self, hit: Hit | None) -> None:
        """Raise WatchHitError where there is a hit and hits end runs."""
        if hit is not None and self.plan.on_hit is OnHit.STOP:
            tensor = hit.subject
            message = f"{tensor.io}.{tensor.slot}: {hit}"
            raise WatchHitError(hit.rule.name, tensor.name, hit.moment.iteration, message)

    def _log_hit(self, hit: Hit) -> None:
        """Warn of the first, tenth, hundredth, ... hit of a rule at an operator, at most once in a step.

        NaN and infinity spread to all operators that follow: the first warning shows where they began.
        """
        rule, tensor, moment = hit.rule.name, hit.subject, hit.moment
        self._hit_iterations = self._hit_iterations.including(moment.iteration)
        self._hits[rule, tensor.name] += 1
        count = self._hits[rule, tensor.name]
        step = rule, moment.rank
        is_silent = self._logged.get(step) == moment.iteration or self._lines.total() >= _MOST_LINES
        if str(count).strip("0") != "1" or is_silent:
            return
        self._logged[step] = moment.iteration
        self._lines[rule] += 1
        often = f" ({count} times so far)" if count > 1 else ""
        _log.warning(
            "watch rule %r hit in iteration %d: %s: %s%s", rule, moment.iteration, tensor, hit, often
        )

    def compare_ranks(self, network: int, iteration: int) -> None:
        """Check the rules that compare ranks, at the end of a step of this thread.

        The hit is reported on the rank that differs from most; all ranks write their kept steps.

        Raises:
            WatchHitError: This rank differs from most, and a hit ends the run.
            RankError: A rank does not answer, and a hit ends the run.
            DumpWriteError: The steps that a hit releases could not be written.
        """
        if self.ranks is None:
            return
        try:
            findings, elsewhere = self.ranks.findings(network, iteration)
        except RankError as error:
            if self.plan.on_hit is OnHit.STOP:
                raise
            _log.warning("watch rules no longer compare ranks: %s", error)
            return
        hit = self.take(findings)
        self.stop_at(hit)
        if hit is None and elsewhere and self.plan.on_hit is not OnHit.LOG:
            self._release(elsewhere, iteration)

    def end(self, iteration: int, before: Summary) -> None:
        """End the step of this thread; ``before`` counts the files of the sink before it."""
        if self._history is not None:
            self._history.end()
            return
        is_held = self.plan.writes_hits_alone and iteration not in self._hit_iterations
        if not is_held and not self.sink.summary.lost_all_since(before):
            with self._lock:
                self._written = self._written.including(iteration)

    def broken_off(self, iteration: int, before: Summary, error: BaseException) -> None:
        """Write the kept steps and the files of the failed one; write errors are only logged."""
        if self.ranks is not None:  # other ranks would wait for this rank's rows
            current().fail(f"{type(error).__name__}: {error}")
        with contextlib.suppress(DumpWriteError):
            self._release(f"{type(error).__name__}: {error}", iteration)
        self.end(iteration, before)

    def _release(self, reason: str, iteration: int) -> None:
        if self._history is not None:
            self._history.release(reason, iteration)
            self._history.flush()

    def close(self) -> None:
        """Log the totals of hits, and close the sink, with its DumpWriteError."""
        with self._lock:
            for rule in dict.fromkeys(rule for rule, _ in self._hits):
                counts = [count for (name, _), count in self._hits.items() if name == rule]
                if sum(counts) > self._lines[rule]:  # more hits than warnings
                    _log.warning(
                        "%s: watch rule %r hit %d times at %d operators",
                        self._source,
                        rule,
                        sum(counts),
                        len(counts),
                    )
            self._hits.clear()
        self.sink.close()


RanOperator = tuple[OperatorRef, Arrays, Arrays]
"""An operator that has run, its inputs and outputs."""

_SQUARES: Final = StatisticNeed(squares=True)
_NEVER: Final = (0.0, 0.0)  # an open interval without numbers


@dataclass(frozen=True, slots=True, eq=False)
class _RuledTensor:
    """A tensor, its rules without and with a comparison of ranks, and the statistics that they need."""

    subject: WatchedTensor
    rules: Sequence[WatchRule]
    rank_rules: Sequence[WatchRule]
    need: StatisticNeed
    cleared: tuple[float, float]  # open interval of sums of squares in which no rule hits


class _Clearance(NamedTuple):
    """Intervals of sums of squares in which no rule hits, for the tensors of operators that run together."""

    operators: Sequence[OperatorRef]
    sizes: Sequence[int]  # number of elements of each present tensor (``tensors_of``)
    ruled: np.ndarray  # indices of the tensors on which there are rules
    owners: np.ndarray  # index of the operator of each tensor with rules
    intervals: np.ndarray  # open interval of each tensor with rules, one row each


class GraphWatch:
    """The rules on the tensors of one graph, or of a compiled one with its branches and loops."""

    def __init__(self, graphs: Iterable[Graph], run: RunWatch) -> None:
        self._run = run
        self._watch = RuleWatch(run.plan.rules, run.remember)
        watched = tuple(graphs)
        self._place = str(watched[0].index)
        self._nodes = {node.operator: (graph, node) for graph in watched for node in graph.nodes}
        self._weights = {graph.index: _weights(graph) for graph in watched}
        self._tensors: dict[tuple[OperatorRef, IO, int], _RuledTensor] = {}
        self._runs: Counter[_RuledTensor] = Counter()  # runs of each tensor's operator in this iteration
        self._limits: dict[OperatorRef, _Clearance] = {}  # by the first operator
        self._iteration = -1  # before the first one
        self._rank: int | None = None  # looked up once in each iteration
        self._hit: Hit | None = None

    def begin(self, iteration: int) -> None:
        """Begin an iteration of all graphs, branches and loops included."""
        if iteration != self._iteration:
            self._iteration, self._rank = iteration, None
            self._runs.clear()

    @property
    def need(self) -> StatisticNeed | None:
        """Statistics that show whether a rule may hit: sums of squares, or None where rules need more.

        A session measures them itself, which halves the cost of rules on networks of short operators.
        """
        is_enough = self.dumps_hits_alone and cleared_squares(self._run.plan.rules)[1] > 0
        return _SQUARES if is_enough else None

    @property
    def dumps_hits_alone(self) -> bool:
        """Whether only operators are dumped at which a rule hits."""
        return self._run.plan.writes_hits_alone

    def cleared(
        self,
        ran: Sequence[RanOperator],
        records: Callable[[int], Iterable[TensorRecord]],
        squares: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return for each operator of a batch whether it is certain that no rule hits."""
        tensors = tensors_of(ran)
        operators, sizes = [each[0] for each in ran], [array.size for array in tensors]
        limits = self._limits.get(operators[0])
        if limits is None or limits.operators != operators or limits.sizes != sizes:
            limits = self._limits[operators[0]] = self._limits_of(ran, records, operators, sizes)
        if squares is None:
            ruled = [tensors[place] for place in limits.ruled]
            chosen = {
                id(array): array
                for array, is_wanted in zip(ruled, (limits.intervals[:, 1] > 0), strict=True)
                if is_wanted
            }
            typed = [(array, dtypes.from_numpy(array.dtype)) for array in chosen.values() if array.size]
            typed = [(array, dtype) for array, dtype in typed if is_measurable(dtype)]
            totals = passes.measure_all(typed, _SQUARES)
            found = {key: 0.0 for key, array in chosen.items() if not array.size}
            found |= {id(array): each.squares for (array, _), each in zip(typed, totals, strict=True)}
            squares = np.array([found.get(id(array), np.nan) for array in ruled])
        else:
            squares = squares[limits.ruled]
        is_tensor_cleared = are_cleared(squares, np.array(sizes)[limits.ruled], limits.intervals)
        is_cleared = np.ones(len(ran), bool)
        is_cleared[limits.owners[~is_tensor_cleared]] = False
        return is_cleared

    def _limits_of(
        self,
        ran: Sequence[RanOperator],
        records: Callable[[int], Iterable[TensorRecord]],
        operators: Sequence[OperatorRef],
        sizes: Sequence[int],
    ) -> _Clearance:
        rows: list[tuple[int, int, float, float]] = []  # place of the tensor and of its operator, interval
        start = 0
        for owner, operator in enumerate(ran):
            found = [*records(owner)]
            count = len(tensors_of([operator]))
            if len(found) != count:
                # text has no record: records cannot be assigned to tensors
                rows += [(start + place, owner, *_NEVER) for place in range(count)]
            else:
                for place, record in enumerate(found, start):
                    tensor = self._tensor(record)
                    if tensor.rules or tensor.rank_rules:
                        # rounding by the device changes the sum
                        is_held = held_in(record) is record.dtype
                        rows.append((place, owner, *(tensor.cleared if is_held else _NEVER)))
            start += count
        table = np.array(rows).reshape(-1, 4)
        ruled, owners = table[:, :2].T.astype(int)
        return _Clearance(operators, sizes, ruled, owners, table[:, 2:])

    def keeps(self, tensors: Sequence[TensorRecord], *, saturated: bool) -> bool:
        """Check the tensors of an operator; return whether they are dumped: without a hit they may not be.

        Raises:
            DumpWriteError: The steps that a hit releases could not be written.
            ConfigValueError: Matching the regular expression of a rule takes too long.
        """
        findings: list[Finding] = []

        @functools.cache
        def is_overflow() -> bool:
            """Return whether the operator overflowed, as ``op_debug_mode`` 3 defines it."""
            return saturated or any(each.io is IO.OUTPUT and overflows(each.array) for each in tensors)

        for record in tensors:
            findings += self._check(record, is_overflow)
        self._hit = self._run.take(findings) if findings else None
        return self._hit is not None or not self._run.plan.writes_hits_alone

    def stop(self) -> None:
        """Raise WatchHitError where a rule hit at the last operator and hits end runs."""
        hit, self._hit = self._hit, None
        self._run.stop_at(hit)

    def _check(self, record: TensorRecord, is_overflow: Callable[[], bool]) -> Sequence[Finding]:
        tensor = self._tensor(record)
        if not (tensor.rules or tensor.rank_rules):
            return ()
        number = self._runs[tensor]
        self._runs[tensor] += 1
        if record.dtype is STRING or not record.array.size or not is_measurable(record.dtype):
            return ()
        array, dtype = held_elements(record)
        if self._rank is None:
            self._rank = current().identity.rank
        moment = Sighting(self._iteration, self._rank, number, record.timestamp, self._place)
        row = measured_row(array, dtype, tensor.need)
        rank_rules = [rule for rule in tensor.rank_rules if self._iteration in rule.target.iterations]
        if rank_rules and self._run.ranks is not None:
            key = f"{self._place} {tensor.subject} {number}"
            self._run.ranks.tensors[key] = SharedTensor(tensor.subject, moment, rank_rules, repr(row))
        if any(rule.reads_overflows for rule in tensor.rules):
            is_written = record.io is IO.OUTPUT and record.operator.op_type != PARAMETER
            row[OVERFLOW_COUNT] = int(is_written and is_overflow())
        return self._watch.check(tensor.rules, tensor.subject, moment, row, lambda: array)

    def _tensor(self, record: TensorRecord) -> _RuledTensor:
        key = record.operator, record.io, record.slot
        tensor = self._tensors.get(key)
        if tensor is None:
            operator, io = record.operator, record.io
            is_weight = is_loss = False
            if operator.op_type == PARAMETER:
                is_weight = any(operator.full_name in names for names in self._weights.values())
            elif operator in self._nodes:
                graph, node = self._nodes[operator]
                slot = record.slot if record.device is None else record.device.slot
                name = node.inputs[slot] if io is IO.INPUT and slot < len(node.inputs) else ""
                # a weight that an optimizer writes is checked there, once it is written
                is_weight = name not in graph.bindings and name in self._weights[graph.index]
                is_loss = io is IO.OUTPUT and _gives_loss(graph, node, slot)
            found = subject(
                operator.op_type, operator.full_name, io, record.slot, is_weight=is_weight, is_loss=is_loss
            )
            every = self._watch.rules_for(found)
            of_ranks = [rule for rule in every if rule.compares_ranks]
            rules = [rule for rule in every if not rule.compares_ranks]
            cleared = _NEVER if of_ranks else cleared_squares(rules)
            tensor = self._tensors[key] = _RuledTensor(found, rules, of_ranks, need_of(every), cleared)
        return tensor


def _weights(graph: Graph) -> frozenset[str]:
    """Return the names of the weights: floating-point numbers with dimensions, but no optimizer's state."""
    state = state_of((node.operator.op_type, node.inputs) for node in graph.nodes)
    return frozenset(
        name
        for name, array in graph.weights.items()
        if array.ndim and dtypes.from_numpy(array.dtype).saved.kind == "f"
    ) - {*state, *graph.constants}


def _gives_loss(graph: Graph, node: Node, slot: int) -> bool:
    """Return whether a training step returns an output, one float or from the cell of the loss."""
    name = node.outputs[slot] if slot < len(node.outputs) else ""
    returned = {value.name for value in graph.outputs} - {*graph.bindings.values()}
    if not graph.bindings or name not in returned:
        return False
    value_type = graph.type_of(name)
    is_float = value_type.dtype is not None and value_type.dtype.saved.kind == "f"
    return is_float and (value_type.shape in {(), (1,)} or name in graph.losses)
