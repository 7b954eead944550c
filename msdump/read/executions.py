"""Executions of a network with files in one directory, and the passes of loops within each.

A second program that dumps into the same path adds its files to the same directories. In MindSpore's
tree a directory belongs to one graph: the main graph's tensors come once in each execution, tensors of
a branch or a body once in each pass, and a pass belongs to the execution around its time. A
directory of a compiled graph (Ascend O2, GE, acl) holds one execution; there every operator counts
its own passes.

A graph runs its operators in a fixed order and each of them once: where a tensor comes again, a new run
has begun. A run that was broken off or that dumped other operators hides where the next one begins; the
order of the operators shows it, and the time at which the graph was loaded.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import attrgetter

from msdump.read.records import Record
from msdump.read.statistic_table import Row
from msdump.store import TensorName

Span = tuple[int, int]
"""First and last timestamp of a run."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A tensor of one run: its file, or its row of ``statistic.csv``.

    Attributes:
        time: Microseconds since the epoch.
        tensor: Identity of the tensor in the graph, equal in every run.
        place: Number of its operator in the graph's order, None if unknown.
        bearers: Number of the graph's operators with this name in files: a run has the tensor so often.
        record: The file, None for a row.
        row: Number of the row in the table, None for a file.
    """

    time: int
    tensor: Hashable
    place: int | None = None
    bearers: int = 1
    record: Record | None = None
    row: int | None = None


def ordinals(keys: Iterable[Hashable]) -> Iterator[int]:
    """Yield for each key how often it came before: the pass numbers of tensors in the order of time.

    >>> list(ordinals("abac"))
    [0, 0, 1, 0]
    """
    counts: Counter[Hashable] = Counter()
    for key in keys:
        yield counts[key]
        counts[key] += 1


def run_starts(moments: Sequence[Moment], loaded: int | None = None) -> list[int]:
    """Return the index of the first moment of each run, in order; empty without moments.

    >>> order = "ABC"
    >>> moments = [Moment(time, tensor, order.index(tensor)) for time, tensor in enumerate("ABCAB")]
    >>> run_starts(moments)
    [0, 3]

    Moments are sorted by time; moments before ``loaded``, when a program last loaded the graph (microseconds
    since the epoch), are of an earlier program.
    """
    repeats = _starts(moments, loaded, follows_order=False)
    # Operators that ran side by side are not in the list's order: the list is of no use then.
    drops = sum(_drop(before, after) > 0 for before, after in pairwise(moments))
    # with a reliable list, the order goes back only between runs, once for each
    return repeats if drops >= len(repeats) else _starts(moments, loaded, follows_order=True)


def _starts(moments: Sequence[Moment], loaded: int | None, *, follows_order: bool) -> list[int]:
    """Return where runs begin: at a load of the graph, or when a tensor comes more often than in one run.

    With ``follows_order`` a run with a repeated tensor begins at the largest drop in the operators'
    order since the tensor came before; else at the repeated tensor.
    """
    starts = [0] if moments else []
    indices: defaultdict[Hashable, list[int]] = defaultdict(list)
    index = 0
    while index < len(moments):
        moment, before = moments[index], indices[moments[index].tensor]
        if loaded is not None and index > starts[-1] and moments[index - 1].time < loaded <= moment.time:
            cut = index
        elif len(before) >= moment.bearers:
            cut = _largest_drop(moments, before[-moment.bearers], index) if follows_order else index
        else:
            before.append(index)
            index += 1
            continue
        starts.append(cut)
        # the moments from the cut up to here belong to the new run
        indices.clear()
        for number in range(cut, index):
            indices[moments[number].tensor].append(number)
    return starts


def _largest_drop(moments: Sequence[Moment], first: int, last: int) -> int:
    """Return the index of the moment with the largest step back in the graph's order, else ``last``."""
    return max(range(last, first, -1), key=lambda index: _drop(moments[index - 1], moments[index]))


def _drop(before: Moment, after: Moment) -> int:
    """Return how far the order goes back between two moments, 0 where it does not or is not known."""
    if before.place is None or after.place is None:
        return 0
    return max(0, before.place - after.place)


def nearest_span(candidates: Sequence[Span], span: Span, loaded: int | None = None) -> int:
    """Return the index of the candidate that overlaps a span, else of the one nearest in time.

    >>> nearest_span([(0, 9), (20, 29)], (12, 14))
    0

    A span before ``loaded``, when a program last loaded the graph, is never assigned to a candidate after
    that time.
    """
    indices: Sequence[int] = range(len(candidates))
    if loaded is not None:
        is_later = span[0] >= loaded
        indices = [index for index in indices if (candidates[index][0] >= loaded) == is_later] or indices
    return min(indices, key=lambda index: _gap(candidates[index], span))


def _gap(one: Span, other: Span) -> int:
    return max(0, one[0] - other[1], other[0] - one[1])


