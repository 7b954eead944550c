"""One directory of tensors: its files, listed on first access, and the executions that wrote them.

A directory of MindSpore's tree belongs to one graph, and holds an execution of each program that dumped into
the path. A directory of a compiled graph (Ascend O2, GE, acl) holds one execution; there every operator
counts its own passes. A pass is one repetition of a directory's graph: one in each execution of a main graph,
any number of a branch or loop.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from msdump.errors import DAMAGED, DumpReadError, cause_of, passing_over
from msdump.read import msprobe
from msdump.read.files import HALF_A_ROW, ends_in_half_a_row, read_bytes, read_json
from msdump.read.records import (
    Directory,
    MeasuredRecord,
    OperatorFile,
    Record,
    as_tensor_row,
    check_whole,
    identity,
    losses,
    of_rows,
    read_overflow,
)
from msdump.read.statistic_table import Row, read_whole_rows
from msdump.record import IO
from msdump.store import (
    MAPPING,
    STATISTICS,
    CapturedTensorName,
    OperatorFileKind,
    OperatorName,
    PathKind,
    TensorName,
    graph_names,
    names,
    operator_names,
)
from msdump.store.write import parse_mapping

_log = logging.getLogger("msdump.store")

_TIME: Final = "%Y%m%d%H%M%S%f"
_MICROSECONDS: Final = 1_000_000


def tensor_names(file_names: Iterable[str]) -> Mapping[str, TensorName]:
    """Return tensor names by file name for tensors that torch.compile captured; other files are left out.

    The operator type is the target of the node, ``aten.mm.default``, the operator the node, ``mm``. Tensors
    of a list count on: the slot is a tensor's number among all that the node reads or makes.

    >>> files = ["cat-aten.cat.default.INPUT.0.0.20240112093000000041.npy"]
    >>> files += ["cat-aten.cat.default.INPUT.0.1.20240112093000000042.npy"]
    >>> [(name.op_name, name.slot, name.timestamp) for name in tensor_names(files).values()]
    [('cat', 0, 1705051800000041), ('cat', 1, 1705051800000042)]
    """
    sides: defaultdict[tuple[str, IO], list[tuple[CapturedTensorName, str]]] = defaultdict(list)
    for file_name in file_names:
        captured = graph_names.parse_captured(file_name)
        if captured is not None and captured.time is not None:
            sides[captured.node, captured.io].append((captured, file_name))
    return {
        file_name: TensorName(
            captured.target, captured.node, _timestamp(captured.time or ""), captured.io, slot
        )
        for side in sides.values()
        for slot, (captured, file_name) in enumerate(sorted(side, key=lambda each: each[0].place))
    }


def _timestamp(time: str) -> int:
    try:
        moment = datetime.strptime(time, _TIME).replace(tzinfo=UTC)
    except ValueError:  # a name of digits that are no time
        return 0
    return int(moment.replace(microsecond=0).timestamp()) * _MICROSECONDS + moment.microsecond


Span = tuple[int, int]
"""First and last timestamp of a pass."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A tensor of one pass: its file, or its row of ``statistic.csv``."""

    time: int  # microseconds since the epoch
    tensor: Hashable  # identity of the tensor in the graph, equal in every pass
    place: int | None = None  # number of its operator in the graph's order, None if unknown
    bearers: int = 1  # number of the graph's operators of this name in files: a pass has the tensor so often
    record: Record | None = None  # the file, None for a row
    row: int | None = None  # number of the row in the table, None for a file


def ordinals(keys: Iterable[Hashable]) -> Iterator[int]:
    """Yield for each key how often it came before: the pass numbers of tensors in the order of time.

    >>> list(ordinals("abac"))
    [0, 0, 1, 0]
    """
    counts: Counter[Hashable] = Counter()
    for key in keys:
        yield counts[key]
        counts[key] += 1


def pass_starts(moments: Iterable[Moment], loaded: int | None = None) -> list[int]:
    """Return the index of the first moment of each pass, in order; empty without moments.

    A pass begins where a tensor comes again, or where the graph was loaded (microseconds since the epoch).

    >>> pass_starts([Moment(time, tensor) for time, tensor in enumerate("ABCAB")])
    [0, 3]
    """
    starts: list[int] = []
    counts: Counter[Hashable] = Counter()
    before = 0
    for index, moment in enumerate(moments):
        is_loaded = loaded is not None and before < loaded <= moment.time
        if not starts or is_loaded or counts[moment.tensor] >= moment.bearers:
            starts.append(index)
            counts.clear()
        counts[moment.tensor] += 1
        before = moment.time
    return starts


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
    gaps = {index: (candidates[index][0] - span[1], span[0] - candidates[index][1]) for index in indices}
    return min(gaps, key=lambda index: max(0, *gaps[index]))


