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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.encode import dump_data
from msdump.errors import DumpReadError, FormatError, ToolError
from msdump.store import operator_names
from msdump.store.read import mapped
from msdump.tools.compare.pairing import dump_folder, operands
from msdump.tools.compare.pairing.dump_folder import Folder, FolderKind, NamedFile
from msdump.tools.compare.pairing.operands import DumpedOperand
from msdump.tools.convert.file import convert_file
from msdump.tools.convert.result import Source, Target
from msdump.tools.overflow import records as overflow_records
from msdump.tools.overflow.overflows import OperatorOverflow, TensorSummary
from msdump.tools.overflow.records import OverflowFile, OverflowUnit, Task
from msdump.tools.return_codes import ReturnCode


@dataclass(slots=True)
class OverflowReport:
    """The report on overflows.

    Attributes:
        overflows: What each record that could be read tells, oldest first.
        errors: Messages about the others, and about files that could not be converted.
        code: Return code of the first error.
        record_count: Number of records that there are.
    """

    overflows: list[OperatorOverflow] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    code: ReturnCode = ReturnCode.DONE
    record_count: int = 0

    @property
    def blocks(self) -> list[str]:
        """The text of each overflow."""
        return [overflow.text(number) for number, overflow in enumerate(self.overflows, 1)]

    def fail(self, code: ReturnCode, message: str) -> None:
        """Add an error."""
        self.errors.append(message)
        self.code = self.code or code


def analyse(records: list[OverflowFile], output: str, count: int = 0) -> OverflowReport:
    """Return a report on the oldest records; records and tensors are converted into a directory.

    Args:
        records: The records, from ``overflow_records.find``.
        output: Directory of the converted records and tensors.
        count: Number of records to report, 0: all.
    """
    # Many records lie in one directory, which is listed once.
    report, results, folder_of = OverflowReport(record_count=len(records)), _Results(output), cache(_listed)
    for record in records[: count or None]:
        try:
            overflow = _overflow(record, results, folder_of(str(Path(record.path).parent)))
        except ToolError as error:
            report.fail(ReturnCode(error.code), str(error))
        except (DumpReadError, FormatError) as error:
            report.fail(ReturnCode.PARSE, str(error))
        else:
            report.overflows.append(overflow)
    # A tensor that cannot be converted does not spoil the block of its operator.
    for failure in results.failures:
        report.fail(*failure)
    return report


