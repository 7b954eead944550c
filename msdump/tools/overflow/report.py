"""Which operators overflowed: the records that a device leaves, joined to the operators' dump files.

A record tells the task and the stream of the operator; the dump file with both in its name and in
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

from collections.abc import Iterator
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
from msdump.tools.overflow.records import OverflowFile, OverflowUnit
from msdump.tools.return_codes import ReturnCode

_BAR: Final = "=" * 49


@dataclass(slots=True)
class OverflowReport:
    """What a search for overflows found.

    Attributes:
        blocks: A text for each record that could be read.
        errors: What is wrong with the others.
        code: Return code of the first error.
        found: Number of records that there are.
    """

    blocks: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    code: ReturnCode = ReturnCode.DONE
    record_count: int = 0

    def fail(self, code: ReturnCode, message: str) -> None:
        """Note an error."""
        self.errors.append(message)
        self.code = self.code or code


def analyse(records: list[OverflowFile], output: str, count: int = 0) -> OverflowReport:
    """Return a report of the oldest records; converted files go into a directory.

    Args:
        records: What ``overflow_records.find`` gave.
        output: Directory of the converted records and tensors.
        count: How many records, 0: all.
    """
    report, results, folder_of = OverflowReport(record_count=len(records)), _Results(output), cache(_folder)
    for record in records[: count or None]:
        try:
            block = _block(record, results, folder_of(str(Path(record.path).parent)))
        except ToolError as error:
            report.fail(ReturnCode(error.code), str(error))
        except (DumpReadError, FormatError) as error:
            report.fail(ReturnCode.PARSE, str(error))
        else:
            title = f"{_BAR}[{len(report.blocks) + 1}]={_BAR}"
            report.blocks.append("".join(f"{line}\n" for line in (title, *block)))
    for failure in results.failures:
        report.fail(*failure)
    return report


class _Results:
    """Converts files into a directory; those of the same name get directories of their own in it."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._taken: dict[str, list[str]] = {}
        self.failures: list[tuple[ReturnCode, str]] = []

    def place(self, path: str) -> str:
        """Return the path of a converted file below the directory, without what is added to its name."""
        name = Path(path).name
        owners = self._taken.setdefault(name, [])
        if path not in owners:
            owners.append(path)
        number = owners.index(path)
        return f"{number}/{name}" if number else name

    def convert(self, path: str) -> None:
        """Convert a file; what fails is noted."""
        directory = Path(self._output, self.place(path)).parent
        result = convert_file(Target(), Source(path, str(directory)))
        for failure in result.failures:
            self.failures.append((ReturnCode(failure.code), f"{path}: {failure.tensor}: {failure.message}"))


def _block(record: OverflowFile, results: _Results, folder: Folder | None) -> list[str]:
    faults = overflow_records.faults(record, record.told())
    lines = [f" {fault}" for fault in faults] + [f" [timestamp:{record.timestamp}]"]
    if not record.is_json:
        results.convert(record.path)
    runs = [] if folder is None else _runs(folder, faults[-1])
    if folder is None or not runs:
        return lines
    files = _told_of(runs, record.timestamp)
    if folder.kind is FolderKind.DUMPS:
        results.convert(files[-1].path)
    number = f", pass {files[-1].pass_number}" if len(runs) > 1 else ""
    head = f"[{files[-1].op_type}] {_full_name(folder, files[-1])}{number}"
    tensors = operands.read(folder, files)
    return [head, *lines, *(line for tensor in tensors for line in _tensor_lines(folder, results, tensor))]


def _folder(path: str) -> Folder | None:
    """Return what lies beside a record, None where that is nothing."""
    try:
        return dump_folder.read(path)
    except ToolError as error:
        if error.code == ReturnCode.FILE_NAME:
            return None
        raise


def _runs(folder: Folder, fault: OverflowUnit) -> list[tuple[NamedFile, ...]]:
    """Return the files of the operator that overflowed, for each of its passes; none where it has none."""
    fitting = sorted((file for file in folder.files if _fits(file, fault)), key=_age)
    passes: dict[int, list[NamedFile]] = {}
    for file in fitting:
        if (file.op_name, file.part) == (fitting[0].op_name, fitting[0].part):
            passes.setdefault(file.pass_number, []).append(file)
    return [tuple(files) for files in passes.values()]


def _told_of(runs: list[tuple[NamedFile, ...]], time: int) -> tuple[NamedFile, ...]:
    """Return the files of the pass that a record of some time tells of."""
    # A device tells of an overflow before it dumps the operator; where nothing came later, the nearest.
    return min(runs, key=lambda files: (files[-1].timestamp < time, abs(files[-1].timestamp - time)))


def _age(file: NamedFile) -> tuple[int, str]:
    return file.timestamp, file.name


def _fits(file: NamedFile, fault: OverflowUnit) -> bool:
    is_record = file.op_type == operator_names.OP_DEBUG.op_type
    return not is_record and (file.task_id, file.stream_id) == fault.task and _fits_part(file, fault)


def _fits_part(file: NamedFile, fault: OverflowUnit) -> bool:
    """Tell whether context and thread are those of a fault, where it tells them and the file has them."""
    wanted = [fault.fields.get(name, _NO_PART) for name in ("context_id", "thread_id")]
    return not file.part or all(
        one in {_NO_PART, other} for one, other in zip(wanted, file.part[1:], strict=False)
    )


_NO_PART: Final = 65535


def _full_name(folder: Folder, file: NamedFile) -> str:
    """Return the operator's name as the network has it, where the file tells it."""
    if folder.kind is not FolderKind.DUMPS:
        return file.op_name
    header, _ = dump_data.read_header(mapped.load(file.path), file.path)
    return header.op_name or file.op_name


def _tensor_lines(folder: Folder, results: _Results, tensor: DumpedOperand) -> Iterator[str]:
    if folder.kind is FolderKind.DUMPS:
        yield f" {results.place(tensor.path)}.{tensor.io}.{tensor.index}.npy"
    else:
        yield f" {Path(tensor.path).name}"
    try:
        yield f" -[Format: {tensor.format}] {_summary(tensor)}"
    except (DumpReadError, FormatError) as error:
        yield f" -[{error}]"


def _summary(tensor: DumpedOperand) -> str:
    raw = tensor.array
    array = dtypes.widen(raw, dtypes.from_numpy(raw.dtype))
    head = f"[Shape: {array.shape}] [Dtype: {array.dtype}]"
    if not array.size:
        return f"{head} [no elements]"
    with np.errstate(all="ignore"):
        return f"{head} [Max: {array.max()!s}] [Min: {array.min()!s}] [Mean: {array.mean()!s}]"
