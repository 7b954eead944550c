"""The report on operators that overflowed: a device's records, joined to the operators' dump files.

A record holds the task and the stream of the operator; the dump file with both in its name and in
the same directory is the operator's. One block for each record, oldest first:

    =================================================[1]==================================================
    [Mul] Default/Mul-op9
     [AIC][TaskId:9][StreamId:2][Status:2048]
     [timestamp:1612439563338030]
     Mul.Default_Mul-op9.9.2.1612439563338032.output.0.npy
     -[Format: ND] [Shape: (1, 3)] [Dtype: float16] [Max: inf] [Min: 1.0] [Mean: inf]

Where a loop left several files of an operator, a record belongs to the one that was written after it,
and the name is followed by the number of the pass: ``[Mul] Default/Mul-op9, pass 2``.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import numpy as np

from msdump import dtypes, reading
from msdump.convert import Source, Target, convert_file
from msdump.encode import Unit
from msdump.errors import DumpReadError, FormatError, ToolError
from msdump.read import (
    OperatorRecord,
    Overflow,
    Record,
    TensorlessFile,
    parse_file_name,
    read_folder,
    read_overflow,
)
from msdump.record import IO
from msdump.return_codes import ReturnCode
from msdump.statistics import StatisticNeed, is_measurable, measure
from msdump.store import SUFFIX, OperatorName, operator_names

Task = tuple[int | None, int | None]
"""Number of a task, and of its stream."""

_TASK: Final = ("task_id", "stream_id")
_UNITS: Final = frozenset(unit.name for unit in Unit)


@dataclass(frozen=True, slots=True)
class OverflowUnit:
    """A unit of a device that reports an overflow.

    Attributes:
        unit: AIC, AIV, AICPU or SDMA; the name of a section, "AI Core", on older devices.
        fields: Fields of the record about this unit: ``task_id``, ``stream_id``, ``status``, ...
    """

    unit: str
    fields: Mapping[str, Any]

    @property
    def task(self) -> Task:
        """Task and stream of the operator; None in place of anything but numbers."""
        task, stream = (self.fields.get(name) for name in _TASK)
        return task if isinstance(task, int) else None, stream if isinstance(stream, int) else None

    def __str__(self) -> str:
        """Return the line of a report."""
        task, stream = (self.fields.get(name) for name in _TASK)
        return f"[{self.unit}][TaskId:{task}][StreamId:{stream}][Status:{self.fields.get('status')}]"


def overflowed_tasks(overflows: Iterable[Overflow]) -> Counter[Task]:
    """Return the number of overflow records of each task, without records that name no unit."""
    tasks: Counter[Task] = Counter()
    for overflow in overflows:
        with contextlib.suppress(ToolError):
            tasks.update(unit.task for unit in reporting_units(overflow.path, overflow.fields))
    return tasks


RecordFile = tuple[str, OperatorName]
"""Path of an overflow record, and the fields of its name."""


def find(directory: str) -> list[RecordFile]:
    """Return the files of records in a directory and everything below, oldest first."""
    if not os.path.isdir(directory):
        raise ToolError(ReturnCode.PATH, f"{directory}: no such directory")

    def refuse(error: OSError) -> None:
        raise ToolError(ReturnCode.PATH, f"{error.filename}: {error.strerror or error}") from error

    found: list[RecordFile] = []
    for folder, _, files in reading.walk(directory, refuse):
        records: dict[OperatorName, RecordFile] = {}
        # JSON forms first, so that the binary record of the same name replaces its JSON form
        for file in sorted(files, key=lambda name: not name.endswith(operator_names.OVERFLOW_JSON)):
            _, name = parse_file_name(file.removesuffix(operator_names.OVERFLOW_JSON)) or (None, None)
            if isinstance(name, OperatorName) and name.is_op_debug:
                records[name] = f"{folder}/{file}", name
        found += records.values()
    return sorted(found, key=lambda record: (record[1].timestamp, record[0]))


def reporting_units(path: str, record_json: Mapping[str, Any]) -> list[OverflowUnit]:
    """Return the units of a device that report an overflow in a record, given as its JSON form.

    >>> fields = {"task_id": 9, "stream_id": 2, "status": 2048}
    >>> print(*reporting_units("", {"AI Core": fields, "L2 Atomic Add": {"status": 0}}))
    [AI Core][TaskId:9][StreamId:2][Status:2048]
    """
    # vendor: records of older devices have no magic number but a section for each unit.
    if "magic" not in record_json:
        units = [
            OverflowUnit(name, fields) for name, fields in record_json.items() if isinstance(fields, dict)
        ]
        reporting = [unit for unit in units if unit.fields.get("status")]
        if not reporting:
            raise ToolError(ReturnCode.OVERFLOW_TYPE, f"{path}: no unit has a status other than 0")
        return reporting
    details = record_json.get("acc_list")
    unit = details.get("acc_type") if isinstance(details, dict) else None
    fields = details.get("data") if isinstance(details, dict) else None
    if unit not in _UNITS or not isinstance(fields, dict):
        raise ToolError(
            ReturnCode.OVERFLOW_TYPE, f"{path}: unit {unit!r}; there are {', '.join(sorted(_UNITS))}"
        )
    # vendor: in records of version 1 the status of AIC and AIV is a list of four numbers.
    if not np.any(fields.get("status", 0)):
        raise ToolError(ReturnCode.OVERFLOW_STATUS, f"{path}: the status of {unit} is 0: no overflow")
    return [OverflowUnit(unit, fields)]


_BAR: Final = "=" * 49


@dataclass(frozen=True, slots=True)
class TensorSummary:
    """A tensor of an operator that overflowed.

    Attributes:
        file: The file of its elements, in the directory of results.
        format: Memory format.
        shape: Shape in that format.
        dtype: Element type of the file, "" where it cannot be read.
        max: The largest element, NaN where one is NaN; None without real elements.
        min: The smallest element, NaN where one is NaN; None without real elements.
        mean: The mean of the elements; None without real elements.
        fault: Why its elements cannot be read, "" where they can.
    """

    file: str
    io: IO
    slot: int
    format: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    max: float | None = None
    min: float | None = None
    mean: float | None = None
    fault: str = ""

    @property
    def tensor(self) -> str:
        """Which input or output, "output:0"."""
        return f"{self.io}:{self.slot}"

    def lines(self) -> Iterator[str]:
        """Yield its lines of the report; numbers as the file's element type shows them."""
        yield f" {self.file}"
        if self.fault:
            yield f" -[{self.fault}]"
            return
        head = f"[Format: {self.format}] [Shape: {self.shape}] [Dtype: {self.dtype}]"
        if self.max is None:
            yield f" -{head} [no elements]"
            return
        kind = np.dtype(self.dtype)
        high, low = (kind.type(each) for each in (self.max, self.min))
        mean = (kind.type if kind.kind == "f" else np.float64)(self.mean)
        yield f" -{head} [Max: {high!s}] [Min: {low!s}] [Mean: {mean!s}]"