class _Results:
    """Converts files into a directory; further files of the same name go into numbered directories in it."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._numbers: dict[str, dict[str, int]] = {}
        self.failures: list[tuple[ReturnCode, str]] = []

    def place(self, path: str) -> str:
        """Return the path of a converted file below the directory, without the suffix that is added to it."""
        name = Path(path).name
        numbers = self._numbers.setdefault(name, {})
        number = numbers.setdefault(path, len(numbers))
        return f"{number}/{name}" if number else name

    def convert(self, path: str) -> None:
        """Convert a file, and keep the failures."""
        directory = Path(self._output, self.place(path)).parent
        result = convert_file(Target(), Source(path, str(directory)))
        for failure in result.failures:
            self.failures.append((ReturnCode(failure.code), f"{path}: {failure.tensor}: {failure.message}"))


@dataclass(frozen=True, slots=True)
class _Listed:
    """The dump files beside a record.

    Attributes:
        folder: Their directory.
        by_task: Files of operators by task and stream, oldest first.
    """

    folder: Folder
    by_task: Mapping[Task, Sequence[NamedFile]]


def _overflow(record: OverflowFile, results: _Results, listed: _Listed | None) -> OperatorOverflow:
    faults = overflow_records.faults(record, record.as_json())
    if not record.is_json:  # a JSON form is what a conversion would write
        results.convert(record.path)
    runs = [] if listed is None else _runs(listed, faults[-1])
    if listed is None or not runs:
        return OperatorOverflow(faults, record.timestamp)
    folder = listed.folder
    # In a loop the operator left files of several passes.
    files = _files_of_record(runs, record.timestamp)
    if folder.kind is FolderKind.DUMPS:
        results.convert(files[-1].path)
    return OperatorOverflow(
        faults,
        record.timestamp,
        files[-1].op_type,
        _full_name(folder, files[-1]),
        files[-1].pass_number if len(runs) > 1 else None,
        tuple(_summary(folder, results, tensor) for tensor in operands.read(folder, files)),
    )


def _listed(path: str) -> _Listed | None:
    """Return the dump files beside a record, None where there are none."""
    try:
        folder = dump_folder.read(path)
    except ToolError as error:
        if error.code == ReturnCode.FILE_NAME:
            return None
        raise
    by_task: dict[Task, list[NamedFile]] = {}
    for file in sorted(folder.files, key=_age):
        if file.op_type != operator_names.OP_DEBUG.op_type:
            by_task.setdefault((file.task_id, file.stream_id), []).append(file)
    return _Listed(folder, by_task)


def _runs(listed: _Listed, fault: OverflowUnit) -> list[tuple[NamedFile, ...]]:
    """Return the files of each pass of the operator that overflowed; none where it was not dumped."""
    operator_files = [file for file in listed.by_task.get(fault.task, ()) if _fits_part(file, fault)]
    passes: dict[int, list[NamedFile]] = {}
    # Should several operators have this task and stream, the first that ran is meant.
    for file in operator_files:
        if (file.op_name, file.part) == (operator_files[0].op_name, operator_files[0].part):
            passes.setdefault(file.pass_number, []).append(file)
    return [tuple(files) for files in passes.values()]


def _files_of_record(runs: list[tuple[NamedFile, ...]], time: int) -> tuple[NamedFile, ...]:
    """Return the files of the pass that a record belongs to, by the record's time."""
    # A device tells of an overflow before it dumps the operator; where nothing came later, the nearest.
    return min(runs, key=lambda files: (files[-1].timestamp < time, abs(files[-1].timestamp - time)))


def _age(file: NamedFile) -> tuple[int, str]:
    return file.timestamp, file.name


def _fits_part(file: NamedFile, fault: OverflowUnit) -> bool:
    """Tell whether context and thread of a file, where it has some, are those of a fault."""
    fault_parts = [fault.fields.get(name, _NO_PART) for name in ("context_id", "thread_id")]
    return not file.part or all(
        fault_part in {_NO_PART, file_part}
        for fault_part, file_part in zip(fault_parts, file.part[1:], strict=False)
    )


_NO_PART: Final = 65535  # vendor: the context or thread of a task that has none


def _full_name(folder: Folder, file: NamedFile) -> str:
    """Return the operator's name as the network has it; .npy files know only the one in their name."""
    if folder.kind is not FolderKind.DUMPS:
        return file.op_name
    header, _ = dump_data.read_header(mapped.load(file.path), file.path)
    return header.op_name or file.op_name


def _summary(folder: Folder, results: _Results, tensor: DumpedOperand) -> TensorSummary:
    file = Path(tensor.path).name
    if folder.kind is FolderKind.DUMPS:
        file = f"{results.place(tensor.path)}.{tensor.io}.{tensor.index}.npy"
    try:
        # Widened, because numpy's mean of float16 overflows and ml_dtypes' types have no such sums.
        raw = tensor.array
        array = dtypes.widen(raw, dtypes.from_numpy(raw.dtype))
    except (DumpReadError, FormatError) as error:
        return TensorSummary(file, tensor.io, tensor.index, tensor.format, fault=str(error))
    dtype = str(array.dtype)
    return TensorSummary(
        file,
        tensor.io,
        tensor.index,
        tensor.format,
        array.shape,
        dtype,
        _extremes(array) if array.size else None,
    )


def _extremes(array: np.ndarray) -> tuple[np.generic, np.generic, np.generic]:
    with np.errstate(all="ignore"):
        return array.max(), array.min(), array.mean()