def whole_runs(moments: Sequence[Moment], starts: Sequence[int]) -> list[bool]:
    """Return for each run whether it is whole: it reached the last operator that any run reached.

    Without a known order of operators, a whole run ends with the last tensor of the longest run.
    """
    parts = _parts(moments, starts)
    if any(moment.place is None for moment in moments):
        last = max(parts, key=len, default=[Moment(0, None)])[-1].tensor
        return [any(moment.tensor == last for moment in part) for part in parts]
    reached = [max(moment.place or 0 for moment in part) for part in parts]
    return [place == max(reached) for place in reached]


def _parts(moments: Sequence[Moment], starts: Sequence[int]) -> list[Sequence[Moment]]:
    return [moments[start:end] for start, end in zip(starts, [*starts[1:], len(moments)], strict=False)]


_log = logging.getLogger("msdump.store")

PlaceOf = Callable[[str, str], int | None]
"""Gives the number of an operator in its graph's order, by op_type and op_name; None: unknown."""

BearersOf = Callable[[str], int]
"""Gives the number of a graph's operators that share an op_name in files, at least 1."""


@dataclass(frozen=True)
class Execution:
    """The tensors and rows of one execution of a network in a directory.

    Attributes:
        number: Its number in the directory, from 0, in the order of time.
        is_whole: Whether it reached the last operator that any execution reached; else it was broken off.
        records: Its tensors by timestamp.
        statistics: Its rows of ``statistic.csv``, in their order.
    """

    number: int
    is_whole: bool
    records: tuple[Record, ...] = field(repr=False)
    statistics: tuple[Row, ...] = field(repr=False)


@dataclass(frozen=True)
class GraphFacts:
    """Facts from other files of the dump about the graph of which the tensors lie in a directory.

    Attributes:
        place_of: Gives the place of an operator in the graph's order.
        bearers_of: Gives the number of operators that share a name of files: operators of one type in several
            scopes, where names have no scope (``classic``).
        loaded: When a program last loaded the graph, microseconds since the epoch; None: not known.
        main: For a branch or a body: when the main graph ran in the same iteration; else None.
        listed_runs: How often the list of iterations contains the iteration, if the graph may run several
            times in one execution (MindSpore's own conditions of loops); else None.
        is_older: Whether an earlier program than the last dumped the iteration, by the list of iterations.
        reported: Logged warnings: pairs (count of executions, execution read); None for an older program.
            Shared by all directories of a rank, so that each is logged once.
    """

    place_of: PlaceOf = lambda _type, _name: None
    bearers_of: BearersOf = lambda _name: 1
    loaded: int | None = None
    main: Timeline | None = None
    listed_runs: int | None = None
    is_older: bool = False
    reported: set[tuple[int, int] | None] = field(default_factory=set, compare=False)


@dataclass(frozen=True)
class Timeline:
    """When the executions in a directory took place."""

    spans: tuple[Span, ...]
    whole: tuple[bool, ...]

    @property
    def last_whole(self) -> int:
        """Number of the last whole execution, 0 if none is whole."""
        return max((number for number, is_whole in enumerate(self.whole) if is_whole), default=0)


Separated = tuple[Timeline, tuple[Execution, ...]]
"""When executions took place, and the executions with files or rows in one directory."""


def of_graph(records: Sequence[Record], rows: Sequence[Row], facts: GraphFacts) -> Separated:
    """Divide the tensors in a directory of MindSpore's tree, by timestamp, among executions and passes."""
    if not rows and _is_one_run(records, facts):
        once = Timeline(((records[0].timestamp, records[-1].timestamp),), (True,))
        return once, (Execution(0, is_whole=True, records=tuple(records), statistics=()),)
    # files and rows together: with saved_data "statistic" there are rows alone
    moments = sorted((*_of_records(records, facts), *_of_rows(rows, facts)), key=attrgetter("time"))
    # file and row of a tensor share a time: no run begins between the two
    times_of = [moment.time for moment in moments]
    starts = [bisect_left(times_of, times_of[start]) for start in run_starts(moments, facts.loaded)]
    starts = [*dict.fromkeys(starts)]
    parts = _parts(moments, starts)
    spans = [(part[0].time, part[-1].time) for part in parts]
    whole = whole_runs(moments, starts)
    owners = _execution_of_each(spans, facts)
    main = facts.main
    times = main if main is not None and main.spans else _joined(spans, whole, owners)
    records_of: defaultdict[int, list[Record]] = defaultdict(list)
    # a row without a time, of a foreign tool, is taken for the last run's
    owner_of = dict.fromkeys(range(len(rows)), owners[-1] if owners else 0)
    for part, owner, number in zip(parts, owners, ordinals(owners), strict=True):
        # operators that share a name come one after the other in a run: each counts as a pass
        for moment, ordinal in zip(part, ordinals(each.tensor for each in part), strict=True):
            if moment.row is not None:
                owner_of[moment.row] = owner
            elif moment.record is not None:
                pass_number = number * moment.bearers + ordinal
                records_of[owner].append(_placed(moment.record, owner, pass_number))
    rows_of: defaultdict[int, list[Row]] = defaultdict(list)
    for place, owner in owner_of.items():
        rows_of[owner].append(rows[place])
    return times, tuple(
        Execution(
            number,
            is_whole=number < len(times.whole) and times.whole[number],
            records=tuple(records_of[number]),
            statistics=tuple(rows_of[number]),
        )
        for number in sorted(records_of.keys() | rows_of.keys())
    )