@dataclass(frozen=True, slots=True)
class OperatorOverflow:
    """An overflow, and the operator that it is of.

    Attributes:
        units: The units of the device that report it.
        timestamp: When, in microseconds since the epoch.
        op_type: Type of the operator, "" where it was not dumped.
        name: Its full name, "" where it was not dumped.
        pass_number: Number of its pass of a loop, None where it ran once or was not dumped.
        tensors: Its tensors, inputs first.
    """

    units: Sequence[OverflowUnit]
    timestamp: int
    op_type: str = ""
    name: str = ""
    pass_number: int | None = None
    tensors: tuple[TensorSummary, ...] = ()

    def text(self, number: int) -> str:
        """Return its block of the report, given its number there, from 1."""
        lines = [f"{_BAR}[{number}]={_BAR}"]
        if self.name:
            of_pass = "" if self.pass_number is None else f", pass {self.pass_number}"
            lines.append(f"[{self.op_type}] {self.name}{of_pass}")
        lines += (f" {unit}" for unit in self.units)
        lines.append(f" [timestamp:{self.timestamp}]")
        lines += (line for tensor in self.tensors for line in tensor.lines())
        return "".join(f"{line}\n" for line in lines)


@dataclass(slots=True)
class OverflowReport:
    """The operators of a dump that overflowed.

    Attributes:
        overflows: The overflow of each record that could be read, oldest first.
        errors: Messages about the others, and about files that could not be converted.
        record_count: Number of records of overflows in the directory and below.
        summary: File of the summary; None where there are no records.
    """

    overflows: list[OperatorOverflow] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    record_count: int = 0
    summary: str | None = None

    @property
    def blocks(self) -> list[str]:
        """The text of each overflow."""
        return [overflow.text(number) for number, overflow in enumerate(self.overflows, 1)]


def analyse(records: list[RecordFile], output: str, count: int = 0) -> OverflowReport:
    """Return a report on the oldest ``count`` records, 0: all; files are converted into ``output``."""
    # Records often share a directory, so each directory is listed only once (``cache``).
    report, results, folder_of = OverflowReport(record_count=len(records)), _Results(output), cache(_beside)
    for record in records[: count or None]:
        try:
            overflow = _overflow(record, results, folder_of(str(Path(record[0]).parent)))
        except (DumpReadError, FormatError, ToolError) as error:
            report.errors.append(str(error))
        else:
            report.overflows.append(overflow)
    # A tensor that cannot be converted does not spoil the block of its operator.
    report.errors += results.failures
    return report


