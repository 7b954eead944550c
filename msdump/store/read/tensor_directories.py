"""One directory of tensors: its files, listed when they are first asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from msdump.errors import DumpReadError
from msdump.store import names, operator_names
from msdump.store.layouts import MAPPING, STATISTICS, Key, PathKind
from msdump.store.operator_names import OperatorFileKind, OperatorName
from msdump.store.read import captured_files, texts
from msdump.store.read.cells import Cell, Row
from msdump.store.read.executions import shared, timeline
from msdump.store.read.executions.shared import Execution, GraphFacts, SeparatedExecutions, Timeline
from msdump.store.read.graphs.operator_graph import OperatorGraph
from msdump.store.read.measured.records import without_file
from msdump.store.read.operator_files import OperatorFile
from msdump.store.read.records import Directory, Record
from msdump.store.write.standins import parse_mapping

FullName = Callable[[names.TensorName], str | None]
"""Gives the full scoped name of a tensor's operator where it is known."""


@dataclass(frozen=True)
class Overflow:
    """The record of an operator that overflowed.

    Attributes:
        name: The fields of the file's name.
        path: The file.
        told: The record's fields, nested as in its JSON form.
    """

    name: OperatorName
    path: str
    told: Any = field(repr=False, compare=False)


@dataclass(frozen=True)
class Iteration:
    """The tensors of one iteration, or the constants of a graph.

    In the trees of Ascend O2, GE and acl it is one execution of a model, or all operators that
    were called alone. In MindSpore's tree several executions may lie in one directory, where a second
    program dumped into the same path: ``records`` and ``statistics`` are those of one, ``executions`` has
    them all.

    Attributes:
        key: What its path says: rank, network and graph, or step, time, device and model; its number.
        path: Its directory.
        run: In the trees of compiled graphs the number of the run that wrote it, which is that of its
            execution.
        chosen: Number of the execution that is read, None: the last one that is whole.
    """

    key: Key
    path: str
    _full_name: FullName = field(repr=False, compare=False)
    _facts: Callable[[], GraphFacts] = field(default=GraphFacts, repr=False, compare=False)
    _graph: Callable[[], OperatorGraph | None] = field(default=lambda: None, repr=False, compare=False)
    run: int = field(default=0, repr=False, compare=False, kw_only=True)
    chosen: int | None = field(default=None, repr=False, compare=False, kw_only=True)

    @property
    def number(self) -> int:
        """Number of the iteration."""
        return self.key.iteration or 0

    @property
    def rank(self) -> int:
        """Number of the rank that dumped it; of the device, in trees of compiled graphs."""
        key = self.key
        return next((number for number in (key.rank, key.device) if number is not None), 0)

    @property
    def records(self) -> tuple[Record, ...]:
        """Its tensors by timestamp, that is, in execution order; of one execution.

        Raises:
            DumpReadError: The directory, its ``mapping.csv``, ``statistic.csv`` or an operator's file cannot
                be read.
        """
        return self._taken.records

    @cached_property
    def tensors(self) -> tuple[Record, ...]:
        """``records``, and those of which only a row of ``statistic.csv`` was saved, by timestamp."""
        taken = self._taken
        measured = tuple(without_file(taken.records, taken.statistics, self, self.path))
        return tuple(sorted((*taken.records, *measured), key=_order)) if measured else taken.records

    @property
    def statistics(self) -> tuple[Row, ...]:
        """Rows of ``statistic.csv``, cells by the titles of their columns; of one execution.

        Numbers are ``int`` or ``float``, digests and names text, what was not computed is None.

        Raises:
            DumpReadError: As in ``records``; a row does not fit the header.
        """
        return self._taken.statistics

    @cached_property
    def executions(self) -> tuple[Execution, ...]:
        """What each execution left here, by time; DumpReadError as in ``records``."""
        return self._separated.executions

    def execution(self, number: int | None = None) -> Execution:
        """Return the tensors and rows of an execution by its number; None: of the one that is read.

        A branch that an execution did not enter left none.

        Raises:
            DumpReadError: There was no such execution; or as in ``records``.
        """
        if number is None:
            return self._taken
        count = max(len(self._separated.timeline.spans), 1)
        if not 0 <= number - self.run < count:
            raise DumpReadError(
                self.path, f"no execution {number}: there are {count}, numbers from {self.run}"
            )
        return self._execution(number)

    @property
    def timeline(self) -> Timeline:
        """When the executions took place that left something here; DumpReadError as in ``records``."""
        return self._separated.timeline

    @cached_property
    def _taken(self) -> Execution:
        if self.is_compiled:
            return self._separated.executions[0]
        if self.chosen is not None:
            return self._execution(self.chosen)
        number = self._separated.timeline.last_whole
        shared.warn_of_several(self.path, len(self._separated.timeline.spans), number, self._facts())
        shared.warn_of_older(self.path, self._facts())
        return self._execution(number)

    def _execution(self, number: int) -> Execution:
        candidates = (each for each in self._separated.executions if each.number == number)
        return next(candidates, Execution(number, is_whole=False, records=(), statistics=()))

    @cached_property
    def file_executions(self) -> tuple[Execution, ...]:
        """What each execution left in files, by time, without ``statistic.csv``; DumpReadError as above."""
        return self._separate(()).executions

    @cached_property
    def _separated(self) -> SeparatedExecutions:
        return self._separate(self.rows)

    def _separate(self, rows: Sequence[Row]) -> SeparatedExecutions:
        records = [*self._files.records]
        for file in self.files:
            records += file.records
        records.sort(key=_order)
        if self.is_compiled:
            return shared.of_compiled(records, rows, self.run)
        return shared.of_graph(records, rows, self._facts())

    @property
    def is_compiled(self) -> bool:
        """Whether a compiled graph wrote it, which has a directory for each execution."""
        has_tasks = any(record.name.task_id for record in self._files.records)
        is_model = self.key.time is not None or self.key.kind is PathKind.CAPTURED_STEP
        return is_model or bool(self._files.operators) or has_tasks

    @property
    def tensor_files(self) -> tuple[Record, ...]:
        """Its files of one tensor each, of all executions, in no order; DumpReadError as above."""
        return self._files.records

    @property
    def named_files(self) -> Iterator[tuple[names.TensorName | OperatorName, str]]:
        """Names and paths of its files of tensors and of operators; DumpReadError as above."""
        yield from ((record.name, record.path) for record in self.tensor_files)
        yield from ((file.name, file.path) for file in self.files)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Its rows of ``statistic.csv``, of all executions; DumpReadError as for ``statistics``."""
        path = self._files.statistics
        return () if path is None else texts.read_statistics(path)

    @property
    def statistic_files(self) -> Mapping[OperatorName | None, str]:
        """Paths of ``statistic.csv``, under None, and of acl's files by operator; DumpReadError as above."""
        path = f"{self.path}/{STATISTICS}"
        if self.key.time is None and os.path.isfile(path):  # beside it, no operator has one of its own
            return {None: path}
        table = [] if self._files.statistics is None else [(None, self._files.statistics)]
        return dict((*table, *self._files.statistic_files.items()))

    @property
    def files(self) -> tuple[OperatorFile, ...]:
        """Operators with a file that holds all their tensors, by timestamp; DumpReadError as above."""
        return tuple(file for file in self._files.operators if not file.name.is_op_debug)

    @cached_property
    def overflows(self) -> tuple[Overflow, ...]:
        """The records of operators that overflowed, by timestamp.

        Raises:
            DumpReadError: The file of one cannot be read.
        """
        # an ``Opdebug`` file stands as a dump file or, where npy files are written, as JSON
        files = [file for file in self._files.operators if file.name.is_op_debug]
        overflows = [Overflow(file.name, file.path, file.overflow.as_dict()) for file in files]
        for name, path in self._files.overflows.items():
            overflows.append(Overflow(name, path, texts.read_json(path)))
        return tuple(sorted(overflows, key=lambda overflow: overflow.name.timestamp))

    @cached_property
    def operator_statistics(self) -> Mapping[OperatorName, tuple[Row, ...]]:
        """Rows of the csv files that stand in for operators' tensors (acl); DumpReadError as there."""
        return {name: texts.read_statistics(path) for name, path in self._files.statistic_files.items()}

    @cached_property
    def parameters(self) -> tuple[Record, ...]:
        """Weights and graph inputs among its tensors; DumpReadError as in ``records``."""
        return tuple(record for record in self.records if record.is_parameter)

    @cached_property
    def kernel_args(self) -> Mapping[tuple[str, str], Any]:
        """Arguments of operators by op_type and op_name.

        Raises:
            DumpReadError: One of the files is not JSON.
        """
        return {key: texts.read_json(path) for key, path in self._files.kernel_args.items()}

    @property
    def ignored(self) -> tuple[str, ...]:
        """Paths in its directory that belong to no dump."""
        if self.key.kind is PathKind.SINGLE:  # models have directories there
            return tuple(path for path in self._files.ignored if not Path(path).is_dir())
        return tuple(self._files.ignored)

    @property
    def operator_graph(self) -> OperatorGraph | None:
        """The operators of its graph, None where the dump does not tell them; may DumpReadError."""
        return self._graph()

    def tensors_of(self, full_name: str) -> Sequence[Record]:
        """Return the tensors of an operator or parameter; ``classic`` files have the last component alone."""
        by_name = self._tensors_by_name
        names_in_files = map(names.sanitize, (full_name, full_name.rpartition("/")[2]))
        return next((by_name[name] for name in names_in_files if name in by_name), ())

    @cached_property
    def _tensors_by_name(self) -> Mapping[str, list[Record]]:
        tensors: dict[str, list[Record]] = {}
        for record in self.tensors:
            tensors.setdefault(record.op_name, []).append(record)
        return tensors

    def full_name(self, name: names.TensorName) -> str | None:
        """Return the full scoped name of a tensor's operator, None where the dump does not tell it."""
        return self._full_name(name)

    def row_of(self, record: Record) -> Row | None:
        """Return the row of ``statistic.csv`` that measures one of its tensors, None where there is none."""
        rows = self._rows_by_tensor.get((record.op_type, record.op_name, record.io, record.slot), ())
        # writers other than msdump may measure a tensor at another moment than they save it
        same = (row for row in rows if row.get("Timestamp") == record.timestamp or len(rows) == 1)
        return next(same, None)

    @cached_property
    def _rows_by_tensor(self) -> Mapping[tuple[Cell, ...], list[Row]]:
        rows: dict[tuple[Cell, ...], list[Row]] = {}
        for row in self.rows:
            tensor = tuple(row.get(title) for title in ("Op Type", "Op Name", "IO", "Slot"))
            rows.setdefault(tensor, []).append(row)
        return rows

    @cached_property
    def _files(self) -> _Files:
        return _list(self.path, self)

    def __repr__(self) -> str:
        """Return where it stands."""
        key = self.key
        place = f"{key.net!r} graph {key.graph}" if key.time is None else f"{key.model!r} {key.model_id}"
        return f"<Iteration {self.number} of {place}: {self.path!r}>"