def whole_passes(passes: Sequence[Sequence[Moment]]) -> list[bool]:
    """Return for each pass whether it is whole: it reached the last operator that any pass reached.

    Without a known order of operators, a whole pass ends with the last tensor of the longest pass.
    """
    if any(moment.place is None for moments in passes for moment in moments):
        last = max(passes, key=len)[-1].tensor
        return [any(moment.tensor == last for moment in moments) for moments in passes]
    reached = [max(moment.place or 0 for moment in moments) for moments in passes]
    return [place == max(reached) for place in reached]


@dataclass(frozen=True)
class Execution:
    """The tensors and rows of one execution of a network in a directory."""

    number: int  # its number in the directory, from 0, in the order of time
    is_whole: bool  # whether it reached the last operator that any execution reached; else it was broken off
    span: Span = (0, 0)  # of a branch or a body the main graph's
    records: tuple[Record, ...] = field(default=(), repr=False)  # its tensors by timestamp
    statistics: tuple[Row, ...] = field(
        default=(), repr=False
    )  # its rows of ``statistic.csv``, in their order


@dataclass(frozen=True)
class GraphFacts:
    """Facts from other files of the dump about the graph of which the tensors lie in a directory."""

    # gives the number of an operator in the graph's order, by op_type and op_name; None: unknown
    place_of: Callable[[str, str], int | None] = lambda _type, _name: None
    # gives the number of operators that share a name of files: operators of one type in several scopes,
    # where names have no scope (``classic``)
    bearers_of: Callable[[str], int] = lambda _name: 1
    # when a program last loaded the graph, microseconds since the epoch; None: not known
    loaded: int | None = None
    # for a branch or a body: the main graph's executions in the same iteration, without tensors; else None
    main: Sequence[Execution] | None = None
    # how often the list of iterations contains the iteration, if the graph may have several passes in one
    # execution (MindSpore's own conditions of loops); else None
    listed_passes: int | None = None
    # whether an earlier program than the last dumped the iteration, by the list of iterations
    is_older: bool = False
    # logged warnings: pairs (count of executions, execution read); None for an older program. Shared by all
    # directories of a rank, so that each is logged once
    reported: set[tuple[int, int] | None] = field(default_factory=set, compare=False)

    def was_loaded_between(self, time: int, later: int) -> bool:
        """Return whether a program loaded the graph between two times."""
        return self.loaded is not None and time < self.loaded <= later


