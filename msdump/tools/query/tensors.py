"""The views ``tensors`` and ``runs``: what was saved as files, by executions and passes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from msdump import dtypes
from msdump.errors import DumpReadError, FormatError
from msdump.store.read.executions.shared import Execution
from msdump.store.read.records import Record
from msdump.store.read.tensor_directories import Iteration
from msdump.tools.query.places import OpenedDump


def rows(opened: OpenedDump) -> Iterator[dict[str, Any]]:
    """Yield a row for each tensor that was saved, execution by execution, in their order."""
    for directory in opened.directories():
        place = opened.place(directory)
        for execution in executions(directory, opened.fault):
            for record in execution.records:
                yield place | row(record, opened.fault)
    for file in opened.dump.failures:  # of operators that raised an error
        place = opened.place_of(file.directory.key) | {
            "directory": opened.below(file.path.rpartition("/")[0])
        }
        try:
            for record in file.records:
                yield place | row(record, opened.fault)
        except DumpReadError as error:
            opened.fault(str(error))


def executions(directory: Iteration, fault: Callable[[str], object]) -> tuple[Execution, ...]:
    """Return the executions that left files in a directory; none where it cannot be read, which is told."""
    try:
        return directory.file_executions
    except DumpReadError as error:
        fault(str(error))
        return ()


def row(record: Record, fault: Callable[[str], object]) -> dict[str, Any]:
    """Return the columns that a tensor tells of itself; a file that is torn has no shape, and is told."""
    dtype, shape = None, None
    try:
        dtype, shape = record.dtype, record.shape
    except DumpReadError as error:
        fault(str(error))
    return names(record) | {
        "full_name": record.full_name,
        "scope": record.scope or None,
        "execution": record.execution,
        "pass": record.pass_number,
        "dtype": dtype,
        "shape": shape,
        "format": record.format,
        "bytes": None if dtype is None or shape is None else size(dtype, shape),
        "path": record.path,
    }


def names(record: Record) -> dict[str, Any]:
    """Return the columns of the name of a tensor."""
    return {
        "op_type": record.op_type,
        "op_name": record.op_name,
        "io": str(record.io),
        "slot": record.slot,
        "task_id": record.name.task_id,
        "stream_id": record.name.stream_id,
        "timestamp": record.timestamp,
    }


def size(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Return the bytes of a tensor, packed as a device packs it; None of a type that has no size."""
    try:
        known = dtypes.from_name(dtype)
    except FormatError:
        return None
    return -(-math.prod(shape) * known.numpy.itemsize // known.per_byte)


def runs(opened: OpenedDump) -> Iterator[dict[str, Any]]:
    """Yield a row for each execution that left tensors in a directory, and for each directory without any."""
    for directory in opened.iterations():
        place = opened.place(directory) | _told(opened, directory)
        saved = [each for each in executions(directory, opened.fault) if each.records]
        for execution in saved:
            times = [record.timestamp for record in execution.records]
            yield place | {
                "execution": execution.number,
                "is_whole": execution.is_whole,
                "started": moment(min(times)),
                "ended": moment(max(times)),
                "tensors": len(times),
            }
        if not saved:
            yield place | {"tensors": 0}


def moment(microseconds: int) -> str:
    """Return a time of UTC as SQL has it.

    >>> moment(1795219089580885)
    '2026-11-20T23:58:09.580885'
    """
    return (datetime(1970, 1, 1) + timedelta(microseconds=microseconds)).isoformat()  # noqa: DTZ001 - UTC


def _told(opened: OpenedDump, directory: Iteration) -> dict[str, Any]:
    """Return what the path of a directory and the metadata of its rank tell."""
    key = directory.key
    rank = None if key.rank is None else opened.dump.ranks.get(key.rank)
    device, config = None, None
    try:
        device, config = (None, None) if rank is None else (rank.device, rank.config)
    except DumpReadError as error:
        opened.fault(str(error))
    known = device if isinstance(device, dict) else {}
    return {
        "step": key.step,
        "time": key.time,
        "device_target": known.get("device_target"),
        "version": known.get("ms_version"),
        "config": None if config is None else json.dumps(config),
        "path": directory.path,
    }