def _order(record: Record) -> tuple[int, str, int, str]:
    """Order tensors by time; those of one moment are of one operator, inputs first."""
    return (record.timestamp, record.io, record.slot, record.path)


@dataclass(slots=True)
class _Files:
    """The files of one directory by what they hold; ``ignored`` are paths that belong to no dump."""

    records: tuple[Record, ...] = ()
    operators: list[OperatorFile] = field(default_factory=list)
    overflows: dict[OperatorName, str] = field(default_factory=dict)
    statistic_files: dict[OperatorName, str] = field(default_factory=dict)
    statistics: str | None = None
    kernel_args: dict[tuple[str, str], str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)


def _list(folder: str, directory: Directory) -> _Files:
    files = _Files()
    others: list[str] = []
    records: list[Record] = []
    for name, path in _entries(folder, files):
        parsed = names.parse(name)
        if parsed is None:
            others.append(name)
        else:
            records.append(Record(parsed, path, directory))
    if directory.key.kind is PathKind.CAPTURED_STEP:
        captured = captured_files.tensor_names(others)
        records += [Record(name, f"{folder}/{file}", directory) for file, name in captured.items()]
        others = [name for name in others if name not in captured]
    records += _sort_out(folder, others, files, directory)
    files.records = tuple(records)
    files.operators = _with_passes(files.operators)
    return files