def of_graph(records: Sequence[Record], rows: Sequence[Row], facts: GraphFacts) -> tuple[Execution, ...]:
    """Divide the tensors in a directory of MindSpore's tree, by timestamp, among executions and passes.

    A second program that dumps into the same path adds its files to the same directories. The main graph's
    tensors come once in each execution, tensors of a branch or a body once in each pass, and a pass belongs
    to the execution around its time.
    """
    # most directories, some of 100,000 files: no tensor comes twice
    if records and not rows and facts.main is None and facts.listed_passes != 0:
        span = records[0].timestamp, records[-1].timestamp
        are_of_one = len({_identity(record.name) for record in records}) == len(records)
        if are_of_one and not facts.was_loaded_between(*span):
            return (Execution(0, is_whole=True, span=span, records=(*records,)),)
    # files and rows together: with saved_data "statistic" there are rows alone
    moments: list[Moment] = []
    for record in records:
        place, bearers = facts.place_of(record.op_type, record.op_name), facts.bearers_of(record.op_name)
        moments.append(Moment(record.timestamp, _identity(record.name), place, bearers, record))
    for number, row in enumerate(rows):
        if isinstance(time := row.get("Timestamp"), int):
            op_type, op_name = str(row.get("Op Type")), str(row.get("Op Name"))
            place, bearers = facts.place_of(op_type, op_name), facts.bearers_of(op_name)
            # a tensor that is saved and measured has a file and a row: "row" keeps the two apart
            moments.append(Moment(time, ("row", *identity(row)), place, bearers, row=number))
    moments.sort(key=attrgetter("time"))
    # file and row of a tensor share a time: no pass begins between the two
    times_of = [moment.time for moment in moments]
    starts = [bisect_left(times_of, times_of[start]) for start in pass_starts(moments, facts.loaded)]
    ends = [*dict.fromkeys(starts), len(moments)]
    passes = [moments[start:end] for start, end in pairwise(ends)]
    spans = [(inside[0].time, inside[-1].time) for inside in passes]
    whole = whole_passes(passes)
    owners = _execution_of_each(spans, facts)
    executions = facts.main
    if not executions:  # from the start of an execution's first pass to the end of its last
        groups: defaultdict[int, list[int]] = defaultdict(list)
        for number, owner in enumerate(owners):
            groups[owner].append(number)
        executions = [
            Execution(owner, any(whole[each] for each in group), (spans[group[0]][0], spans[group[-1]][1]))
            for owner, group in sorted(groups.items())
        ] or [Execution(0, is_whole=False)]
    records_of: defaultdict[int, list[Record]] = defaultdict(list)
    # a row without a time, of a foreign tool, is taken for the last pass's
    owner_of = dict.fromkeys(range(len(rows)), owners[-1] if owners else 0)
    for inside, owner, number in zip(passes, owners, ordinals(owners), strict=True):
        # operators that share a name come one after the other in a pass: each counts as one
        for moment, ordinal in zip(inside, ordinals(each.tensor for each in inside), strict=True):
            if moment.row is not None:
                owner_of[moment.row] = owner
            elif moment.record is not None:
                pass_number = number * moment.bearers + ordinal
                records_of[owner].append(_placed(moment.record, owner, pass_number))
    rows_of: defaultdict[int, list[Row]] = defaultdict(list)
    for place, owner in owner_of.items():
        rows_of[owner].append(rows[place])
    return tuple(
        replace(each, records=tuple(records_of[each.number]), statistics=tuple(rows_of[each.number]))
        for each in executions
    )


def _identity(name: TensorName) -> Hashable:
    """Return the parts of a name that are the same in every pass: all but the timestamp."""
    return (name.op_type, name.op_name, name.task_id, name.stream_id, name.io, name.slot)


def _execution_of_each(spans: Sequence[Span], facts: GraphFacts) -> list[int]:
    """Return the number of the execution of each pass."""
    if facts.main:
        return [nearest_span([each.span for each in facts.main], span, facts.loaded) for span in spans]
    if facts.main is not None:  # nothing of the main graph was dumped: a load begins a second execution
        return [int(facts.was_loaded_between(spans[0][0], span[0])) for span in spans]
    if facts.listed_passes is not None and facts.listed_passes < len(spans):
        count = max(facts.listed_passes, 1 + facts.was_loaded_between(spans[0][0], spans[-1][0]))
        # the longest pauses between passes separate executions
        pauses = sorted(range(1, len(spans)), key=lambda number: spans[number - 1][1] - spans[number][0])
        borders = sorted(pauses[: count - 1])
        return [bisect_right(borders, number) for number in range(len(spans))]
    return [*range(len(spans))]


def _placed(record: Record, execution: int, pass_number: int) -> Record:
    if not (execution or pass_number):  # the common case: the record has these numbers
        return record
    return replace(record, execution=execution, pass_number=pass_number)


@dataclass(frozen=True, slots=True)
class DumpProblem:
    """A fault of a dump on disk."""

    path: str  # the file, or the directory of the missing tensors
    reason: str


@dataclass(frozen=True)
class Overflow:
    """The record of an operator that overflowed."""

    name: OperatorName
    path: str
    fields: Any = field(repr=False, compare=False)  # the fields, nested as in its JSON form


