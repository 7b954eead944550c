"""Where two dumps of a network part: every tensor against its counterpart, in the order of execution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from msdump import dtypes
from msdump.errors import DumpReadError, FormatError, ToolError
from msdump.record import IO
from msdump.tools import parallel
from msdump.tools.compare.cann import two_files as file_compare
from msdump.tools.compare.pairing import counterparts, operands
from msdump.tools.compare.pairing.dump_folder import Folder, FolderKind, NamedFile
from msdump.tools.compare.pairing.operands import DumpedOperand
from msdump.tools.compare.verdict import agreement
from msdump.tools.compare.verdict.limits import Limits
from msdump.tools.compare.verdict.matching import OperatorExecution, Place
from msdump.tools.compare.verdict.verdicts import Compared, Judge, OperatorResult, TensorResult, Verdict
from msdump.tools.return_codes import ReturnCode
from msdump.tools.scores import algorithms


def results(
    dumped: Folder, golden: Folder, executions: Sequence[OperatorExecution], limits: Limits, *, jobs: int = 0
) -> Iterator[OperatorResult]:
    """Yield what is said of executions of operators, in their order.

    Args:
        dumped: The directory that is examined.
        golden: The directory that it is compared with.
        executions: What ``matching.match`` gave.
        limits: What counts as agreement.
        jobs: Number of processes, 0: one for each core.
    """
    work = partial(_compared, replace(dumped, operators={}), replace(golden, operators={}))
    amount = sum(Path(file.path).stat().st_size for side in (dumped, golden) for file in side.files)
    judge = Judge(limits)
    found = parallel.each(work, executions, amount=amount, jobs=jobs)
    for execution, tensors in zip(executions, found, strict=True):
        last = execution.files[-1]
        yield OperatorResult(
            last.op_name, last.op_type, judge.results(tensors), execution.number, execution.replaces
        )


def files(dumped: str, golden: str, limits: Limits) -> TensorResult:
    """Return what is said of the tensors in two .npy files.

    Args:
        dumped: The file that is examined.
        golden: The file that it is compared with.
        limits: What counts as agreement.

    Raises:
        ToolError: A file is missing or is no .npy file.
    """
    ours, theirs = file_compare.read(dumped), file_compare.read(golden)
    dumped_dtype, golden_dtype = (dtypes.from_numpy(array.dtype).name for array in (ours, theirs))
    found = Compared(IO.OUTPUT, 0, ours.shape, dumped_dtype, golden_dtype)
    if ours.shape != theirs.shape:
        found = replace(found, fault=Verdict.FAILED, note=f"shape {ours.shape} beside {theirs.shape}")
    else:
        found = _measured(found, ours, theirs)
    return Judge(limits).results((found,))[0]


def _compared(dumped: Folder, golden: Folder, execution: OperatorExecution) -> tuple[Compared, ...]:
    """Return what is found of an execution's tensors; runs in a process of its own."""
    places = execution.counterparts
    found: list[Compared] = []
    for files in _separate(dumped, execution.files):
        try:
            tensors = operands.read(dumped, files)
        except DumpReadError as error:
            file = files[-1]
            found.append(Compared(file.io or IO.OUTPUT, file.slot, fault=Verdict.UNREADABLE, note=str(error)))
            continue
        found += (_pair(each, golden, places.get((each.io, each.index)), execution) for each in tensors)
    found.sort(key=lambda each: (each.io, each.slot))
    return tuple(found) or (Compared(IO.OUTPUT, 0, fault=Verdict.ALONE, note="no tensors"),)


def _separate(folder: Folder, files: tuple[NamedFile, ...]) -> Iterator[tuple[NamedFile, ...]]:
    """Yield files that are read at once; of those with one tensor each a bad one must not hide the others."""
    if folder.kind is FolderKind.DUMPS:
        yield files
    else:
        yield from ((file,) for file in files)


def _pair(
    dumped: DumpedOperand, folder: Folder, place: Place | None, execution: OperatorExecution
) -> Compared:
    plain = Compared(dumped.io, dumped.index, dumped.host_shape or dumped.shape, dumped.dtype)
    if place is None:
        return replace(plain, fault=Verdict.ALONE)
    try:
        golden = _golden(folder, place)
        ours, theirs = _in_one_layout(dumped, golden, folder)
        return _measured(replace(plain, golden_dtype=golden.dtype), ours, theirs)
    except DumpReadError as error:
        return replace(plain, fault=Verdict.UNREADABLE, note=str(error))
    except (FormatError, ToolError) as error:
        if execution.replaces and getattr(error, "code", None) == ReturnCode.SHAPE:
            return replace(plain, fault=Verdict.ALONE)  # what stands in its place does something else
        return replace(plain, fault=Verdict.FAILED, note=str(error))


def _golden(folder: Folder, place: Place) -> DumpedOperand:
    file, io, slot = place
    found = operands.read(folder, (file,))
    return next(each for each in found if (each.io, each.index) == (io, slot))


def _in_one_layout(
    dumped: DumpedOperand, golden: DumpedOperand, folder: Folder
) -> tuple[np.ndarray, np.ndarray]:
    if folder.kind is FolderKind.GOLDEN:  # its layout is not told: the one whose shape fits
        return counterparts.in_golden_layout(dumped, golden, "")
    return counterparts.alike(dumped, golden)


def _measured(plain: Compared, ours: np.ndarray, theirs: np.ndarray) -> Compared:
    """Compare two arrays; FormatError where they hold text or differ in their number of elements."""
    if ours.dtype == theirs.dtype == np.bool_:
        ours, theirs = ours.view(np.uint8), theirs.view(np.uint8)
    scores = tuple(score.text for score in algorithms.compare(ours, theirs))
    return replace(plain, scores=scores, agreement=agreement.measure(ours, theirs), note=_note(ours, theirs))


def _note(ours: np.ndarray, theirs: np.ndarray) -> str:
    if not ours.size:
        return "no elements"
    if ours.size == theirs.size and [n for n in ours.shape if n != 1] != [n for n in theirs.shape if n != 1]:
        return f"shape {ours.shape} beside {theirs.shape}, compared in the order of the elements"
    return ""
