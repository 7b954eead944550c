"""A program as a tuple of segments, for each way in which observers look at it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from msdump.execute.control import Frame
from msdump.execute.frames import Frames
from msdump.execute.runtime import short
from msdump.execute.segments import sizes
from msdump.execute.segments.compiler import SegmentCompiler, SegmentSession
from msdump.execute.segments.cutting import cut
from msdump.execute.segments.inside import measuring
from msdump.execute.segments.operators import ProgramOperator
from msdump.execute.segments.saving import saved_values
from msdump.execute.segments.segment import ProgramView, Segment
from msdump.execute.shortage import shortage
from msdump.execute.values import Native
from msdump.graph.graph import Graph
from msdump.graph.kernel.linked import SessionLooks, UnlinkableError
from msdump.graph.order import reads
from msdump.observer import Observer, need_of, saves_of
from msdump.statistics.totals import NOTHING, StatisticNeed
from msdump.tracing import recording

_Looks = tuple[
    *tuple[Sequence[bool] | None, Sequence[bool], bool, bool, tuple[int, ...], StatisticNeed | None],
    Sequence[bool],
]
"""What an observer watches, where it holds up, whether it wants inputs, and outputs; what it looks into, what
it needs to know, and where it lets sessions write files."""

_Timed = TypeVar("_Timed", bound=Callable[..., Any])

_log = logging.getLogger("msdump.execute")

_PAIR: Final = 2

_FEW: Final = 2
"""Values more than are asked for that a session may give: it then need not be made once more without them."""


class Views:
    """The views of one program."""

    def __init__(
        self,
        graph: Graph,
        operators: Sequence[ProgramOperator],
        frames: Frames,
        compiler: SegmentCompiler,
        joins: list[bool],
    ) -> None:
        """Set the program.

        Args:
            graph: The graph.
            operators: Its operators.
            frames: Where its values stand.
            compiler: Makes the sessions of segments.
            joins: By position, whether an operator may run in a session with others.
        """
        self._graph = graph
        self._operators = operators
        self._frames = frames
        self._compiler = compiler
        self._joins = joins
        self._last = _last_uses(graph)
        self._made = frozenset(name for node in graph.nodes for name in node.outputs if name)
        self._packed = [sizes.packed_nbytes(graph, operator.node) for operator in operators]
        self._by_key: dict[Any, ProgramView] = {}
        self._recent: tuple[_Looks, ProgramView] | None = None
        self._branching = tuple(
            operator for operator in operators if operator.node.bodies and joins[operator.position]
        )
        self._sessions: dict[range, list[SegmentSession]] = {}

    @property
    def has_run(self) -> bool:
        """Whether a segment of several operators has run, or tried to."""
        return bool(self._sessions)

    def of(self, observer: Observer | None, frame: Frame) -> ProgramView:
        """Return the view of an observer, None: of nobody.

        Args:
            observer: The observer.
            frame: The values before the run.
        """
        if observer is None:
            looks: _Looks = (None, (), False, False, (), None, ())
        else:
            looks = (
                observer.watched,
                observer.holds_up,
                observer.wants_inputs,
                observer.wants_outputs,
                self._entered(observer),
                need_of(observer),
                saves_of(observer),
            )
        recent = self._recent
        # the same objects say the same: what may change in place is no tuple
        if recent is not None:
            last, view = recent
            if last[0] is looks[0] and last[1] is looks[1] and last[2:] == looks[2:]:
                return view
        view = self._found(looks, frame)
        is_settled = isinstance(looks[0], tuple | None) and isinstance(looks[1], tuple)
        self._recent = (looks, view) if is_settled else None
        return view

    def _entered(self, observer: Observer) -> tuple[int, ...]:
        """Return the positions of control flow that could join segments, but for the observer."""
        return tuple(
            operator.position
            for operator in self._branching
            if any(map(observer.looks_into, operator.node.bodies.values()))
        )

    def _found(self, looks: _Looks, frame: Frame) -> ProgramView:
        watched, holds_up, wants_inputs, wants_outputs, entered, need, saves = looks
        seen = tuple(watched) if watched is not None and any(watched) else None
        key = (seen, tuple(holds_up), wants_inputs, wants_outputs, entered, need, saves) if seen else entered
        view = self._by_key.get(key)
        if view is None:
            view = ProgramView(
                seen,
                tuple(holds_up),
                wants_inputs,
                wants_outputs,
                self._dimensions(frame),
                frozenset(entered),
                need,
                saves,
            )
            view.segments.extend(self._segments(view, range(len(self._operators))))
            self._by_key[key] = view
        return view

    def _dimensions(self, frame: Frame) -> dict[str, int]:
        fed = ((value.name, frame[self._frames.slots[value.name]]) for value in self._graph.inputs)
        tensors = {
            name: tuple(value.shape())
            for name, value in fed
            if isinstance(value, Native) and value.is_tensor()
        }
        return sizes.dimensions(self._graph, tensors)

    def _segments(self, view: ProgramView, positions: range) -> list[Segment]:
        counted: set[str] = set()

        def shown(position: int) -> int | None:
            operator = self._operators[position]
            if not view.shows(operator) or self._saves(view, operator):
                return None
            given = {
                name for name in view.names(operator) if name and not self._measures(view, operator, name)
            }
            if view.need is not None and not given:
                return None
            new = given - counted
            counted.update(new)
            return sum(sizes.nbytes(self._graph, name, view.dimensions) for name in new)

        def waits(position: int) -> bool:
            is_held = bool(view.holds_up) and view.holds_up[position]
            return is_held and not self._saves(view, self._operators[position])

        ranges = cut(positions, partial(self._may_join, view), shown, waits, self._packed.__getitem__)
        return [self._segment(view, each) for each in ranges]

    def _segment(self, view: ProgramView, positions: range) -> Segment:
        operators = tuple(self._operators[positions.start : positions.stop])
        # control flow that nobody looks into runs as the runtime's own, also where it stands alone
        is_whole = bool(operators[0].node.bodies) and self._may_join(view, positions.start)
        if len(operators) == 1 and not is_whole:
            return Segment(operators, operators[0])
        writing = [operator for operator in operators if self._saves(view, operator)]
        written = {operator.position for operator in writing}
        showing = tuple(
            operator for operator in operators if view.shows(operator) and operator.position not in written
        )
        seen = {name for operator in showing for name in view.names(operator)}
        saved = saved_values(self._graph, view, writing, positions.start)
        made = [name for operator in operators for name in operator.node.outputs if name]
        measured = dict.fromkeys(
            name
            for operator in operators
            for name in operator.node.outputs
            if name in seen and self._measures(view, operator, name)
        )
        outputs = [
            name
            for name in made
            if (name in seen and name not in measured) or self._last[name] >= positions.stop
        ]
        slots = self._frames.slots
        read = (name for operator in operators for name in reads(operator.node))
        # values inside the session have no slot to empty
        held = {slots[name] for name in (*read, *outputs)} - {
            slots[name] for name in set(made) - set(outputs)
        }
        return Segment(
            operators,
            None,
            shown=showing,
            outputs=tuple(outputs or made[-1:]),
            dead=tuple(slot for operator in operators for slot in operator.dead if slot in held),
            looks=SessionLooks(tuple(measured), view.need or NOTHING, tuple(saved.values())),
            saved=tuple(saved),
        )

    def _measures(self, view: ProgramView, operator: ProgramOperator, name: str) -> bool:
        """Tell whether a value is measured where it is made, for an operator that is looked at."""
        return (
            view.need is not None
            and operator.position not in view.given
            and name in self._made
            and self._compiler.can_measure(name)
        )

    def _saves(self, view: ProgramView, operator: ProgramOperator) -> bool:
        """Tell whether the tensors of an operator that is looked at are written where it runs."""
        return (
            bool(view.saves)
            and view.saves[operator.position]
            and view.shows(operator)
            and self._may_join(view, operator.position)
            and all(map(self._compiler.can_save, filter(None, operator.node.outputs)))
            and not (view.wants_inputs and self._has_own_inputs(operator))
        )

    def _has_own_inputs(self, operator: ProgramOperator) -> bool:
        """Tell whether an operator reads what no session can write as it is dumped."""
        return not all(map(self._compiler.can_save_input, filter(None, operator.inputs)))

    def _may_join(self, view: ProgramView, position: int) -> bool:
        return self._joins[position] and position not in view.entered

    def compile(self, view: ProgramView, index: int, frame: Frame) -> bool:
        """Make the session of a segment; return whether it is there.

        Where the runtime does not run the operators as one, smaller segments take the place of this one.
        """
        segment = view.segments[index]
        positions = segment.positions
        try:
            session = self._session(segment, frame)
        except UnlinkableError as error:
            self._joins[positions[error.number]] = False
            self._replace(view, index, self._segments(view, positions), short(error))
        except Exception as error:  # noqa: BLE001 - the runtime's classes vary
            self._replace(view, index, self._smaller(view, segment, error), short(error))
        else:
            slots = self._frames.slots
            self._frames.place((name for _, name in session.feeds), frame)
            segment.feeds = tuple((inner, slots[name]) for inner, name in session.feeds)
            segment.names = [session.names[name] for name in segment.outputs]
            segment.results = tuple(slots[name] for name in segment.outputs)
            segment.measuring = measuring(segment.looks)
            segment.run = _timed(session.run, "segment", segment)
            return True
        return False

    def forget(self, segment: Segment) -> None:
        """Let the sessions of a segment end, and the weights go that they have packed."""
        self._sessions[segment.positions] = []  # has run
        segment.run = None
        for operator in segment.operators:
            operator.run = None

    def _session(self, segment: Segment, frame: Frame) -> SegmentSession:
        sessions = self._sessions.setdefault(segment.positions, [])
        wanted = set(segment.outputs)
        spare = 0 if self._compiler.optimizes else _FEW  # an operator whose value is given is not fused
        for session in sessions:
            if (
                session.looks == segment.looks
                and wanted <= session.names.keys()
                and len(session.names) <= len(wanted) + spare
            ):
                return session
        nodes = [operator.node for operator in segment.operators]
        make = _timed(self._compiler.compile, "compile", segment, "compile ")
        fed = self._frames.fed(nodes, frame)
        session = make(nodes, fed, segment.outputs, segment.looks)
        sessions.append(session)
        return session

    def _smaller(self, view: ProgramView, segment: Segment, error: Exception) -> list[Segment]:
        """Return the halves of a segment; its operators where something ran out, or two are left."""
        positions = segment.positions
        middle = positions.start + len(positions) // 2
        if shortage(error):
            return self._singles(segment)
        if len(positions) <= _PAIR:
            self.leave_alone(positions)
            return self._singles(segment)
        halves = range(positions.start, middle), range(middle, positions.stop)
        return [self._segment(view, half) for half in halves]

    def part(self, view: ProgramView, segment: Segment, error: Exception) -> int:
        """Take a segment apart that failed where its operators, one by one, did not; return their number."""
        positions = segment.positions
        # some control flow finds out late that it lacks a case, as a Scan without static shapes
        self.leave_alone(operator.position for operator in segment.operators if operator.node.bodies)
        knows = not all(self._joins[position] for position in positions)
        smaller = self._segments(view, positions) if knows else self._singles(segment)
        self._replace(view, view.segments.index(segment), smaller, short(error))
        return len(smaller)

    def give(self, view: ProgramView, segment: Segment) -> None:
        """Take the values out of a segment whose observer needs their elements, from now on."""
        view.given.update(segment.positions)
        sessions = self._sessions[segment.positions]
        sessions[:] = [session for session in sessions if session.looks != segment.looks]
        smaller = self._segments(view, segment.positions)
        self._replace(view, view.segments.index(segment), smaller, "elements are looked at")

    def leave_alone(self, positions: Iterable[int]) -> None:
        """Keep operators out of sessions with others, in views to come."""
        for position in positions:
            self._joins[position] = False

    @staticmethod
    def _singles(segment: Segment) -> list[Segment]:
        return [Segment((operator,), operator) for operator in segment.operators]

    def _replace(self, view: ProgramView, index: int, smaller: list[Segment], reason: str) -> None:
        first, last = view.segments[index].operators[0], view.segments[index].operators[-1]
        _log.debug(
            "%s: %s to %s do not run as one session: %s",
            self._graph.source,
            first.node.operator.full_name,
            last.node.operator.full_name,
            reason,
        )
        view.segments[index : index + 1] = smaller


def _timed(function: _Timed, category: str, segment: Segment, prefix: str = "") -> _Timed:
    """Return a function on a segment whose calls are in the trace, where one is made."""
    if recording.active() is None:
        return function
    names = [operator.node.operator.full_name for operator in segment.operators]
    title = names[0] if len(names) == 1 else f"{len(names)} operators from {names[0]} to {names[-1]}"
    return recording.timed(function, category, prefix + title, operators=names)


def _last_uses(graph: Graph) -> dict[str, int]:
    """Return the position of the last operator that reads each value; the number of operators for results."""
    last = {name: position for position, node in enumerate(graph.nodes) for name in reads(node)}
    for node in graph.nodes:
        for name in node.outputs:
            last.setdefault(name, -1)
    return last | {value.name: len(graph.nodes) for value in graph.outputs}
