"""Plans that split a program into segments, one for each set of observed operators and tensors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeVar

import numpy as np

from msdump import dtypes, tracing
from msdump.errors import is_foreign, shortage
from msdump.execute import values
from msdump.execute.control import Control, Frame, Frames
from msdump.execute.runtime import OrtValue, Run, short
from msdump.execute.segment_compiler import (
    SegmentCompiler,
    SegmentSession,
    cut,
    dimensions,
    nbytes,
    packed_nbytes,
)
from msdump.execute.values import Native
from msdump.execute.weights import narrowed
from msdump.graph import Graph, Node, reads
from msdump.graph.kernel import ADDRESSES, NO_HOOKS, Rounding, SessionHooks, UnlinkableError
from msdump.observer import (
    NO_INTEREST,
    Array,
    ElementsNeededError,
    Interest,
    NodeRun,
    Observer,
    places_of,
    tensors_of,
)
from msdump.statistics import (
    NOTHING,
    SessionMeasures,
    StatisticNeed,
    Totals,
    TotalsArray,
    finds,
    passes,
    stand_ins,
)


@dataclass(slots=True)
class ProgramOperator:
    """One operator of the program; its kernel is compiled when it first runs."""

    position: int  # its place in the graph's execution order
    node: Node
    dead: tuple[int, ...]  # slots that no operator reads after this operator
    feeds: tuple[tuple[str, int], ...] = ()  # (feed name, slot) of everything that is fed
    names: list[str] = field(default_factory=list)  # output names of the kernel
    results: tuple[int, ...] = ()  # slot of each output
    run: Run | None = None  # the kernel's function, None before the first run
    # runs control flow or another operator in Python; None for operators with a kernel
    control: Control | None = None
    inputs: tuple[str, ...] = field(init=False)  # values that observers see as its inputs
    outputs: tuple[str, ...] = field(init=False)  # values that observers see as its outputs

    def __post_init__(self) -> None:
        """Find the values that observers see, once for all runs."""
        self.inputs, self.outputs = self.node.inputs_after_run, self.node.declared_outputs


def node_runs(
    operators: Iterable[ProgramOperator],
    frame: Frame,
    frames: Frames,
    interest: Interest,
    known: Mapping[str, Array] = MappingProxyType({}),
) -> list[NodeRun]:
    """Return the NodeRun records of operators for an observer; operators share the array of a common value.

    Arrays in ``known`` take precedence over the frame.
    """
    arrays: dict[str, Array] = dict(known)
    status = frame[frames.status]
    is_saturated = status is not None and bool(status.numpy())
    batch: list[NodeRun] = []
    if not interest.positions:
        return batch
    for operator in operators:
        if not interest.positions[operator.position]:
            continue
        sides: tuple[list[Array], list[Array]] = [], []
        for names, side in zip(
            (operator.inputs * interest.inputs, operator.outputs * interest.outputs), sides, strict=True
        ):
            for name in names:
                if name not in arrays:
                    value = frame[frames.slots[name]] if name else None
                    is_made = isinstance(value, Native) and value.is_tensor()  # ``Frames.tensor`` inlined
                    arrays[name] = values.to_array(value) if is_made else frames.tensor(name, frame)
                side.append(arrays[name])
        batch.append(NodeRun(operator.position, *sides, is_saturated))
    return batch


def _found(
    session: SessionMeasures, arrays: Sequence[np.ndarray], tensors: Sequence[np.ndarray], need: StatisticNeed
) -> TotalsArray:
    """Return the statistics of tensors: from the session, else measured by a pass over the elements."""
    found = dict(zip(map(id, arrays), session.totals(arrays), strict=True))
    others = [(each, dtypes.from_numpy(each.dtype)) for each in tensors if id(each) not in found]
    others = [(each, dtype) for each, dtype in others if each.size and passes.is_measurable(dtype)]
    measured = passes.measure_all(others, need)
    found |= {id(each): totals for (each, _), totals in zip(others, measured, strict=True)}
    return TotalsArray.of([found.get(id(each)) or Totals(each.size) for each in tensors])


class Measuring:
    """The statistics that the session of a segment writes in each run."""

    def __init__(self, count: int) -> None:
        self._found = SessionMeasures(count)
        # a feed of the session: the addresses to which it writes the statistics
        self.addresses = values.owned(self._found.addresses)
        # NodeRun records, reused while types, shapes and interest are the same, and the index of each
        # tensor's statistics.
        self._kinds: tuple[bytes, Interest] = b"", NO_INTEREST
        self._batch: Sequence[NodeRun] = ()
        self._places = np.zeros(0, np.int64)
        self._counts = np.zeros(0)

    def runs(
        self, segment: Segment, frame: Frame, frames: Frames, interest: Interest
    ) -> tuple[Sequence[NodeRun], TotalsArray]:
        """Return the shown operators and their statistics; ElementsNeededError if some are missing."""
        kinds = self._found.kinds, interest
        if self._kinds != kinds:
            arrays = stand_ins(kinds[0])
            if arrays is None:
                raise ElementsNeededError
            known = dict(zip(segment.looks.measured, arrays, strict=True))
            batch = node_runs(segment.shown, frame, frames, interest, known)
            tensors = tensors_of(batch)
            if not {*map(id, tensors)} <= {*map(id, arrays)}:
                return batch, _found(self._found, arrays, tensors, segment.looks.need)
            self._batch, self._places = batch, np.array(places_of(tensors, arrays))
            self._counts, self._kinds = np.array([array.size for array in tensors]), kinds
        return self._batch, self._found.together(self._places, self._counts)


@dataclass(slots=True, eq=False)
class Segment:
    """Consecutive operators that run as one session, or a single operator."""

    operators: tuple[ProgramOperator, ...]
    single: ProgramOperator | None  # the operator of a segment of one, which runs by its kernel; else None
    shown: tuple[ProgramOperator, ...] = ()  # the observed operators
    outputs: tuple[str, ...] = ()  # values that are read after the segment, or observed
    feeds: tuple[tuple[str, int], ...] = ()  # (feed name, slot) of everything that is fed
    # (feed name, weight, its rounding) of all that is fed only if the caller replaces the weight
    defaults: tuple[tuple[str, str, Rounding], ...] = ()
    names: list[str] = field(default_factory=list)  # names of the outputs in the session
    results: tuple[int, ...] = ()  # slot of each output
    dead: tuple[int, ...] = ()  # slots that no operator reads after the segment
    looks: SessionHooks = NO_HOOKS  # the observed values that its session measures itself and need not return
    run: Run | None = None  # the session's function, None before the first run
    # memory of the session's statistics; None before the first run, or without statistics
    measuring: Measuring | None = None

    def session_inputs(self, frame: Frame, frames: Frames) -> dict[str, OrtValue]:
        """Return the inputs of the segment's session, a replaced weight rounded as the device rounds it."""
        feeds = {name: frame[slot] for name, slot in self.feeds}
        for inner, name, rounding in self.defaults:
            value = frames.replacement(name, frame)
            if value is not None:
                array = narrowed(values.to_array(value), rounding.reads, saturates=rounding.saturates)
                feeds[inner] = values.owned(array)
        if self.measuring is not None:
            feeds[ADDRESSES] = self.measuring.addresses
        return feeds

    def runs(
        self, frame: Frame, frames: Frames, interest: Interest
    ) -> tuple[Sequence[NodeRun], TotalsArray | None]:
        """Return its operators that are shown, after a run; their statistics if its session measured them."""
        if interest.need is not None and self.measuring is not None:
            return self.measuring.runs(self, frame, frames, interest)
        return node_runs(self.shown, frame, frames, interest), None

    @property
    def positions(self) -> range:
        """Places of its operators in the graph's execution order."""
        return range(self.operators[0].position, self.operators[-1].position + 1)


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """The segments of a program for one observer's interest."""

    interest: Interest  # the observed operators and tensors
    # positions of operators that run alone: control flow with observed bodies, replaced outputs
    entered: tuple[int, ...]
    dimensions: dict[str, int]  # sizes of named dimensions in the first run
    # positions of operators with values that must be returned, as statistics did not suffice
    given: set[int] = field(default_factory=set)
    # the segments in order; a segment that the runtime refuses is cut
    segments: list[Segment] = field(default_factory=list)

    def shows(self, operator: ProgramOperator) -> bool:
        """Return whether an operator is observed: its tensors, or only that it ran."""
        return self.interest.shows(operator.position)

    def names(self, operator: ProgramOperator) -> tuple[str, ...]:
        """Return the observed values of an operator; "" for omitted inputs and outputs."""
        if not self.shows(operator):
            return ()
        return operator.inputs * self.interest.inputs + operator.outputs * self.interest.outputs