def _with_passes(operators: list[OperatorFile]) -> list[OperatorFile]:
    """Return the files of operators by timestamp, those of one operator numbered."""
    files = sorted(operators, key=lambda file: (file.name.timestamp, file.path))
    numbers = timeline.ordinals((replace(file.name, timestamp=0), file.side) for file in files)
    return [
        replace(file, pass_number=number) if number else file
        for file, number in zip(files, numbers, strict=True)
    ]


def _sort_out(folder: str, others: list[str], files: _Files, directory: Directory) -> list[Record]:
    """Return the tensors whose files have stand-in names; add every other file to ``files``."""
    # before the other names: any of them may be a stand-in
    mapping = parse_mapping(texts.read_bytes(f"{folder}/{MAPPING}")) if MAPPING in others else {}
    records = []
    for name in others:
        path, original = f"{folder}/{name}", mapping.get(name, name)
        parsed = names.parse(mapping.get(name, ""))
        args = operator_names.parse(original, OperatorFileKind.ARGUMENTS)
        if parsed is not None:
            records.append(Record(parsed, path, directory))
        elif args is not None:
            files.kernel_args[args.op_type, args.op_name] = path
        elif name == STATISTICS:
            files.statistics = path
        elif name != MAPPING and not _is_of_operator(original, path, files, directory):
            files.ignored.append(path)
    return records


def _is_of_operator(name: str, path: str, files: _Files, directory: Directory) -> bool:
    """Add a file of one operator (tensors, overflow, statistics) to ``files``; False for any other file."""
    operator = operator_names.parse(name) or operator_names.parse_exception(name)
    overflow = operator_names.parse(name, OperatorFileKind.OVERFLOW_JSON)
    measured = operator_names.parse(name, OperatorFileKind.STATISTICS)
    if operator is not None:
        files.operators.append(OperatorFile(operator, path, directory))
    elif overflow is not None:
        files.overflows[overflow] = path
    elif measured is not None:
        files.statistic_files[measured] = path
    else:
        return False
    return True


def _entries(folder: str, files: _Files) -> list[tuple[str, str]]:
    try:
        with os.scandir(folder) as entries:  # its entries know their type, without a call for each file
            listed = [(entry.name, entry.path, entry.is_file()) for entry in entries]
    except OSError as error:
        raise DumpReadError(folder, error.strerror or str(error)) from error
    files.ignored += [path for _, path, is_file in listed if not is_file]
    return [(name, path) for name, path, is_file in listed if is_file]