def of_compiled(records: Sequence[Record], rows: Sequence[Row], number: int = 0) -> Separated:
    """Return the one execution in a directory of a compiled graph; operators count their passes."""
    passes = ordinals(_identity(record.name) for record in records)
    numbered = (
        # a record from an operator's file has the pass number of that file already
        _placed(record, number, record.pass_number or ordinal)
        for record, ordinal in zip(records, passes, strict=True)
    )
    only = Execution(number, is_whole=True, records=tuple(numbered), statistics=tuple(rows))
    return Timeline(((0, 0),), (True,)), (only,)


def _is_one_run(records: Sequence[Record], facts: GraphFacts) -> bool:
    """Return whether tensors are plainly of one run of a main graph: none of them comes twice.

    A fast test for most directories with 100,000 files, which saves looking up the place of each tensor in
    the graph.
    """
    if not records or facts.main is not None or facts.listed_runs == 0:
        return False
    if facts.loaded is not None and records[0].timestamp < facts.loaded <= records[-1].timestamp:
        return False
    return len({_identity(record.name) for record in records}) == len(records)


def _identity(name: TensorName) -> Hashable:
    """Return the parts of a name that are the same in every run: all but the timestamp."""
    return (name.op_type, name.op_name, name.task_id, name.stream_id, name.io, name.slot)


def _of_records(records: Iterable[Record], facts: GraphFacts) -> Iterator[Moment]:
    for record in records:
        op_name = record.name.op_name
        place, bearers = facts.place_of(record.op_type, op_name), facts.bearers_of(op_name)
        yield Moment(record.timestamp, _identity(record.name), place, bearers, record)


def _of_rows(rows: Iterable[Row], facts: GraphFacts) -> Iterator[Moment]:
    for number, row in enumerate(rows):
        time = row.get("Timestamp")
        if isinstance(time, int):
            op_type, op_name = str(row.get("Op Type")), str(row.get("Op Name"))
            # a tensor that is saved and measured has a file and a row: "row" keeps the two apart
            tensor = ("row", op_type, op_name, row.get("IO"), row.get("Slot"))
            place, bearers = facts.place_of(op_type, op_name), facts.bearers_of(op_name)
            yield Moment(time, tensor, place, bearers, row=number)


def _execution_of_each(spans: Sequence[Span], facts: GraphFacts) -> list[int]:
    if facts.main is not None and facts.main.spans:
        return [nearest_span(facts.main.spans, span, facts.loaded) for span in spans]
    if facts.main is not None:  # nothing of the main graph was dumped: a load begins a second execution
        return [int(_was_loaded_between(spans[0], span, facts)) for span in spans]
    if facts.listed_runs is not None and facts.listed_runs < len(spans):
        least = 1 + _was_loaded_between(spans[0], spans[-1], facts)
        return _by_gaps(spans, max(facts.listed_runs, least))
    return [*range(len(spans))]


def _was_loaded_between(first: Span, later: Span, facts: GraphFacts) -> bool:
    return facts.loaded is not None and first[0] < facts.loaded <= later[0]


def _by_gaps(spans: Sequence[Span], count: int) -> list[int]:
    """Assign each run to one of ``count`` executions, separated by the longest pauses between runs."""
    pauses = sorted(range(1, len(spans)), key=lambda number: spans[number - 1][1] - spans[number][0])
    borders = sorted(pauses[: count - 1])
    return [bisect_right(borders, number) for number in range(len(spans))]


def _joined(spans: Sequence[Span], whole: Sequence[bool], owners: Sequence[int]) -> Timeline:
    """Return when each execution took place: from the start of its first run to the end of its last one."""
    runs_of: dict[int, list[int]] = {}
    for number, owner in enumerate(owners):
        runs_of.setdefault(owner, []).append(number)
    groups = [runs_of[owner] for owner in sorted(runs_of)]
    return Timeline(
        tuple((spans[group[0]][0], spans[group[-1]][1]) for group in groups),
        tuple(any(whole[number] for number in group) for group in groups),
    )


def _placed(record: Record, execution: int, pass_number: int) -> Record:
    if not (execution or pass_number):  # the common case: the record has these numbers
        return record
    return replace(record, execution=execution, pass_number=pass_number)


def warn_of_older(path: str, facts: GraphFacts) -> None:
    """Log that an earlier program than the last one dumped a directory, only for the first such one."""
    if facts.is_older and None not in facts.reported:
        facts.reported.add(None)
        _log.warning(
            "%s: is of an earlier run; the last run did not dump this iteration, and possibly others", path
        )


def warn_of_several(path: str, count: int, taken: int, facts: GraphFacts) -> None:
    """Log that a directory holds several executions and which of them is read; each pair once a rank."""
    if count > 1 and (count, taken) not in facts.reported:
        facts.reported.add((count, taken))
        _log.warning(
            "%s: holds files of %d executions (numbers 0-%d); the last complete one, %d, is read",
            path,
            count,
            count - 1,
            taken,
        )