@dataclass(frozen=True)
class Iteration(Directory):
    """The tensors of one iteration, or the constants of a graph.

    In the trees of Ascend O2, GE and acl, an iteration is one execution of a model, or all single operators.
    In MindSpore's tree, a directory holds several executions if several programs dumped into one path:
    ``records`` and ``statistics`` are of one execution, ``executions`` has all.
    """

    _facts: Callable[[], GraphFacts] = field(default=GraphFacts, repr=False, compare=False)
    # number of the run that wrote the directory, in trees of compiled graphs; the only execution in the
    # directory has the same number
    run: int = field(default=0, repr=False, compare=False, kw_only=True)
    # number of the selected execution, None: the last complete one
    chosen: int | None = field(default=None, repr=False, compare=False, kw_only=True)

    @cached_property
    def facts(self) -> GraphFacts:
        """The facts that separate executions, from other files of the dump."""
        return self._facts()

    @property
    def step(self) -> int:
        """Number of the step in trees of compiled graphs, else number of the iteration."""
        return self.number if self.key.step is None else self.key.step

    @property
    def network(self) -> str | None:
        """Name of the network or model, "" or None for single operators."""
        return self.key.net if self.key.model is None else self.key.model

    @property
    def records(self) -> tuple[Record, ...]:
        """The tensors of the selected execution by timestamp, which is execution order.

        Raises:
            DumpReadError: The directory, its ``mapping.csv`` or an operator's file cannot be read.
        """
        return self._selected.records

    @cached_property
    def tensors(self) -> tuple[Record, ...]:
        """``records``, and tensors with only a row of ``statistic.csv``, by timestamp."""
        selected = self._selected
        measured = self.measured(selected)
        return tuple(sorted((*selected.records, *measured), key=_order)) if measured else selected.records

    def measured(self, execution: Execution) -> tuple[MeasuredRecord, ...]:
        """Return the tensors of an execution with only a row of ``statistic.csv``."""
        return tuple(of_rows(execution.statistics, self, execution.records))

    @property
    def measured_operators(self) -> tuple[MeasuredRecord, ...]:
        """Tensors with statistics in csv files of operators (acl), as ``statistics``."""
        tables = self.operator_statistics.items()
        return tuple(of_rows([as_tensor_row(name, row) for name, table in tables for row in table], self))

    @property
    def statistics(self) -> tuple[Row, ...]:
        """Rows of ``statistic.csv`` of the selected execution, with cells by column title.

        Numbers are ``int`` or ``float``, digests and names are strings, and missing statistics are None. A
        row that cannot be read, or a whole file, is left out and logged; ``problems`` has it.

        Raises:
            DumpReadError: As in ``records``.
        """
        return self._selected.statistics

    @property
    def executions(self) -> tuple[Execution, ...]:
        """The executions with files or rows in the directory, by time; DumpReadError as in ``records``."""
        return tuple(each for each in self.all_executions if each.records or each.statistics)

    @cached_property
    def all_executions(self) -> tuple[Execution, ...]:
        """As ``executions``, with executions in which a branch has no pass; at least one."""
        return self._separate(self.rows)

    @property
    def last_whole(self) -> int:
        """Number of the last whole execution, of the first where none is whole."""
        return max((each.number for each in self.all_executions if each.is_whole), default=self.run)

    def execution(self, number: int | None = None) -> Execution:
        """Return the tensors and rows of an execution by number; None: of the selected execution.

        A branch without a pass in the execution has no tensors and rows.

        Raises:
            DumpReadError: The execution is unknown, or as in ``records``.
        """
        if number is None:
            return self._selected
        for each in self.all_executions:
            if each.number == number:
                return each
        count = len(self.all_executions)
        raise DumpReadError(self.path, f"no execution {number}: there are {count}, numbers from {self.run}")

    @cached_property
    def _selected(self) -> Execution:
        if self.is_compiled:
            return self.all_executions[0]
        if self.chosen is not None:
            chosen = (each for each in self.all_executions if each.number == self.chosen)
            return next(chosen, Execution(self.chosen, is_whole=False))
        number, count = self.last_whole, len(self.all_executions)
        facts = self.facts
        if count > 1 and (count, number) not in facts.reported:
            facts.reported.add((count, number))
            _log.warning(
                "%s: holds files of %d executions (numbers 0-%d); the last complete one, %d, is read",
                self.path,
                count,
                count - 1,
                number,
            )
        if facts.is_older and None not in facts.reported:
            facts.reported.add(None)
            _log.warning(
                "%s: is of an earlier run; the last run did not dump this iteration, and possibly others",
                self.path,
            )
        return self.all_executions[number]

    @cached_property
    def file_executions(self) -> tuple[Execution, ...]:
        """The executions by tensor files alone, not by ``statistic.csv``; DumpReadError as in ``records``."""
        return tuple(each for each in self._separate(()) if each.records)

    def _separate(self, rows: Sequence[Row]) -> tuple[Execution, ...]:
        records = [*self._files.records]
        for file in self.files:
            records += file.records
        records.sort(key=_order)
        if not self.is_compiled:
            return of_graph(records, rows, self.facts)
        # every operator counts its passes; records of one file of an operator have its number already
        passes = zip(records, ordinals(_identity(record.name) for record in records), strict=True)
        numbered = (_placed(each, self.run, each.pass_number or ordinal) for each, ordinal in passes)
        return (Execution(self.run, is_whole=True, records=tuple(numbered), statistics=tuple(rows)),)

    @property
    def is_compiled(self) -> bool:
        """Whether a compiled graph wrote the directory, one for each execution."""
        has_tasks = any(record.name.task_id for record in self._files.records)
        is_model = self.key.time is not None or self.key.kind is PathKind.CAPTURED_STEP
        return is_model or bool(self._files.operators) or has_tasks

    @property
    def tensor_files(self) -> tuple[Record, ...]:
        """The files of single tensors of all executions, unordered; DumpReadError as in ``records``."""
        return self._files.records

    @property
    def named_files(self) -> Iterator[tuple[names.TensorName | OperatorName, str]]:
        """Names and paths of the files of tensors and operators; DumpReadError as in ``records``."""
        yield from ((record.name, record.path) for record in self.tensor_files)
        yield from ((file.name, file.path) for file in self.files)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The rows of ``statistic.csv`` of all executions; DumpReadError as in ``statistics``."""
        path = self._files.statistics
        rows = self._files.rows if path is None else _whole_rows(path)
        check_whole(self._files.records, {*map(identity, rows)}, self.path)
        return rows

    @property
    def statistic_files(self) -> Mapping[OperatorName | None, str]:
        """Paths of ``statistic.csv`` (key None) and of acl's csv files by operator; raises as ``records``."""
        path = f"{self.path}/{STATISTICS}"
        if self.key.time is None and os.path.isfile(path):  # then no operator has a csv file
            return {None: path}
        table = [] if self._files.statistics is None else [(None, self._files.statistics)]
        return dict((*table, *self._files.statistic_files.items()))

    @property
    def files(self) -> tuple[OperatorFile, ...]:
        """Operators with one file for all tensors, by timestamp; errors as in ``records``."""
        return tuple(file for file in self._files.operators if not file.name.is_op_debug)

    @cached_property
    def overflows(self) -> tuple[Overflow, ...]:
        """The records of operators that overflowed, by timestamp; DumpReadError if a file cannot be read."""
        # an ``Opdebug`` file stands as a dump file or, where npy files are written, as JSON
        named = [(file.name, file.path) for file in self._files.operators if file.name.is_op_debug]
        named += self._files.overflows.items()
        named.sort(key=lambda item: item[0].timestamp)
        return tuple(Overflow(name, path, read_overflow(path)) for name, path in named)

    @cached_property
    def operator_statistics(self) -> Mapping[OperatorName, tuple[Row, ...]]:
        """Rows of csv files that replace operators' tensors (acl), as ``statistics``."""
        return {name: _whole_rows(path) for name, path in self._files.statistic_files.items()}

    @cached_property
    def parameters(self) -> tuple[Record, ...]:
        """Weights and graph inputs among the tensors; DumpReadError as in ``records``."""
        return tuple(record for record in self.records if record.is_parameter)

    @cached_property
    def kernel_args(self) -> Mapping[tuple[str, str], Any]:
        """Arguments of operators by op_type and op_name; DumpReadError if one of the files is not JSON."""
        return {key: read_json(path) for key, path in self._files.kernel_args.items()}

    @property
    def ignored(self) -> tuple[str, ...]:
        """Paths in the directory that belong to no dump."""
        if self.key.kind is PathKind.SINGLE:  # directories in it belong to models
            return tuple(path for path in self._files.ignored if not Path(path).is_dir())
        return tuple(self._files.ignored)

    @property
    def problems(self) -> Iterator[DumpProblem]:
        """Unreadable files, tensors without a file or a row, and files that belong to no dump.

        Every file is opened. Large files are memory-mapped, so only headers and sizes are read.
        """
        yield from (DumpProblem(path, "belongs to no dump") for path in self.ignored)
        rows: list[Row] = []
        for path in self.statistic_files.values():
            whole, faults = read_whole_rows(path)
            rows += whole
            yield from (DumpProblem(path, str(fault)) for fault in faults)
            with passing_over(DumpReadError):  # one of the faults
                if ends_in_half_a_row(read_bytes(path)):
                    yield DumpProblem(path, HALF_A_ROW)
        lost = losses(self.tensor_files, {*map(identity, rows)})
        yield from (DumpProblem(self.path, loss) for loss in lost)
        holders: tuple[Record | OperatorFile, ...] = (*self.tensor_files, *self.files)
        for each in holders:
            try:
                _ = each.raw if isinstance(each, Record) else each.records
            except DumpReadError as error:
                yield DumpProblem(error.path, str(error))

    @cached_property
    def _files(self) -> _Files:
        return _list_files(self)

    def __repr__(self) -> str:
        """Return number, network or model, and path."""
        key = self.key
        place = f"{key.net!r} graph {key.graph}" if key.time is None else f"{key.model!r} {key.model_id}"
        return f"<Iteration {self.number} of {place}: {self.path!r}>"