class _Results:
    """Converts files into a directory; further files of the same name go into numbered directories in it."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._numbers: dict[str, dict[str, int]] = {}
        self.failures: list[str] = []

    def place(self, path: str) -> str:
        """Return the path of a converted file below the directory, without the suffix that is added to it."""
        name = Path(path).name
        numbers = self._numbers.setdefault(name, {})
        number = numbers.setdefault(path, len(numbers))
        return f"{number}/{name}" if number else name

    def convert(self, path: str) -> None:
        directory = Path(self._output, self.place(path)).parent
        result = convert_file(Target(), Source(path, str(directory)))
        for failure in result.failures:
            self.failures.append(f"{path}: {failure.tensor}: {failure.message}")


_Beside = Mapping[Task, Sequence[tuple[tuple[int, ...], Record]]]
"""The tensors in the directory of a record by task, oldest first; each with the FFTS+ part of its file."""


def _overflow(record: RecordFile, results: _Results, beside: _Beside) -> OperatorOverflow:
    path, time = record[0], record[1].timestamp
    units = reporting_units(path, read_overflow(path))
    if not path.endswith(operator_names.OVERFLOW_JSON):  # else it is in JSON already
        results.convert(path)
    numbers = [units[-1].fields.get(name, _NO_PART) for name in ("context_id", "thread_id")]
    # If several operators have this task and stream, the first one that ran is taken.
    operators: dict[tuple[object, ...], list[Record]] = {}
    for part, each in beside.get(units[-1].task, ()):
        # context and thread are the overflow's, or stand for none
        if not part or all(number in {_NO_PART, own} for number, own in zip(numbers, part[1:], strict=False)):
            operators.setdefault((each.op_name, part), []).append(each)
    passes: dict[int, list[Record]] = {}
    for each in next(iter(operators.values()), ()):
        passes.setdefault(each.pass_number, []).append(each)
    if not passes:
        return OperatorOverflow(units, time)
    # In a loop the operator left files of several passes. A device records an overflow before it dumps the
    # operator: take the nearest later files, else the nearest earlier ones.
    tensors = min(
        passes.values(), key=lambda each: (each[-1].timestamp < time, abs(each[-1].timestamp - time))
    )
    last = tensors[-1]
    if not last.path.endswith(SUFFIX):
        results.convert(last.path)
    if isinstance(last, TensorlessFile) and last.fault:
        raise DumpReadError(last.path, last.fault)
    return OperatorOverflow(
        units,
        time,
        last.op_type,
        (last.full_name if isinstance(last, OperatorRecord) else None) or last.op_name,
        last.pass_number if len(passes) > 1 else None,
        tuple(
            _summary(results, each)
            for each in sorted(tensors, key=lambda each: (each.io, each.slot))
            if not isinstance(each, TensorlessFile)
        ),
    )


def _beside(path: str) -> _Beside:
    try:
        tensors = sorted(read_folder(path).tensors, key=attrgetter("timestamp", "path"))
    except ToolError as error:
        if error.code == ReturnCode.FILE_NAME:
            return {}
        raise
    parts = {file.path: file.name.suffix for file in tensors[0].directory.files}
    by_task: dict[Task, list[tuple[tuple[int, ...], Record]]] = {}
    for each in tensors:
        if each.op_type != operator_names.OP_DEBUG.op_type:
            part = parts.get(each.path, ())
            by_task.setdefault((each.name.task_id, each.name.stream_id), []).append((part, each))
    return by_task


_NO_PART: Final = 65535  # vendor: number that stands for no context or no thread


def _summary(results: _Results, tensor: Record) -> TensorSummary:
    file = Path(tensor.path).name
    if isinstance(tensor, OperatorRecord):
        file = f"{results.place(tensor.path)}.{tensor.io}.{tensor.slot}.npy"
    place = file, tensor.io, tensor.slot, tensor.format
    try:
        array = tensor.elements
        dtype = dtypes.from_numpy(array.dtype)
    except (DumpReadError, FormatError) as error:
        return TensorSummary(*place, fault=str(error))
    form = array.shape, str(dtypes.widen(array.reshape(-1)[:0], dtype).dtype)
    if not array.size or not is_measurable(dtype):
        return TensorSummary(*place, *form)
    totals = measure(array, dtype, StatisticNeed(extremes=True, total=True))
    return TensorSummary(*place, *form, totals.high, totals.low, totals.mean)
