"""Executions of a network whose files lie in one directory, and the passes of loops within each.

A second program that dumps into the same path adds its files to the same directories. In MindSpore's
tree a directory belongs to one graph: the main graph's tensors come once in each execution, those of
a branch or a body once in each pass, and a pass belongs to the execution in whose time it lies. A
directory of a compiled graph (Ascend O2, GE, acl) holds one execution; there every operator counts
its own passes.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from msdump.store.names import TensorName
from msdump.store.read import timeline
from msdump.store.read.cells import Row
from msdump.store.read.records import Record
from msdump.store.read.timeline import Moment, Span

_log = logging.getLogger("msdump.store")

PlaceOf = Callable[[str, str], int | None]
"""Gives the number of an operator in its graph's order, by op_type and op_name; None: unknown."""

BearersOf = Callable[[str], int]
"""Gives the number of a graph's operators whose files have an op_name, at least 1."""


@dataclass(frozen=True)
class Execution:
    """What one execution of a network left in a directory.

    Attributes:
        number: Its number among those in the directory, from 0, in the order of time.
        is_whole: It went as far as the one that went farthest; else it was broken off.
        records: Its tensors by timestamp.
        statistics: Its rows of ``statistic.csv``, in their order.
    """

    number: int
    is_whole: bool
    records: tuple[Record, ...] = field(repr=False)
    statistics: tuple[Row, ...] = field(repr=False)


@dataclass(frozen=True)
class Setting:
    """What is known of the graph whose directory is looked at.

    Attributes:
        place_of: Gives the place of an operator in the graph's order.
        bearers_of: Gives how many operators share a name of files: those of one type in several scopes,
            where names have no scope (``classic``).
        loaded: When a program last loaded the graph, microseconds since the epoch, None: not known.
        main: For a branch or a body: what the main graph left of the same iteration; else None.
        listed: For a graph that may run several times in one execution (MindSpore's own conditions of
            loops): how often the iteration was executed, as the list of iterations has it; else None.
        told: What was said of the graph's directories, so that it is said once.
    """

    place_of: PlaceOf = lambda _type, _name: None
    bearers_of: BearersOf = lambda _name: 1
    loaded: int | None = None
    main: Timeline | None = None
    listed: int | None = None
    told: set[tuple[int, int]] = field(default_factory=set, compare=False)


