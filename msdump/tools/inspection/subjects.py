"""The tensors that are looked at: those of a file, or those of an operator in a dump."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from msdump import dtypes
from msdump.device import formats
from msdump.encode import dump_data, dump_enums, npy
from msdump.encode.dump_data import TensorInfo
from msdump.errors import DumpReadError, FormatError, ToolError
from msdump.store.read import mapped
from msdump.store.read.measured.measurements import Measurements
from msdump.store.read.reader import Dump
from msdump.store.read.records import Record
from msdump.store.read.tensor_directories import Iteration
from msdump.tools.return_codes import ReturnCode
from msdump.tools.trend import Slot, alike, matcher


@dataclass(frozen=True, slots=True)
class InspectedTensor:
    """A tensor that can be looked at.

    Attributes:
        name: Its operator, type and slot; the name of the file where that is all that is known.
        where: Rank and iteration, "" for a file alone.
        path: Its file; that of the statistics where its elements were not saved.
        dtype: MindSpore's name of its element type.
        format: Its memory format, "" where it is the host's.
        statistics: What is known of all its elements.
        shape: Its shape, on the device where only that is known.
        load: Returns its elements in the host's layout, types that numpy lacks widened; None where they were
            not saved.
    """

    name: str
    where: str
    path: str
    dtype: str
    format: str
    statistics: Measurements
    shape: tuple[int, ...]
    load: Callable[[], np.ndarray] | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class ShownRun:
    """One run of an operator.

    Attributes:
        subjects: Its tensors, inputs first.
        others: In how many other iterations, ranks, executions and passes of a loop it ran.
    """

    subjects: tuple[InspectedTensor, ...]
    others: int


def of_file(path: str) -> tuple[InspectedTensor, ...]:
    """Return the tensors of a file: a .npy file, or a dump file of CANN.

    Raises:
        DumpReadError: It can be read as neither.
    """
    view, name = mapped.load(path), os.path.basename(path)  # noqa: PTH119 - a name, whatever stands there
    if bytes(view[: len(npy.MAGIC)]) == npy.MAGIC:
        array = npy.decode_raw(view, path)
        return (_subject(name, path, array, ""),)
    subjects = tuple(_blocks(view, name, path))
    if not subjects:
        raise DumpReadError(path, "the dump file holds no tensor")
    return subjects


def _blocks(view: memoryview, name: str, path: str) -> Iterator[InspectedTensor]:
    header, offset = dump_data.read_header(view, path)
    for block in dump_data.blocks(header, offset):
        if not isinstance(block.info, TensorInfo):
            continue
        data = view[block.offset : block.offset + block.info.size]
        array = dump_data.tensor(block.info, data, path, block.offset)
        label = f"{header.op_name or name} {block.section} {block.index}"
        layout = dump_enums.format_name(block.info.format)
        host, is_host = _in_host_layout(array, block.info, layout)
        text = f"{layout} on the device" if is_host else f"{layout}, as it lies on the device"
        yield _subject(label, path, host, text)


def _in_host_layout(array: np.ndarray, info: TensorInfo, layout: str) -> tuple[np.ndarray, bool]:
    if not info.original_shape or info.shape == info.original_shape:
        return array, True
    try:
        return formats.decode(layout, array, info.original_shape, max(1, info.sub_format)), True
    except FormatError:
        return array, False


def _subject(name: str, path: str, array: np.ndarray, layout: str) -> InspectedTensor:
    try:
        dtype = dtypes.from_numpy(array.dtype)
    except FormatError:  # dates and structures, which no dump has
        title, widened = str(array.dtype), array
    else:
        title, widened = dtype.name, dtypes.widen(array, dtype)
    statistics = Measurements(None, lambda: array)
    return InspectedTensor(name, "", path, title, layout, statistics, array.shape, lambda: widened)


def of_operator(
    dump: Dump, operator: str, slots: tuple[Slot, ...], iteration: int | None, rank: int | None
) -> ShownRun:
    """Return the tensors of the first run of an operator in a dump.

    Args:
        dump: The dump.
        operator: Name of the operator: full, its last component, or as files spell it; ``*`` and ``?`` stand
            for other characters.
        slots: Inputs and outputs; empty: all.
        iteration: Number of the iteration; None: the first in which it ran.
        rank: Number of the rank; None: the first on which it ran.

    Raises:
        ToolError: No such operator, or none of these inputs and outputs, was dumped there.
        DumpReadError: The dump cannot be read.
    """
    is_meant = matcher(operator)
    runs: dict[tuple[object, ...], list[tuple[Iteration, Record]]] = {}
    names: dict[str, None] = {}
    for each in dump.iterations:
        if (iteration is not None and _number(each) != iteration) or (rank is not None and each.rank != rank):
            continue
        for record in each.tensors:
            names.setdefault(record.full_name or record.op_name)
            if is_meant(record):
                run = (each.path, record.execution, record.pass_number, record.full_name or record.op_name)
                runs.setdefault(run, []).append((each, record))
    if not runs:
        raise ToolError(
            ReturnCode.PARAMETER, f"no operator {operator!r} was dumped there{alike(operator, [*names])}"
        )
    first = next(iter(runs.values()))
    return ShownRun(tuple(_chosen(first, slots)), len(runs) - 1)


def _number(iteration: Iteration) -> int:
    return iteration.number if iteration.key.step is None else iteration.key.step


def _chosen(run: list[tuple[Iteration, Record]], slots: tuple[Slot, ...]) -> Iterator[InspectedTensor]:
    there = [(record.io, record.slot) for _, record in run]
    if slots and not {*slots} & {*there}:
        has = ", ".join(f"{io}:{number}" for io, number in sorted({*there}))
        raise ToolError(ReturnCode.PARAMETER, f"no such input or output was dumped; there are {has}")
    for iteration, record in sorted(run, key=lambda each: (each[1].io, each[1].slot)):
        if not slots or (record.io, record.slot) in slots:
            yield _of_record(iteration, record)


def _of_record(iteration: Iteration, record: Record) -> InspectedTensor:
    where = f"rank {iteration.rank}, iteration {_number(iteration)}"
    has_elements = bool(record.path) and os.path.isfile(record.path)
    return InspectedTensor(
        str(record),
        where,
        record.path,
        record.dtype,
        "" if record.format in {"", "DefaultFormat"} else record.format,
        record.stats,
        record.shape,
        (lambda: _elements(record)) if has_elements else None,
    )


def _elements(record: Record) -> np.ndarray:
    """Return a tensor in the host's layout where it is known, else as it lies on the device."""
    try:
        return record.host
    except FormatError:
        return record.array