_Timed = TypeVar("_Timed", bound=Callable[..., Any])

_log = logging.getLogger("msdump.execute")

_LARGE: Final = 64 << 20
"""Bytes of packed weights from which a program has one plan: each plan packs them once more."""

_PATIENCE: Final = 0
"""Runs in a row that use a plan for more than they want, before the first time that a plan is made anew.

They take up to 1.3 times as long; to pack weights takes the time of some ten runs. The first run of a dump on
Ascend is looked at for its addresses, too, and wants more than any later one.
"""

_FEW: Final = 2
"""Values more than are asked for that a session may give: it then need not be made once more without them."""


class SegmentPlanner:
    """Cuts one program into segments: a plan for runs that are observed, and one for others.

    A program of large weights has one plan for all runs.
    """

    def __init__(
        self,
        graph: Graph,
        operators: Sequence[ProgramOperator],
        frames: Frames,
        compiler: SegmentCompiler,
        joins: list[bool],
    ) -> None:
        self._graph = graph
        self._operators = operators
        self._frames = frames
        self._compiler = compiler
        self._joins = joins
        # position of each value's last reader: -1 without one; for graph outputs, len(nodes)
        self._last = dict.fromkeys((name for node in graph.nodes for name in node.outputs), -1)
        self._last |= {name: position for position, node in enumerate(graph.nodes) for name in reads(node)}
        self._last |= {value.name: len(graph.nodes) for value in graph.outputs}
        self._made = frozenset(name for node in graph.nodes for name in node.outputs if name)
        self._packed = [packed_nbytes(graph, operator.node) for operator in operators]
        self._has_one_plan = sum(self._packed) >= _LARGE
        self._surplus, self._patience = 0, _PATIENCE
        self._plans: dict[bool, SegmentPlan] = {}  # by whether operators are observed
        self._branching = tuple(
            operator for operator in operators if operator.node.bodies and joins[operator.position]
        )
        self._sessions: dict[range, Sequence[SegmentSession]] = {}

    @property
    def has_run(self) -> bool:
        """Whether a session of several operators was ever requested."""
        return bool(self._sessions)

    def plan_for(self, observer: Observer | None, frame: Frame, replaced: Iterable[int] = ()) -> SegmentPlan:
        """Return the plan of segments for an observer.

        Operators at the positions in ``replaced`` run alone.
        """
        interest, entered = NO_INTEREST, {*replaced}
        if observer is not None:
            interest = NO_INTEREST if observer.interest.is_empty else observer.interest
            # control flow with observed bodies may not join segments
            entered.update(
                operator.position
                for operator in self._branching
                if any(observer.looks_into(body) for body in operator.node.bodies.values())
            )
        if interest.need is not None and not finds(interest.need):
            interest = interest._replace(need=None)
        wanted = interest, tuple(sorted(entered))
        key = self._has_one_plan or interest is not NO_INTEREST
        plan = self._plans.get(key)
        if plan is not None and self._has_one_plan:
            wanted = self._widened(plan, *wanted)
        if plan is None or (plan.interest, plan.entered) != wanted:
            if plan is not None and self._has_one_plan:  # drop sessions, and with them packed weights
                self._plans.clear()
                self._sessions = dict.fromkeys(self._sessions, ())  # the keys: has_run stays true
                for operator in self._operators:
                    operator.run = None
            slots = self._frames.slots
            fed = {value.name: frame[slots[value.name]] for value in self._graph.inputs}
            shapes = {
                name: tuple(value.shape())
                for name, value in fed.items()
                if isinstance(value, Native) and value.is_tensor()
            }
            plan = SegmentPlan(*wanted, dimensions(self._graph, shapes))
            plan.segments.extend(self._segments(plan, range(len(self._operators))))
            # last, so that an exception of a signal handler cannot leave an incomplete plan
            self._plans[key] = plan
        return plan

    def _widened(
        self, plan: SegmentPlan, interest: Interest, entered: tuple[int, ...]
    ) -> tuple[Interest, tuple[int, ...]]:
        """Return the interest and the observed control flow of a program's only plan.

        The plan shows all that this run and earlier ones want, so that runs in turns share sessions. After
        some runs in a row that want less, earlier wishes are dropped; the number of runs then doubles, so
        that dumps at intervals do not pack weights again and again.
        """
        wide = interest, entered
        if wide != (plan.interest, plan.entered):
            wide = plan.interest.joined(interest), tuple(sorted({*plan.entered, *entered}))
        self._surplus = self._surplus + 1 if wide != (interest, entered) else 0
        if self._surplus <= self._patience:
            return wide
        self._surplus, self._patience = 0, 2 * self._patience + 1
        return interest, entered

    def _segments(self, plan: SegmentPlan, positions: range) -> list[Segment]:
        counted: set[str] = set()

        def shown(position: int) -> int | None:
            operator = self._operators[position]
            if not plan.shows(operator):
                return None
            given = {
                name for name in plan.names(operator) if name and not self._measures(plan, operator, name)
            }
            if plan.interest.need is not None and not given:
                return None
            new = given - counted
            counted.update(new)
            return sum(nbytes(self._graph, name, plan.dimensions) for name in new)

        ranges = cut(
            positions,
            partial(self._may_join, plan),
            shown,
            self._packed.__getitem__,
            one_by_one=plan.interest.one_by_one,
        )
        return [self._segment(plan, each) for each in ranges]

    def _segment(self, plan: SegmentPlan, positions: range) -> Segment:
        operators = tuple(self._operators[positions.start : positions.stop])
        # control flow without observed bodies runs as the runtime's own operator, even as a single operator
        is_whole = bool(operators[0].node.bodies) and self._may_join(plan, positions.start)
        if len(operators) == 1 and not is_whole:
            return Segment(operators, operators[0])
        showing = tuple(operator for operator in operators if plan.shows(operator))
        seen = {name for operator in showing for name in plan.names(operator)}
        made = [name for operator in operators for name in operator.node.outputs if name]
        measured = dict.fromkeys(
            name
            for operator in operators
            for name in operator.node.outputs
            if name in seen and self._measures(plan, operator, name)
        )
        outputs = [
            name
            for name in made
            if (name in seen and name not in measured) or self._last[name] >= positions.stop
        ]
        slots = self._frames.slots
        read = (name for operator in operators for name in reads(operator.node))
        # values that never leave the session are in no slot
        held = {slots[name] for name in (*read, *outputs)} - {
            slots[name] for name in set(made) - set(outputs)
        }
        return Segment(
            operators,
            None,
            shown=showing,
            outputs=tuple(outputs or made[-1:]),
            dead=tuple(slot for operator in operators for slot in operator.dead if slot in held),
            looks=SessionHooks(tuple(measured), plan.interest.need or NOTHING),
        )

    def _measures(self, plan: SegmentPlan, operator: ProgramOperator, name: str) -> bool:
        """Return whether the session computes the statistics of an observed operator's value."""
        return (
            plan.interest.need is not None
            and operator.position not in plan.given
            and name in self._made
            and self._compiler.can_measure(name)
        )

    def _may_join(self, plan: SegmentPlan, position: int) -> bool:
        return self._joins[position] and position not in plan.entered

    def compile(self, plan: SegmentPlan, index: int, frame: Frame) -> bool:
        """Make the session of a segment; return whether that succeeded.

        If the runtime refuses the operators as one model, they run one by one from now on; where it names the
        operator that it refuses, the others stay together.
        """
        segment = plan.segments[index]
        positions = segment.positions
        try:
            session = self._session(segment, frame)
        except UnlinkableError as error:
            self._joins[positions[error.number]] = False
            self._replace(plan, index, self._segments(plan, positions), short(error))
        except Exception as error:
            if is_foreign(error):
                raise
            if not shortage(error):
                self.leave_alone(positions)
            self._replace(plan, index, self._singles(segment), short(error))
        else:
            slots = self._frames.slots
            self._frames.place((name for _, name in session.feeds), frame)
            segment.feeds = tuple((inner, slots[name]) for inner, name in session.feeds)
            segment.defaults = session.defaults
            segment.names = [session.names[name] for name in segment.outputs]
            segment.results = tuple(slots[name] for name in segment.outputs)
            segment.measuring = Measuring(len(segment.looks.measured)) if segment.looks.measured else None
            segment.run = _timed(session.run, "segment", segment)
            return True
        return False

    def forget(self, segment: Segment) -> None:
        """Release the sessions of a segment, and with them their packed weights."""
        self._sessions[segment.positions] = ()  # the key: has_run stays true
        segment.run = None
        for operator in segment.operators:
            operator.run = None

    def _session(self, segment: Segment, frame: Frame) -> SegmentSession:
        sessions = self._sessions.setdefault(segment.positions, ())
        wanted = set(segment.outputs)
        spare = 0 if self._compiler.optimizes else _FEW  # outputs prevent fusion
        for session in sessions:
            if (
                session.looks == segment.looks
                and wanted <= session.names.keys()
                and len(session.names) <= len(wanted) + spare
            ):
                return session
        nodes = [operator.node for operator in segment.operators]
        make = _timed(self._compiler.compile, "compile", segment, "compile ")
        read = self._frames.values_read(nodes, frame)
        session = make(nodes, read, segment.outputs, segment.looks)
        self._sessions[segment.positions] = (*sessions, session)
        return session

    def part(self, plan: SegmentPlan, segment: Segment, error: Exception) -> int:
        """Split a segment if only its session failed, not its operators; return the number of parts."""
        positions = segment.positions
        # some control flow fails only at run time, such as a Scan without static shapes
        self.leave_alone(operator.position for operator in segment.operators if operator.node.bodies)
        knows = not all(self._joins[position] for position in positions)
        smaller = self._segments(plan, positions) if knows else self._singles(segment)
        self._replace(plan, plan.segments.index(segment), smaller, short(error))
        return len(smaller)

    def give(self, plan: SegmentPlan, segment: Segment) -> None:
        """Make a segment return its values from now on, as the observer needs their elements."""
        plan.given.update(segment.positions)
        sessions = self._sessions[segment.positions]
        self._sessions[segment.positions] = [each for each in sessions if each.looks != segment.looks]
        smaller = self._segments(plan, segment.positions)
        self._replace(plan, plan.segments.index(segment), smaller, "elements are looked at")

    def leave_alone(self, positions: Iterable[int]) -> None:
        """Give operators segments of their own in future plans."""
        for position in positions:
            self._joins[position] = False

    @staticmethod
    def _singles(segment: Segment) -> list[Segment]:
        return [Segment((operator,), operator) for operator in segment.operators]

    def _replace(self, plan: SegmentPlan, index: int, smaller: list[Segment], reason: str) -> None:
        first, last = plan.segments[index].operators[0], plan.segments[index].operators[-1]
        _log.debug(
            "%s: %s to %s run one by one, not as one session: %s",
            self._graph.source,
            first.node.operator.full_name,
            last.node.operator.full_name,
            reason,
        )
        plan.segments[index : index + 1] = smaller


def _timed(function: _Timed, category: str, segment: Segment, prefix: str = "") -> _Timed:
    """Wrap a function of a segment: record its calls in the trace, if tracing is on."""
    if tracing.active() is None:
        return function
    names = [operator.node.operator.full_name for operator in segment.operators]
    title = names[0] if len(names) == 1 else f"{len(names)} operators from {names[0]} to {names[-1]}"
    return tracing.timed(function, category, prefix + title, operators=names)