@dataclass(frozen=True)
class Timeline:
    """When the executions in a directory took place.

    Attributes:
        spans: First and last timestamp of each.
        whole: Whether each went as far as the one that went farthest.
    """

    spans: tuple[Span, ...]
    whole: tuple[bool, ...]

    @property
    def last_whole(self) -> int:
        """Number of the last execution that is whole, 0 where there is none at all."""
        return max((number for number, is_whole in enumerate(self.whole) if is_whole), default=0)


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of a graph: from when on, of which execution, and which pass in it."""

    start: int
    execution: int
    number: int


@dataclass(frozen=True)
class Told:
    """The executions of a directory, told apart.

    Attributes:
        timeline: When they took place; that of the main graph for a branch or a body.
        executions: Those that left something here.
    """

    timeline: Timeline
    executions: tuple[Execution, ...]


def of_graph(records: Sequence[Record], rows: Sequence[Row], setting: Setting) -> Told:
    """Tell the executions in a directory of MindSpore's tree apart.

    Args:
        records: Its tensors by timestamp.
        rows: Its rows of ``statistic.csv``.
        setting: What is known of its graph.
    """
    moments = sorted((*_of_records(records, setting), *_of_rows(rows, setting)), key=_time)
    starts = timeline.runs(moments, setting.loaded)
    spans, whole = timeline.spans(moments, starts), timeline.whole(moments, starts)
    owners = _owners(spans, setting)
    main = setting.main
    times = main if main is not None and main.spans else _joined(spans, whole, owners)
    runs = _numbered(spans, owners)
    return Told(times, _executions(records, rows, runs, times, setting.bearers_of))


def of_compiled(records: Sequence[Record], rows: Sequence[Row]) -> Told:
    """Return the one execution in a directory of a compiled graph; operators count their passes."""
    counts: Counter[Hashable] = Counter()
    numbered = []
    for record in records:
        is_of_file = record.pass_number > 0  # the operator's file has counted
        what = _what(record.name)
        numbered.append(record if is_of_file or not counts[what] else _placed(record, 0, counts[what]))
        counts[what] += 1
    only = Execution(0, is_whole=True, records=tuple(numbered), statistics=tuple(rows))
    return Told(Timeline(((0, 0),), (True,)), (only,))


def _time(moment: Moment) -> int:
    return moment.time


def _what(name: TensorName) -> Hashable:
    return (name.op_type, name.op_name, name.task_id, name.stream_id, name.io, name.slot)


def _of_records(records: Iterable[Record], setting: Setting) -> Iterable[Moment]:
    for record in records:
        op_name = record.name.op_name
        place, bearers = setting.place_of(record.op_type, op_name), setting.bearers_of(op_name)
        yield Moment(record.timestamp, _what(record.name), place, bearers)


def _of_rows(rows: Iterable[Row], setting: Setting) -> Iterable[Moment]:
    for row in rows:
        time = row.get("Timestamp")
        if isinstance(time, int):
            op_type, op_name = str(row.get("Op Type")), str(row.get("Op Name"))
            what = ("row", op_type, op_name, row.get("IO"), row.get("Slot"))
            yield Moment(time, what, setting.place_of(op_type, op_name), setting.bearers_of(op_name))


def _owners(spans: Sequence[Span], setting: Setting) -> list[int]:
    """Return the execution that each run is of."""
    if setting.main is not None and setting.main.spans:
        return [timeline.nearest(setting.main.spans, span, setting.loaded) for span in spans]
    if setting.main is not None:  # nothing of the main graph was dumped: passes of one execution, or of two
        return [int(_was_loaded_between(spans[0], span, setting)) for span in spans]
    if setting.listed is not None and setting.listed < len(spans):
        least = 1 + _was_loaded_between(spans[0], spans[-1], setting)
        return _by_gaps(spans, max(setting.listed, least))
    return [*range(len(spans))]


def _was_loaded_between(first: Span, later: Span, setting: Setting) -> bool:
    return setting.loaded is not None and first[0] < setting.loaded <= later[0]


def _by_gaps(spans: Sequence[Span], count: int) -> list[int]:
    """Return the execution of each run where there were so many, with the longest pauses between them."""
    pauses = sorted(range(1, len(spans)), key=lambda n: spans[n - 1][1] - spans[n][0])
    borders = sorted(pauses[: count - 1])
    return [bisect_right(borders, number) for number in range(len(spans))]


def _joined(spans: Sequence[Span], whole: Sequence[bool], owners: Sequence[int]) -> Timeline:
    """Return when the executions took place to which runs belong."""
    found: dict[int, list[int]] = {}
    for number, owner in enumerate(owners):
        found.setdefault(owner, []).append(number)
    groups = [found[owner] for owner in sorted(found)]
    return Timeline(
        tuple((spans[group[0]][0], spans[group[-1]][1]) for group in groups),
        tuple(any(whole[number] for number in group) for group in groups),
    )


def _numbered(spans: Sequence[Span], owners: Sequence[int]) -> list[_Run]:
    counts: Counter[int] = Counter()
    runs = []
    for (start, _), owner in zip(spans, owners, strict=True):
        runs.append(_Run(start, owner, counts[owner]))
        counts[owner] += 1
    return runs


def _executions(
    records: Sequence[Record],
    rows: Sequence[Row],
    runs: Sequence[_Run],
    times: Timeline,
    bearers_of: BearersOf,
) -> tuple[Execution, ...]:
    starts = [run.start for run in runs]
    placed: dict[int, list[Record]] = {}
    told: dict[int, list[Row]] = {}
    seen: Counter[Hashable] = Counter()
    for record in records:
        run = runs[bisect_right(starts, record.timestamp) - 1]
        what = (run.start, _what(record.name))
        number = run.number * bearers_of(record.name.op_name) + seen[what]
        seen[what] += 1
        placed.setdefault(run.execution, []).append(_placed(record, run.execution, number))
    for row in rows:
        time = row.get("Timestamp")
        at = bisect_right(starts, time) - 1 if isinstance(time, int) else len(runs) - 1
        told.setdefault(runs[at].execution if runs else 0, []).append(row)
    return tuple(
        Execution(
            number,
            is_whole=number < len(times.whole) and times.whole[number],
            records=tuple(placed.get(number, ())),
            statistics=tuple(told.get(number, ())),
        )
        for number in sorted(placed.keys() | told.keys())
    )


def _placed(record: Record, execution: int, number: int) -> Record:
    if not (execution or number):
        return record
    return replace(record, execution=execution, pass_number=number)


def tell(path: str, count: int, taken: int, setting: Setting) -> None:
    """Say that a directory holds several executions and which one is taken; the same once for a graph."""
    if count > 1 and (count, taken) not in setting.told:
        setting.told.add((count, taken))
        _log.warning(
            "%s: holds files of %d executions (numbers 0-%d); the last whole one, %d, is taken",
            path,
            count,
            count - 1,
            taken,
        )