def _whole_rows(path: str) -> tuple[Row, ...]:
    rows, faults = read_whole_rows(path)
    for fault in faults:
        _log.log(DAMAGED, "%s; left out", fault)
    return rows


def _order(record: Record) -> tuple[int, str, int, str]:
    """Order tensors by time; tensors of one moment are of one operator, inputs first."""
    name = record.name
    return (name.timestamp, name.io, name.slot, record.path)


@dataclass(slots=True)
class _Files:
    """The files of one directory by their contents; ``ignored`` are paths that belong to no dump."""

    records: tuple[Record, ...] = ()
    operators: list[OperatorFile] = field(default_factory=list)
    overflows: dict[OperatorName, str] = field(default_factory=dict)
    statistic_files: dict[OperatorName, str] = field(default_factory=dict)
    statistics: str | None = None
    rows: tuple[Row, ...] = ()
    kernel_args: dict[tuple[str, str], str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)


def _list_files(directory: Iteration) -> _Files:
    folder = directory.path
    if msprobe.is_process(folder):
        tensors, rows = msprobe.list_tensors(directory)
        return _Files(tensors, rows=rows)
    try:
        with os.scandir(folder) as entries:  # its entries know their type, without a call for each file
            listed = [(entry.name, entry.path, entry.is_file()) for entry in entries]
    except OSError as error:
        raise DumpReadError(folder, cause_of(error)) from error
    files = _Files(ignored=[path for _, path, is_file in listed if not is_file])
    others: list[str] = []
    records: list[Record] = []
    for name, path, is_file in listed:
        parsed = names.parse(name) if is_file else None
        if parsed is not None:
            records.append(Record(parsed, path, directory))
        elif is_file:
            others.append(name)
    if directory.key.kind is PathKind.CAPTURED_STEP:
        captured = tensor_names(others)
        records += [Record(name, f"{folder}/{file}", directory) for file, name in captured.items()]
        others = [name for name in others if name not in captured]
    # read first: any other file name may be a stand-in
    mapping = parse_mapping(read_bytes(f"{folder}/{MAPPING}")) if MAPPING in others else {}
    for name in others:
        path, parsed = f"{folder}/{name}", names.parse(mapping.get(name, ""))
        if parsed is not None:
            records.append(Record(parsed, path, directory))
        elif name == STATISTICS:
            files.statistics = path
        elif name != MAPPING and not _add_operator_file(mapping.get(name, name), path, files, directory):
            files.ignored.append(path)
    files.records = tuple(records)
    files.operators.sort(key=lambda file: (file.name.timestamp, file.path))
    numbers = ordinals((replace(file.name, timestamp=0), file.side) for file in files.operators)
    files.operators = [
        replace(file, pass_number=number) if number else file
        for file, number in zip(files.operators, numbers, strict=True)
    ]
    return files


def _add_operator_file(name: str, path: str, files: _Files, directory: Iteration) -> bool:
    """Add a file of one operator (arguments, tensors, ...) to ``files``; False for any other file."""
    args = operator_names.parse(name, OperatorFileKind.ARGUMENTS)
    operator = operator_names.parse(name) or operator_names.parse_exception(name)
    overflow = operator_names.parse(name, OperatorFileKind.OVERFLOW_JSON)
    measured = operator_names.parse(name, OperatorFileKind.STATISTICS)
    if args is not None:
        files.kernel_args[args.op_type, args.op_name] = path
    elif operator is not None:
        files.operators.append(OperatorFile(operator, path, directory))
    elif overflow is not None:
        files.overflows[overflow] = path
    elif measured is not None:
        files.statistic_files[measured] = path
    else:
        return False
    return True
